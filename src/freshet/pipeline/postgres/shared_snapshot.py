"""One snapshot that several sessions read in: a session takes it and stays, the others import it by its name."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final

import pyarrow as pa

from freshet.pipeline.postgres.chunk_reader import ChunkReader
from freshet.pipeline.postgres.copied_chunks import Bound
from freshet.pipeline.postgres.copied_table import CopiedTable
from freshet.pipeline.postgres.lsn import lsn_of
from freshet.pipeline.postgres.server import ServerPlace, failure, psycopg
from freshet.pipeline.postgres.transactions import TransactionSnapshot

_BEGIN: Final = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_STAYS: Final = b"SET idle_in_transaction_session_timeout = 0; SET statement_timeout = 0; SET lock_timeout = 0"
_SINCE_13: Final = 130_000


class SharedSnapshot:
    """The session that has it; raises `PipelineFailedError`."""

    def __init__(self, place: ServerPlace) -> None:
        self._place = place
        self._session = place.connect()
        try:
            self._session.execute(_STAYS)
            self._session.execute(_BEGIN)
            what = "pg_current" if self._session.info.server_version >= _SINCE_13 else "txid_current"
            row = self._session.execute(f"SELECT {what}_snapshot()::text, pg_export_snapshot()".encode()).fetchone()
        except psycopg.Error as error:
            self._session.close()
            raise failure(place, error) from error
        assert row is not None
        self.snapshot = TransactionSnapshot.parse(str(row[0]))
        self.name = str(row[1])

    def described(self, schema: str, name: str, publication: str) -> CopiedTable | None:
        """A table as the catalogue has it now, and what a publication has of it."""
        try:
            return CopiedTable.described(self._session, schema, name, publication)
        except psycopg.Error as error:
            raise failure(self._place, error) from error

    def key_behind(self, table: CopiedTable, after: Bound | None, rows: int) -> Bound | None:
        """The last key of a chunk of so many rows, as the snapshot has them; None where the table ends before."""
        try:
            self._session.execute(b"SET LOCAL enable_seqscan = off")
            return next(iter(ChunkReader(self._session, table)._texts(table.key_behind(after, rows))), None)
        except psycopg.Error as error:
            raise failure(self._place, error, f"table {table.schema}.{table.name}") from error

    def insert_lsn(self) -> int:
        """The end of the log now, which is behind all that the snapshot holds."""
        with self._place.session() as session:
            row = session.execute(b"SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        return lsn_of(str(row[0]))

    def close(self) -> None:
        """Lets it go; sessions that have imported it keep it."""
        self._session.close()


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

    def rows(self, table: CopiedTable, after: Bound | None, until: Bound | None) -> Iterator[pa.Table]:
        """The rows of a range, in tables of texts."""
        try:
            if after is not None or until is not None:
                self._session.execute(b"SET LOCAL enable_seqscan = off")
            yield from ChunkReader(self._session, table)._rows(table.copy(after, until))
        except psycopg.Error as error:
            raise failure(self._place, error, f"table {table.schema}.{table.name}") from error

    def __enter__(self) -> ImportedSnapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()


__all__ = ["Any", "ImportedSnapshot", "SharedSnapshot"]
