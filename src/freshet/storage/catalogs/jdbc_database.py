"""The database of a catalog: SQLite or PostgreSQL, through SQLAlchemy.

Every statement is a transaction of its own. A process has one pool of connections for each database; a forked child
makes its own. Connections to SQLite are not kept: a process that forks must have none open.

| error of the driver | raised |
|---|---|
| not reachable, restarted, busy, no free connection | `RetryableError` |
| its tables are gone; refused: user, password, permission, a file that is not as it should be | `InvalidRequestError` |
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import psycopg
from sqlalchemy import Connection, Engine, create_engine, event, exc, inspect, text
from sqlalchemy.pool import NullPool

from freshet.storage.catalogs.jdbc_options import SQLITE, DatabaseAddress
from freshet.storage.exceptions import InvalidRequestError, RetryableError, StorageError

POOLS_MAX: Final = 16
"""Databases whose connections a process keeps."""

CHECKED_AFTER_S: Final = 10
"""An idle connection is tried before its use; a fresh one is trusted."""

STATEMENT_TIMEOUT: Final = "60s"

_FINAL_STATES: Final = ("08P01", "0A", "22", "23", "28", "3D", "3F", "42")
"""Classes of SQLSTATE, and states, that trying again does not change."""
_NO_TABLE: Final = "42P01"
_FINAL_TEXTS: Final = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    " does not exist",
    "constraint failed",
    "unable to open database file",
    "readonly database",
    "not a database",
    "invalid connection option",
    "could not translate host name",
)


class Session:
    """One connection while it is in use."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(self, statement: str, values: Mapping[str, object] | None = None) -> int:
        """Makes a change; the number of rows."""
        return self._connection.execute(text(statement), dict(values or {})).rowcount

    def insert(self, statement: str, values: Mapping[str, object]) -> bool:
        """False where a row of this key is there already."""
        try:
            self.run(statement, values)
        except exc.IntegrityError:
            return False
        return True

    def update(self, statement: str, values: Mapping[str, object]) -> int | None:
        """The number of rows; None where one of the new key is there already."""
        try:
            return self.run(statement, values)
        except exc.IntegrityError:
            return None

    def rows(self, statement: str, values: Mapping[str, object] | None = None) -> Sequence[Sequence[Any]]:
        """What a query finds."""
        return self._connection.execute(text(statement), dict(values or {})).fetchall()


class Pool:
    """The connections of this process to one database. May be shared by threads."""

    def __init__(self, address: DatabaseAddress, time_zone: str, size: int) -> None:
        self.address = address
        self._mutexes: dict[str, threading.Lock] = {}
        self.unreleased: dict[str, object] = {}
        """Own rows of locks that could not be deleted: when they were made, by lock id."""
        self._engine = _engine(address, time_zone, size)
        self._made: set[str] = set()
        self._making = threading.Lock()

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A connection of the pool; errors of the driver become those of `exceptions`."""
        with self._as_ours(), self._engine.connect() as connection:
            yield Session(connection)

    def mutex(self, lock_id: str) -> threading.Lock:
        """Where the threads of this process wait for each other before one asks for the lock."""
        return self._mutexes.setdefault(lock_id, threading.Lock())

    def make_tables(self, tables: Mapping[str, str]) -> None:
        """Creates the tables that are missing, one after the other; looks once in a process."""
        with self._making:
            if self._made.issuperset(tables):
                return
            with self.session() as session:
                if self.address.kind == SQLITE and session.rows("PRAGMA journal_mode")[0][0] != "wal":
                    session.rows("PRAGMA journal_mode=WAL")
            for name, statement in tables.items():
                if not self._has_table(name):
                    self._make(name, statement)
            self._made.update(tables)

    def _has_table(self, name: str) -> bool:
        with self._as_ours():
            return inspect(self._engine).has_table(name)

    def _make(self, name: str, statement: str) -> None:
        try:
            with self.session() as session:
                session.run(statement)
        except StorageError:
            if not self._has_table(name):  # else another program was faster
                raise

    @contextmanager
    def _as_ours(self) -> Iterator[None]:
        try:
            yield
        except (exc.SQLAlchemyError, psycopg.Error, sqlite3.Error) as error:
            raise self._worded(error) from _without_secrets(error, self.address)

    def _worded(self, error: Exception) -> StorageError:
        reason = self._text(error)
        state = getattr(getattr(error, "orig", error), "sqlstate", None) or ""
        if state == _NO_TABLE or "no such table" in reason:
            return InvalidRequestError(
                f"the catalog's database {self.address.shown} has lost its tables ({reason}): while this program ran "
                "it was deleted, emptied or replaced. Restore it from a backup and start the program again. Without a "
                "backup the files of the tables are still in the warehouse: register each again (freshet register, or "
                "Catalog.register_table) in a new program, which makes the tables of the database anew",
                option="uri",
            )
        if state.startswith(_FINAL_STATES) or any(each in reason for each in _FINAL_TEXTS):
            return InvalidRequestError(
                f"the catalog's database {self.address.shown} refused: {reason}; check the options uri, jdbc.user and "
                "jdbc.password, and what this user may do there",
                option="uri",
            )
        return RetryableError(
            f"the catalog's database {self.address.shown} gave no answer: {reason}; check that it is running and can "
            "be reached, then try again",
            option="uri",
        )

    def _text(self, error: Exception) -> str:
        found = str(getattr(error, "orig", None) or error).strip()
        return self.address.hide_secrets(" ".join(found.split()))


def open_pool(address: DatabaseAddress, time_zone: str, size: int) -> Pool:
    """The connections of this process to a database; the sessions of PostgreSQL are in a time zone."""
    return _pool(os.getpid(), address, time_zone, size)


@lru_cache(POOLS_MAX)
def _pool(process_id: int, address: DatabaseAddress, time_zone: str, size: int) -> Pool:
    return Pool(address, time_zone, size)


def _without_secrets(error: Exception, address: DatabaseAddress) -> Exception | None:
    """The error as a cause to be shown; None for one that has a password in it."""
    return error if address.hide_secrets(str(error)) == str(error) else None


def _engine(address: DatabaseAddress, time_zone: str, size: int) -> Engine:
    parameters = dict(address.parameters)
    if address.kind == SQLITE:
        path, timeout_s = parameters["path"], int(parameters["busy_timeout"]) / 1000
        return create_engine(
            "sqlite://",
            creator=lambda: sqlite3.connect(path, timeout_s, isolation_level=None, check_same_thread=False),
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
        )

    def connect() -> psycopg.Connection[Any]:
        # Prepared statements are lost behind a pooler.
        connection = psycopg.connect(autocommit=True, prepare_threshold=None, **parameters)  # type: ignore[arg-type]
        connection.execute(
            "SELECT set_config('TimeZone', %s, false), set_config('statement_timeout', %s, false)",
            (time_zone, STATEMENT_TIMEOUT),
        )
        return connection

    engine = create_engine(
        "postgresql+psycopg://",
        creator=connect,
        pool_size=size,
        max_overflow=0,
        isolation_level="AUTOCOMMIT",
        hide_parameters=True,
    )
    event.listen(engine, "checkin", _note_use)
    event.listen(engine, "checkout", _try_idle)
    return engine


def _note_use(connection: object, record: Any) -> None:
    record.info["used_s"] = time.monotonic()


def _try_idle(connection: Any, record: Any, proxy: object) -> None:
    if time.monotonic() - record.info.get("used_s", time.monotonic()) < CHECKED_AFTER_S:
        return
    try:
        connection.execute("SELECT 1")
    except psycopg.Error as error:
        raise exc.DisconnectionError from error  # the pool makes another one
