"""The rows of a data file as they are written, kept in memory for those who need them right behind.

So that they need not open, read and decode the file again: of a few hundred rows that costs more than anything done
with them. Rows are given as the file gives them: the same columns, types and order. Beyond a number of bytes nothing is
kept, and the file is read.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from freshet.storage.files.parquet_schema import SYSTEM_FIELDS
from freshet.storage.files.stored_columns import StoredColumns
from freshet.storage.model.schema import TableSchema


class HeldRows:
    """Rows of one data file of a primary-key table, in the order written."""

    def __init__(self, schema: TableSchema, bytes_max: int) -> None:
        """With a `bytes_max` of 0 nothing is kept."""
        self._schema = schema
        self._bytes_left = bytes_max
        self._tables: list[pa.Table] = []

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Keeps some more, or none any more."""
        self._bytes_left -= rows.nbytes
        if self._bytes_left <= 0:
            self._tables.clear()
        elif rows.num_rows:
            table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
            self._tables.append(table.select([*self._system_columns, *self._schema.column_names]))

    def take(self, path: str) -> pa.Table | None:
        """All rows of the file at `path`, its system columns first; None where there are none or there were too many.

        Nothing is kept after that.
        """
        tables, self._tables = self._tables, []
        if not tables:
            return None
        rows = pa.concat_tables(tables)
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        return StoredColumns((*SYSTEM_FIELDS, *self._schema.fields), path).table(columns, rows.num_rows)

    @property
    def _system_columns(self) -> Iterator[str]:
        return (field.name for field in SYSTEM_FIELDS)
