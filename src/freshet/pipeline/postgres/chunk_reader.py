"""Rows of a table read with COPY, in a transaction that has a snapshot already (`shared_snapshot`).

    reader = ChunkReader(session, table)            a session with the pinned settings
    until = reader.key_behind(after, table.chunk_rows)
    for texts in reader.rows(after, until):         tables of string columns, in pieces of some MiB

Raises psycopg's errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import pq, sql

from freshet.pipeline.postgres.copied_chunks import Bound
from freshet.pipeline.postgres.copied_table import CopiedTable
from freshet.pipeline.postgres.csv_texts import csv_texts

PIECE_BYTES: Final = 8 * 2**20
_WAITS: Final = 0
"""Of libpq: the call returns with the next line, however long that takes."""
_BY_INDEX: Final = b"SET LOCAL enable_seqscan = off"
"""Of a range of keys; without statistics, each chunk would read the whole table."""


class ChunkReader:
    """Reads one table in one session."""

    def __init__(self, session: psycopg.Connection[Any], table: CopiedTable) -> None:
        self._session, self._table = session, table

    def key_behind(self, after: Bound | None, rows: int) -> Bound | None:
        """The last key of a chunk of so many rows that begins after a key; None where the table ends before."""
        self._session.execute(_BY_INDEX)
        return next(iter(self._texts(self._table.key_behind(after, rows))), None)

    def places(self, bounds: Sequence[Bound], keys: Sequence[Bound]) -> list[int]:
        """The numbers of the chunks that keys belong to, in the server's order of keys."""
        if not bounds or not keys:
            return [0] * len(keys)
        texts = [list(column) for rows in (bounds, keys) for column in zip(*rows, strict=True)]
        return [place for (place,) in self._session.execute(self._table.places, texts).fetchall()]

    def rows(self, after: Bound | None, until: Bound | None, rows_max: int | None = None) -> Iterator[pa.Table]:
        """The rows of a range, or so many of them."""
        if after is not None or until is not None:
            self._session.execute(_BY_INDEX)
        return self._rows(self._table.copy(after, until, rows_max))

    def rows_of(self, keys: Sequence[Bound]) -> Iterator[pa.Table]:
        """The rows that some keys have."""
        self._session.execute(_BY_INDEX)
        return self._rows(self._table.copy_keys(keys)) if keys else iter(())

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
