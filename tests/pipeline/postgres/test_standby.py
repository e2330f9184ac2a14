"""Standbys as the source, and standbys that are promoted."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from freshet.pipeline.checks.postgres_reach import database_problems
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.postgres import shared_snapshot
from freshet.pipeline.postgres.server import ServerPlace
from freshet.pipeline.postgres.shared_snapshot import SharedSnapshot
from tests.kit.postgres_programs import NEWEST, SYSTEM
from tests.kit.postgres_server import PostgresServer
from tests.kit.postgres_source import PostgresSource, logical_server
from tests.kit.postgres_standby import await_replay, postgres_standby
from tests.pipeline.postgres.streamed import SYNC, Streamed

pytestmark = pytest.mark.slow

SUMS = '[{from: "[^.]*.public.(.*)", to: "db.{table}", '
SUMS += "options: {merge-engine: aggregation, fields.v.aggregate-function: sum}}]"


def _begun(server: PostgresServer) -> PostgresSource:
    primary = PostgresSource(server, "d")
    server.query("CREATE DATABASE d")
    primary.run(
        "CREATE TABLE t (id bigint PRIMARY KEY, v bigint)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t SELECT i, i FROM generate_series(1, 50) i",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    return primary


def _rows(streamed: Streamed) -> list[tuple[int, int]]:
    return sorted((row["id"], row["v"]) for row in streamed.rows("db.t"))


def test_a_standby_is_copied_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its snapshots list no transactions that run: one with such in it is not taken."""
    with logical_server(NEWEST, hot_standby_feedback="on") as server, postgres_standby(server) as standby:
        primary, here = _begun(server), PostgresSource(standby, "d")
        await_replay(server, standby)
        ends = threading.Event()

        def say_where_it_is() -> None:
            while not ends.wait(0.2):
                server.query("SELECT pg_log_standby_snapshot()")

        thread = threading.Thread(target=say_where_it_is)
        thread.start()
        try:
            streamed = Streamed(tmp_path, here, snapshot="initial", rules=SUMS)
            streamed.run(SYNC)
            primary.run("UPDATE t SET v = v + 1", "INSERT INTO t VALUES (100, 1)")
            await_replay(server, standby)
            streamed.run(SYNC)
            assert _rows(streamed) == primary.rows("SELECT * FROM t ORDER BY id")
            (source,) = streamed.config(SYNC).sources
            assert source.postgres is not None
            place = ServerPlace.of(source.postgres)
            monkeypatch.setattr(shared_snapshot, "_STANDBY_S", 1.0)
            with primary.connect(autocommit=False) as runs:
                runs.execute(b"UPDATE t SET v = 0 WHERE id = 1")
                primary.run("UPDATE t SET v = 0 WHERE id = 2")
                await_replay(server, standby)
                with pytest.raises(PipelineFailedError, match="is a standby, whose snapshots do not say"):
                    SharedSnapshot(place)
            await_replay(server, standby)
            SharedSnapshot(place).close()
        finally:
            ends.set()
            thread.join()


def test_a_standby_that_is_promoted_goes_on_with_its_slot(tmp_path: Path) -> None:
    with logical_server(NEWEST, hot_standby_feedback="on") as server, postgres_standby(server) as standby:
        primary, here = _begun(server), PostgresSource(standby, "d")
        more = ", failover: true"
        streamed = Streamed(tmp_path, primary, snapshot="initial", rules=SUMS, failover=more)
        streamed.run(SYNC)
        primary.run("UPDATE t SET v = v + 1")
        streamed.run(SYNC)
        until = time.monotonic() + 300
        ready = f"SELECT FROM pg_replication_slots WHERE slot_name = '{streamed.slot}' AND synced AND NOT temporary"
        while not standby.query(ready):
            primary.run("UPDATE t SET v = v + 1 WHERE id = 3", "SELECT pg_log_standby_snapshot()")
            streamed.run(SYNC)
            assert time.monotonic() < until
            time.sleep(0.5)
        primary.run("UPDATE t SET v = v + 1 WHERE id = 4")
        await_replay(server, standby)
        server.stop()
        standby.query("SELECT pg_promote()")
        here.run("UPDATE t SET v = v + 1", "INSERT INTO t VALUES (99, 9)")
        moved = Streamed(tmp_path, here, **{**streamed.said, "dsn": here.dsn})
        for _ in range(2):
            moved.run(SYNC)
            assert _rows(moved) == here.rows("SELECT * FROM t ORDER BY id")
            here.run("UPDATE t SET v = v + 1 WHERE id < 9")
        server.start()


def test_what_a_server_that_is_too_old_lacks(tmp_path: Path) -> None:
    with logical_server(SYSTEM) as server:
        primary = _begun(server)
        found = database_problems([Streamed(tmp_path, primary, failover=", failover: true").config(SYNC)])
        assert ["failover wants PostgreSQL 17" in str(each) for each in found] == [True]
