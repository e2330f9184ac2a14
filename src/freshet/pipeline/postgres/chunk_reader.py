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
from pyarrow import csv

from freshet.pipeline.postgres.copied_table import CopiedTable
from freshet.pipeline.postgres.copy_state import Bound

PIECE_BYTES: Final = 8 * 2**20
_WAITS: Final = 0
"""Of libpq: the call returns with the next line, however long that takes."""
_BY_INDEX: Final = b"SET LOCAL enable_seqscan = off"
"""Of a range of keys; without statistics, each chunk would read the whole table."""
_BLOCK_BYTES: Final = 2**20
"""What the reader takes at a time: larger blocks leave the processor's cache."""


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
                yield _csv_texts(lines, columns)
                lines = bytearray()
        while (result := connection.get_result()) is not None:
            self._check(result)
        if lines:
            yield _csv_texts(lines, columns)

    def _result(self, query: sql.Composed) -> pq.abc.PGresult:
        result = self._session.pgconn.exec_(query.as_bytes(self._session))
        self._check(result)
        return result

    def _check(self, result: pq.abc.PGresult) -> None:
        if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result, encoding="utf-8")


def _csv_texts(lines: bytearray, columns: int) -> pa.Table:
    """The rows of some lines of CSV, whole ones, as string columns named by their places: NULL is an empty field, and
    '' one in quotes."""
    names = [str(index) for index in range(columns)]
    schema = pa.schema([(name, pa.string()) for name in names])
    if not lines:
        return schema.empty_table()
    try:
        return _read_csv(lines, schema, _BLOCK_BYTES)
    except pa.ArrowInvalid:  # a row that is longer than a block
        return _read_csv(lines, schema, len(lines) + 1)


def _read_csv(lines: bytearray, schema: pa.Schema, block: int) -> pa.Table:
    return csv.read_csv(
        pa.BufferReader(lines),
        csv.ReadOptions(use_threads=False, block_size=block, column_names=schema.names),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=schema, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
        ),
    ).combine_chunks()
