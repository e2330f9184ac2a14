"""A PostgreSQL server as a client reaches it: connections, the settings that its texts depend on, and its errors.

psycopg's own layer over libpq is used where changes stream: what is confirmed is then up to the caller alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import conninfo

from freshet.pipeline.config.model import PostgresConfig
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import ConfigurationError, PipelineFailedError
from freshet.pipeline.postgres.value_texts import SETTINGS, SETTINGS_OPTION

CONNECT_S: Final = 10
_REFERENCE: Final = "env:"
_REFUSALS: Final = (
    "password authentication failed", "no pg_hba.conf entry", "no password supplied", "pg_hba.conf rejects",
    "certificate", "permission denied", "must be superuser or replication role", "is not permitted to log in",
)  # fmt: skip
_STRONGER: Final = {"PGDATESTYLE": "DateStyle", "PGTZ": "TimeZone"}
"""Variables that libpq sends behind `options`, so that they count, and the settings that they are of."""
_POOLED: Final = "unsupported startup parameter"
_MISSING: Final = ("role ", "database ")

NO_SLOT, IN_USE, NOT_IN_STATE, LOCKED = "42704", "55006", "55000", "55P03"


@dataclass(frozen=True)
class ServerPlace:
    """How a database is reached; `password` may name a variable, which is read for each connection."""

    dsn: str
    password: str | None = None

    @classmethod
    def of(cls, config: PostgresConfig) -> ServerPlace:
        """The place that a source names."""
        password = None if config.password is None else config.password.get_secret_value()
        return cls(config.dsn.get_secret_value(), password)

    def __repr__(self) -> str:
        return f"ServerPlace({self.shown})"

    @property
    def shown(self) -> str:
        """Host and database, for messages."""
        try:
            parts = conninfo.conninfo_to_dict(self.dsn)
        except psycopg.Error:
            return "PostgreSQL"
        host = parts.get("host") or parts.get("hostaddr") or "localhost"
        return f"{host}:{parts.get('port', 5432)}/{parts.get('dbname', parts.get('user', ''))}"

    def conninfo(self) -> str:
        """What libpq is given."""
        try:
            given = conninfo.conninfo_to_dict(self.dsn)
        except psycopg.Error as error:
            raise ConfigurationError(f"postgres.dsn is no connection string of libpq: {_first_line(error)}") from error
        own: dict[str, Any] = {
            "client_encoding": "UTF8",
            "application_name": given.get("application_name", "freshet"),
            "connect_timeout": given.get("connect_timeout", CONNECT_S),
            "options": f"{given.get('options', '')} {SETTINGS_OPTION}".strip(),
        }
        if self.password is not None:
            own["password"] = self._revealed(self.password)
        return conninfo.make_conninfo(self.dsn, **own)

    @staticmethod
    def _revealed(password: str) -> str:
        if not password.startswith(_REFERENCE):
            return password
        name = password.removeprefix(_REFERENCE)
        if name not in os.environ:
            raise ConfigurationError(f"postgres.password names the environment variable {name}, which is not set")
        return os.environ[name]

    @contextmanager
    def session(self, *, replication: bool = False) -> Iterator[psycopg.Connection[Any]]:
        """A connection that commits each statement; raises `PipelineFailedError`."""
        connection = self.connect(replication=replication)
        try:
            yield connection
        except psycopg.Error as error:
            raise failure(self, error) from error
        finally:
            connection.close()

    def connect(self, *, replication: bool = False) -> psycopg.Connection[Any]:
        """The same, for whoever closes it. Raises where a pooler is in between, which gives out process ids of its own,
        and sessions whose settings and snapshots others have."""
        more: dict[str, Any] = {"replication": "database"} if replication else {}
        try:
            connection = psycopg.connect(conninfo.make_conninfo(self.conninfo(), **more), autocommit=True)
            for name in [each for variable, each in _STRONGER.items() if variable in os.environ]:
                connection.execute(f"SET {name} = '{SETTINGS[name]}'".encode())
            pid = None if replication else connection.execute(b"SELECT pg_backend_pid()").fetchone()
        except psycopg.Error as error:
            raise (_pooled(self) if _POOLED in str(error) else failure(self, error)) from error
        if pid is not None and pid[0] != connection.pgconn.backend_pid:
            connection.close()
            raise _pooled(self)
        return connection

    def rows(self, query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """What a query gives, in a connection of its own."""
        with self.session() as session:
            return session.execute(query.encode(), parameters).fetchall()


def failure(place: ServerPlace, error: psycopg.Error, doing: str = "") -> PipelineFailedError:
    """What an error of the server asks for."""
    text = _first_line(error)
    shown = f"PostgreSQL at {place.shown}: {doing}{': ' if doing else ''}{text}"
    if any(each in text for each in _REFUSALS) or ("does not exist" in text and any(each in text for each in _MISSING)):
        return PipelineFailedError(shown, kind=ErrorKind.INVALID_REQUEST)
    sqlstate = error.sqlstate
    if sqlstate is None or sqlstate[:2] in ("08", "40", "57", "53", "58") or sqlstate in (IN_USE, LOCKED):
        return PipelineFailedError(shown, kind=ErrorKind.RETRYABLE)
    return PipelineFailedError(shown, kind=ErrorKind.INVALID_REQUEST)


def _pooled(place: ServerPlace) -> PipelineFailedError:
    return PipelineFailedError(
        f"{place.shown} is a connection pooler such as PgBouncer: neither a stream of changes nor the settings of a "
        "session can be relied on through it. Name the server itself in postgres.dsn",
        kind=ErrorKind.INVALID_REQUEST,
    )


def _first_line(error: Exception) -> str:
    return " ".join(line.strip() for line in str(error).splitlines()[:3] if line.strip()) or type(error).__name__
