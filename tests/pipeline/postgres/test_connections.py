"""Streams whose connection ends, servers that stop, and databases in which nothing happens."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.kit.postgres_source import PostgresSource, logical_server, new_source
from tests.pipeline.postgres.streamed import SYNC, Streamed

WAIT_S = 60.0
ACTIVE = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{}' AND active"


def _until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


def _begun(tmp_path: Path, postgres: PostgresSource) -> Streamed:
    postgres.run("CREATE TABLE t (id bigint PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    streamed = Streamed(tmp_path, postgres)
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
                assert time.monotonic() - begun < 20
                server.start()
                _until(partial(has, number + 1))
