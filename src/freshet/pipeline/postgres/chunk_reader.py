"""A chunk of a table read with COPY: its snapshot first, then its rows, in one transaction.

    reader = ChunkReader(session, table)            a session of its own, with the pinned settings
    until = reader.key_behind(after, table.chunk_rows)
    with reader.chunk(after, until) as (snapshot, rows):
        for texts in rows:                          tables of string columns, in pieces of some MiB

The snapshot is read by the transaction that reads the rows (REPEATABLE READ): a statement of its own would have
another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import pq, sql

from freshet.pipeline.postgres.copied_chunks import Bound
from freshet.pipeline.postgres.copied_table import CopiedTable
from freshet.pipeline.postgres.csv_texts import csv_texts
from freshet.pipeline.postgres.transactions import TransactionSnapshot

PIECE_BYTES: Final = 8 * 2**20
_WAITS: Final = 0
"""Of libpq: the call returns with the next line, however long that takes."""
_SINCE_13: Final = 130_000
_BEGIN: Final = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_BY_INDEX: Final = b"SET LOCAL enable_seqscan = off"
"""Of a range; without statistics, each chunk would read the whole table."""


class ChunkReader:
    """Reads one table in one session, a chunk at a time. Raises psycopg's errors."""

    def __init__(self, session: psycopg.Connection[Any], table: CopiedTable) -> None:
        self._session, self._table = session, table

    def key_behind(self, after: Bound | None, rows: int) -> Bound | None:
        """The last key of a chunk of so many rows that begins after a key; None where the table ends before."""
        with self._transaction(is_range=True):
            return next(iter(self._texts(self._table.key_behind(after, rows))), None)

    def places(self, bounds: Sequence[Bound], keys: Sequence[Bound]) -> list[int]:
        """The numbers of the chunks that keys belong to, in the server's order of keys."""
        if not bounds or not keys:
            return [0] * len(keys)
        texts = [list(column) for rows in (bounds, keys) for column in zip(*rows, strict=True)]
        return [place for (place,) in self._session.execute(self._table.places, texts).fetchall()]

    @contextmanager
    def chunk(
        self,
        after: Bound | None,
        until: Bound | None,
        may_be_read_in: Callable[[TransactionSnapshot], bool] = lambda _: True,
    ) -> Iterator[tuple[TransactionSnapshot, Iterator[pa.Table]] | None]:
        """The snapshot of a range of keys and its rows; None where the rows may not be read in that snapshot."""
        with self._transaction(is_range=after is not None or until is not None):
            snapshot = self._snapshot()
            rows = self._rows(self._table.copy(after, until))
            yield (snapshot, rows) if may_be_read_in(snapshot) else None

    @contextmanager
    def rows_of(self, keys: Sequence[Bound]) -> Iterator[tuple[TransactionSnapshot, Iterator[pa.Table]]]:
        """The same of some keys: of rows whose key changed between two chunks."""
        with self._transaction(is_range=True):
            yield self._snapshot(), self._rows(self._table.copy_keys(keys)) if keys else iter(())

    @contextmanager
    def _transaction(self, *, is_range: bool) -> Iterator[None]:
        """Leaves the session closed where what it was asked for is not read to its end."""
        is_done = False
        try:
            self._session.execute(_BEGIN)
            if is_range:
                self._session.execute(_BY_INDEX)
            yield
            if self._session.pgconn.transaction_status == psycopg.pq.TransactionStatus.INTRANS:
                self._session.execute(b"COMMIT")
                is_done = True
        finally:
            if not is_done:
                self._session.close()

    def _snapshot(self) -> TransactionSnapshot:
        name = "pg_current" if self._session.info.server_version >= _SINCE_13 else "txid_current"
        [(text,)] = self._session.execute(f"SELECT {name}_snapshot()::text".encode()).fetchall()
        return TransactionSnapshot.parse(text)

    def _texts(self, query: sql.Composed) -> list[Bound]:
        """The rows of a query as the texts that PostgreSQL writes, which are no NULL."""
        result = self._result(query)
        rows, columns = range(result.ntuples), range(result.nfields)
        return [tuple((result.get_value(row, column) or b"").decode() for column in columns) for row in rows]

    def _rows(self, query: sql.Composed) -> Iterator[pa.Table]:
        connection, columns = self._session.pgconn, len(self._table.columns)
        self._result(query)
        next_line, lines = connection.get_copy_data, bytearray()
        # Lines are joined at once: kept in a list, they are what Python's collector looks at, for five times the time.
        while True:
            length, line = next_line(_WAITS)
            if length < 0:
                break
            lines += line
            if len(lines) >= PIECE_BYTES:
                yield csv_texts(lines, columns)
                lines = bytearray()
        while (result := connection.get_result()) is not None:
            self._check(result)
        if lines:
            yield csv_texts(lines, columns)

    def _result(self, query: sql.Composed) -> pq.abc.PGresult:
        result = self._session.pgconn.exec_(query.as_bytes(self._session))
        self._check(result)
        return result

    def _check(self, result: pq.abc.PGresult) -> None:
        if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result, encoding="utf-8")
