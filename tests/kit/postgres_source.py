"""PostgreSQL as a source in tests: a server a session and version that decodes its log, a database for each test.

def test_…(postgres):                                       fixture of tests/conftest.py: a `PostgresSource`
    postgres.run("CREATE TABLE t (…)", "INSERT INTO t …")
    postgres.rows("SELECT …")                               [(1, "new"), …], in a session of its own, in UTC
    with postgres.connect() as connection: …                psycopg's
    postgres.dsn, postgres.password                         what a pipeline is given
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import psycopg
from psycopg import sql

from tests.kit.postgres_programs import postgres_programs
from tests.kit.postgres_server import PASSWORD, PostgresServer, postgres_server

SETTINGS: Final = {
    "wal_level": "logical",
    "max_replication_slots": 50,
    "max_wal_senders": 50,
    "max_prepared_transactions": 10,
    "shared_buffers": "32MB",
    "autovacuum": "off",  # statistics are there when a test asks for them
    "full_page_writes": "off",
    "max_wal_size": "4GB",
    # A commit of a session that sets synchronous_commit to on hangs, seen by the stream and by nobody else, until
    # `let_go`. Those of all others do not wait.
    "synchronous_standby_names": "nobody",
    "synchronous_commit": "local",
}


class PostgresServers:
    """Those of a session: each starts when it is first asked for."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._servers: dict[str, PostgresServer] = {}

    def __getitem__(self, version: str) -> PostgresServer:
        """`system` or `18`."""
        if version not in self._servers:
            self._servers[version] = self._stack.enter_context(logical_server(version))
        return self._servers[version]


def logical_server(version: str, **settings: object) -> AbstractContextManager[PostgresServer]:
    """A server of its own, for tests that stop it or need other settings; ends with the block."""
    texts = [part for name, value in {**SETTINGS, **settings}.items() for part in ("-c", f"{name}={value}")]
    return postgres_server(*texts, programs=postgres_programs(version))


@dataclass(frozen=True)
class PostgresSource:
    """A database with nothing in it."""

    server: PostgresServer
    database: str
    password: str = PASSWORD

    @property
    def dsn(self) -> str:
        return self.server.dsn(self.database)

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """A session that commits each statement, unless told otherwise."""
        return psycopg.connect(self.dsn, **{"password": self.password, "autocommit": True, **options})

    def run(self, *statements: str) -> None:
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def let_go(self) -> int:
        """Ends the wait of commits that hang; says of how many."""
        waiting = "datname = current_database() AND wait_event = 'SyncRep'"
        return len(self.rows(f"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE {waiting}"))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.server.query(query, self.database)


@contextmanager
def new_source(server: PostgresServer, name: str | None = None) -> Iterator[PostgresSource]:
    """A database that goes away with the block, with its slots and sessions."""
    source = PostgresSource(server, name or f"d{uuid4().hex[:12]}")
    server.query(f"CREATE DATABASE {source.database}")
    try:
        yield source
    finally:
        _drop(source)


def _drop(source: PostgresSource) -> None:
    """Sessions first: a slot in use cannot be dropped, a prepared transaction holds its database."""
    name = sql.Literal(source.database).as_string()
    end = time.monotonic() + 60
    while source.server.query(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {name}"):
        assert time.monotonic() < end, f"sessions of {source.database} do not end"
        time.sleep(0.005)
    for (transaction,) in source.rows(f"SELECT gid FROM pg_prepared_xacts WHERE database = {name}"):
        source.rows(f"ROLLBACK PREPARED {sql.Literal(transaction).as_string()}")
    source.server.query(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = {name}")
    while source.server.query(f"SELECT pid FROM pg_stat_activity WHERE datname = {name}"):
        assert time.monotonic() < end, f"the last session of {source.database} does not end"
        time.sleep(0.005)
    source.server.query(f"DROP DATABASE {source.database}")
