"""Streams whose connection ends, servers that stop, and databases in which nothing happens."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.local.local_query import BatchPoint, LocalQuery
from freshet.pipeline.local.postgres_offset import going_on_problems
from freshet.pipeline.sync.database_resync import planned_resync
from tests.kit.pgbouncer import pgbouncer
from tests.kit.postgres_proxy import postgres_proxy
from tests.kit.postgres_source import PostgresSource, logical_server, new_source
from tests.pipeline.postgres.streamed import SYNC, Streamed

WAIT_S = 300.0
ACTIVE = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{}' AND active"


def _until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


def _begun(tmp_path: Path, postgres: PostgresSource, **said: str) -> Streamed:
    postgres.run("CREATE TABLE t (id bigint PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    streamed = Streamed(tmp_path, postgres, **said)
    streamed.run(SYNC)
    postgres.run("INSERT INTO t VALUES (0)")
    streamed.run(SYNC)
    return streamed


@pytest.mark.dear("a pipeline on a real server")
def test_a_connection_that_is_cut_goes_on(tmp_path: Path, postgres: PostgresSource) -> None:
    streamed = _begun(tmp_path, postgres)
    active = ACTIVE.format(streamed.slot)
    with streamed.running(SYNC):
        for number in range(1, 4):
            _until(lambda: bool(postgres.rows(active)))
            postgres.run(
                f"INSERT INTO t VALUES ({number})", f"SELECT pg_terminate_backend(active_pid) FROM ({active}) s"
            )
        _until(lambda: len(streamed.rows("db.t")) == 4)


@pytest.mark.dear("a pipeline on a real server")
def test_a_quiet_database_holds_no_log_back(tmp_path: Path, postgres: PostgresSource) -> None:
    streamed = _begun(tmp_path, postgres)
    behind = "SELECT pg_current_wal_lsn() - confirmed_flush_lsn FROM pg_replication_slots "
    behind += f"WHERE slot_name = '{streamed.slot}'"
    postgres.run("CREATE TABLE other (a text)")
    with streamed.running(SYNC):
        postgres.run("INSERT INTO other SELECT repeat(md5(i::text), 20) FROM generate_series(1, 10000) i")
        assert postgres.rows(behind)[0][0] > 1 << 20
        _until(lambda: postgres.rows(behind)[0][0] < 1 << 20)
    postgres.run("INSERT INTO t VALUES (1)")
    streamed.run(SYNC)
    assert len(streamed.rows("db.t")) == 2


@pytest.mark.slow
def test_a_server_that_shuts_down_is_let_go_and_found_again(tmp_path: Path) -> None:
    with logical_server("system") as server, new_source(server) as postgres:
        streamed = _begun(tmp_path, postgres)

        def has(count: int) -> bool:
            return len(streamed.rows("db.t")) == count

        with streamed.running(SYNC):
            for number in range(1, 3):
                postgres.run(f"INSERT INTO t VALUES ({number})")
                _until(lambda: bool(postgres.rows(ACTIVE.format(streamed.slot))))
                begun = time.monotonic()
                server.stop()
                assert time.monotonic() - begun < 45
                server.start()
                _until(partial(has, number + 1))


@pytest.mark.dear("a pipeline on a real server")
@pytest.mark.parametrize("ignore", ["", "options", pytest.param("options,replication", marks=pytest.mark.slow)])
def test_a_pooler_in_between_is_refused_by_name(tmp_path: Path, postgres: PostgresSource, ignore: str) -> None:
    postgres.run("CREATE TABLE t (id bigint PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    with pgbouncer(postgres.server, postgres.database, ignore=ignore) as dsn:
        streamed = Streamed(tmp_path, postgres, dsn=dsn)
        with pytest.raises(PipelineFailedError, match="is a connection pooler such as PgBouncer"):
            streamed.run(SYNC)
    assert not postgres.rows(f"SELECT FROM pg_replication_slots WHERE slot_name = '{streamed.slot}'")


@pytest.mark.slow
def test_a_connection_that_ends_or_waits_in_mid_transaction(tmp_path: Path, postgres: PostgresSource) -> None:
    """What has come of a transaction comes again; what was asked for waits."""
    with postgres_proxy(postgres.server) as proxy:
        streamed = _begun(tmp_path, postgres, dsn=proxy.dsn(postgres.database))
        with streamed.running(SYNC):
            for number in range(1, 4):
                _until(lambda: bool(postgres.rows(ACTIVE.format(streamed.slot))))
                proxy.cut(after=200_000)
                postgres.run(
                    f"INSERT INTO t SELECT i FROM generate_series({10_000 * number}, {10_000 * number + 5999}) i"
                )
                _until(lambda number=number: proxy.cuts == number)
            proxy.hold()
            postgres.run("INSERT INTO t VALUES (1)")
            time.sleep(1)
            proxy.let_go()
            _until(lambda: len(streamed.rows("db.t")) == 2 + 3 * 6000)


@pytest.mark.slow
def test_a_commit_that_takes_long_keeps_the_stream(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Data that flow do not count for the server, only replies."""
    streamed = _begun(tmp_path, postgres, dsn=f"{postgres.dsn}?options=-c%20wal_sender_timeout%3D8s")

    def waits(query: LocalQuery, point: BatchPoint) -> None:
        if point is BatchPoint.PLANNED:
            time.sleep(20)

    monkeypatch.setattr(LocalQuery, "reach", waits)
    with streamed.running(SYNC):
        _until(lambda: bool(postgres.rows(ACTIVE.format(streamed.slot))))
        ((before,),) = postgres.rows(ACTIVE.format(streamed.slot))
        postgres.run("INSERT INTO t VALUES (1)")
        _until(lambda: len(streamed.rows("db.t")) == 2)
        assert postgres.rows(ACTIVE.format(streamed.slot)) == [(before,)]
    assert "connecting again" not in caplog.text


@pytest.mark.slow
def test_a_password_that_is_changed(tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read for each connection: one that stays is not asked again."""
    role = f"r{postgres.database}"
    postgres.run(f"CREATE ROLE {role} LOGIN SUPERUSER PASSWORD 'one'")
    monkeypatch.setenv("ROTATED", "one")
    dsn = postgres.dsn.replace("freshet@", f"{role}@")
    replaced = PostgresSource(postgres.server, postgres.database, "env:ROTATED")
    postgres.run("CREATE TABLE t (id bigint PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    streamed = Streamed(tmp_path, replaced, dsn=dsn)
    try:
        streamed.run(SYNC)
        postgres.run("INSERT INTO t VALUES (-1)")
        streamed.run(SYNC)
        with streamed.running(SYNC):
            active = ACTIVE.format(streamed.slot)
            _until(lambda: bool(postgres.rows(active)))
            postgres.run(f"ALTER ROLE {role} PASSWORD 'two'")
            monkeypatch.setenv("ROTATED", "two")
            postgres.run("INSERT INTO t VALUES (0)")
            _until(lambda: len(streamed.rows("db.t")) == 2)
            postgres.run(f"SELECT pg_terminate_backend(active_pid) FROM ({active}) s", "INSERT INTO t VALUES (1)")
            _until(lambda: len(streamed.rows("db.t")) == 3)
        monkeypatch.setenv("ROTATED", "one")
        with pytest.raises(PipelineFailedError, match="password authentication failed"):
            streamed.run(SYNC)
    finally:
        postgres.run(f"ALTER ROLE {role} NOLOGIN")


@pytest.mark.slow
def test_a_slot_that_was_lost_is_copied_again(tmp_path: Path) -> None:
    settings = {"max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB"}
    with logical_server("system", **settings) as server, new_source(server) as postgres:
        streamed = _begun(tmp_path, postgres, snapshot="initial")
        postgres.run("CREATE TABLE other (a text)")
        for _ in range(4):
            postgres.run("INSERT INTO other SELECT repeat(md5(i::text), 20) FROM generate_series(1, 20000) i")
            postgres.run("SELECT pg_switch_wal()", "CHECKPOINT")
        postgres.run("INSERT INTO t VALUES (1)", "DELETE FROM t WHERE id = 0")
        (problem,) = going_on_problems([streamed.config(SYNC)])
        assert "is lost: the server has removed WAL that it needed" in problem.message
        with pytest.raises(PipelineFailedError, match=r"are missing\. To go on: freshet resync FILE"):
            streamed.run(SYNC)
        planned_resync(streamed.config(SYNC), None).run()
        postgres.run("INSERT INTO t VALUES (2)")
        streamed.run(SYNC)
        assert [row["id"] for row in streamed.rows("db.t")] == [1, 2]
