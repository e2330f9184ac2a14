"""One snapshot that several sessions read in: a session takes it and stays, the others import it by its name.

Its tables are locked before it is taken (ACCESS SHARE, as any SELECT does): a table that is rewritten after a snapshot
was taken (ALTER TYPE) looks empty in it. Who wants to alter a table then waits for that session, and whoever comes
after waits for him: sessions that import the snapshot do not, or none of the three would ever go on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final

import pyarrow as pa
from psycopg import sql

from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.postgres.chunk_reader import ChunkReader
from freshet.pipeline.postgres.copied_table import CopiedTable
from freshet.pipeline.postgres.copy_state import Bound
from freshet.pipeline.postgres.lsn import lsn_of
from freshet.pipeline.postgres.server import ServerPlace, failure, psycopg
from freshet.pipeline.postgres.transactions import TransactionSnapshot

_BEGIN: Final = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_STAYS: Final = b"SET idle_in_transaction_session_timeout = 0; SET statement_timeout = 0; SET lock_timeout = 0"
_LOCK: Final = sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE")
_LOCK_AT_ONCE: Final = sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE NOWAIT")
_END_OF_LOG: Final = b"""
SELECT CASE WHEN pg_is_in_recovery() THEN greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())
ELSE pg_current_wal_insert_lsn() END::text"""
_SINCE_13: Final = 130_000
_STANDBY_S: Final = 10.0


class SharedSnapshot:
    """The session that has it; raises `PipelineFailedError`."""

    def __init__(self, place: ServerPlace, tables: Sequence[tuple[str, str]] = ()) -> None:
        """`tables` are those that are read in it, by schema and name; one that is gone is passed over."""
        self._place = place
        self._session = place.connect()
        until = time.monotonic() + _STANDBY_S
        try:
            self._session.execute(_STAYS)
            there = [sql.Identifier(*each) for each in tables if self._is_there(*each)]
            while not self._is_taken(there) and time.monotonic() < until:
                self._session.execute(b"ROLLBACK")
                time.sleep(_STANDBY_S / 1000)
        except psycopg.Error as error:
            self._session.close()
            raise failure(place, error) from error
        if time.monotonic() >= until:
            self._session.close()
            raise PipelineFailedError(
                f"{place.shown} is a standby, whose snapshots do not say which transactions were running, and in "
                f"{_STANDBY_S:.0f} s there was no moment without one: copy from the primary",
                kind=ErrorKind.INVALID_REQUEST,
            )
        self.lsn = self._end_of_log()
        """Behind all that the snapshot holds."""

    def _is_taken(self, there: Sequence[sql.Identifier]) -> bool:
        """Takes it; False where it cannot be told what it holds: on a standby, which lists no transactions that run,
        while some do."""
        self._session.execute(_BEGIN)
        if there:
            self._session.execute(_LOCK.format(sql.SQL(", ").join(there)))
        what = "pg_current" if self._session.info.server_version >= _SINCE_13 else "txid_current"
        query = f"SELECT {what}_snapshot()::text, pg_export_snapshot(), pg_is_in_recovery()"
        row = self._session.execute(query.encode()).fetchone()
        assert row is not None
        self.snapshot, self.name = TransactionSnapshot.parse(str(row[0])), str(row[1])
        return not row[2] or self.snapshot.oldest == self.snapshot.next

    def described(self, schema: str, name: str, publication: str) -> CopiedTable | None:
        """A table as the catalogue has it now, and what a publication has of it."""
        try:
            return CopiedTable.described(self._session, schema, name, publication)
        except psycopg.Error as error:
            raise failure(self._place, error) from error

    def key_behind(self, table: CopiedTable, after: Bound | None, rows: int) -> Bound | None:
        """The last key of a chunk of so many rows, as the snapshot has them; None where the table ends before."""
        try:
            return ChunkReader(self._session, table).key_behind(after, rows)
        except psycopg.Error as error:
            raise failure(self._place, error, f"table {table.schema}.{table.name}") from error

    def close(self) -> None:
        """Lets it go; sessions that have imported it keep it."""
        self._session.close()

    def _is_there(self, schema: str, name: str) -> bool:
        named = sql.Identifier(schema, name).as_string(self._session)
        return self._session.execute(b"SELECT to_regclass(%s) IS NOT NULL", (named,)).fetchone() == (True,)

    def _end_of_log(self) -> int:
        try:
            row = self._session.execute(_END_OF_LOG).fetchone()
        except psycopg.Error as error:
            self._session.close()
            raise failure(self._place, error) from error
        assert row is not None
        return lsn_of(str(row[0]))


class ImportedSnapshot:
    """Reads ranges of a table in the snapshot of another session."""

    def __init__(self, place: ServerPlace, name: str) -> None:
        self._place = place
        self._session = place.connect()
        try:
            self._session.execute(_BEGIN)
            self._session.execute(b"SET TRANSACTION SNAPSHOT '" + name.encode() + b"'")
        except psycopg.Error as error:
            self._session.close()
            raise failure(place, error) from error

    def rows(
        self, table: CopiedTable, after: Bound | None, until: Bound | None, rows_max: int | None = None
    ) -> Iterator[pa.Table]:
        """The rows of a range, or so many of them, in tables of texts."""
        named = f"table {table.schema}.{table.name}"
        try:
            self._session.execute(_LOCK_AT_ONCE.format(sql.Identifier(table.schema, table.name)))
            yield from ChunkReader(self._session, table).rows(after, until, rows_max)
        except psycopg.errors.LockNotAvailable as error:
            raise PipelineFailedError(
                f"{named} is about to be altered, which waits for its copy: the copy makes way, and goes on after it",
                kind=ErrorKind.RETRYABLE,
            ) from error
        except psycopg.Error as error:
            raise failure(self._place, error, named) from error

    def __enter__(self) -> ImportedSnapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()
