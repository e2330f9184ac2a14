"""Columns as a data file stores them, brought into the Arrow types of the fields wanted.

| stored | becomes |
|---|---|
| the type itself | the same buffers |
| another width, fixed-size binary, another list child name or zone flag | cast, refused where it does not fit |
| a timestamp in a finer unit | cut |
| nothing | NULL; refused for a NOT NULL field |

`HeldRows` keeps the rows of a file in memory as they are written, in the form in which the file gives them, for
readers that follow at once: to open, read and decode a few hundred rows costs more than anything done with them.
`SmallFiles` keeps those of the last small files for the compactions that take several of them together.

Source: FORMAT.md §2.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from freshet.storage.exceptions import CorruptDataError
from freshet.storage.files.file_fields import SYSTEM_FIELDS
from freshet.storage.io.sized_cache import SharedBound, SizedCache
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.data_type import DataField
from freshet.storage.model.nested_arrays import converted
from freshet.storage.model.schema import TableSchema

SMALL_BYTES: Final = 256 * 1024
"""Of the rows of one file in memory."""

_ALL_SMALL: Final = SharedBound(32 * 1024 * 1024, SMALL_BYTES)


class StoredColumns:
    """Brings columns as a file stores them into the types of the fields wanted; prepared once for many batches."""

    def __init__(self, fields: Sequence[DataField], path: str) -> None:
        self._path = path
        self._fields = tuple(fields)
        self._targets = [arrow_type(field.type) for field in fields]
        self._schema = pa.schema(
            [pa.field(f.name, target, f.type.nullable) for f, target in zip(fields, self._targets, strict=True)]
        )

    def batch(self, batch: pa.RecordBatch, count: int) -> pa.RecordBatch:
        """The columns wanted of a batch read; `count` is its number of rows, also where nothing was read."""
        if not self._fields:
            return _rows_without_columns(count).to_batches()[0]
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        return pa.RecordBatch.from_arrays(self._projected(columns, count), schema=self._schema)

    def table(self, columns: Mapping[str, pa.ChunkedArray[Any]], count: int) -> pa.Table:
        """The same of whole columns."""
        if not self._fields:
            return _rows_without_columns(count)
        return pa.table(self._projected(columns, count), schema=self._schema)

    def _projected(self, columns: Mapping[str, Any], count: int) -> list[Any]:
        return [
            _projected_column(columns.get(field.name), field, target, count, self._path)
            for field, target in zip(self._fields, self._targets, strict=True)
        ]


def _rows_without_columns(count: int) -> pa.Table:
    return pa.table({"": pa.nulls(count)}).select([])


def _projected_column(column: Any, field: DataField, target: pa.DataType, count: int, path: str) -> Any:
    """The column in the type of its field; untouched where the file stores that type."""
    if column is None:
        if not field.type.nullable:
            raise CorruptDataError(f"the NOT NULL column {field.name!r} is missing in the file", path=path)
        return pa.nulls(count, target)
    if column.type.equals(target):
        return column
    try:
        return _cast(column, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise CorruptDataError(
            f"column {field.name!r} is stored as {column.type}, which does not convert to {field.type}: {error}",
            path=path,
        ) from error


def _cast(column: Any, target: pa.DataType) -> Any:
    try:
        # Only timestamps may lose something: a writer stored finer units than the type has.
        return column.cast(target, safe=not pa.types.is_timestamp(target))
    except pa.ArrowInvalid:
        if not pa.types.is_nested(target) or column.type.num_fields != target.num_fields:
            raise
        # Arrow's cast takes no NULL row whose fields are NOT NULL, and cuts no timestamps in nested values.
        if isinstance(column, pa.ChunkedArray):
            return pa.chunked_array([converted(chunk, target, _cast) for chunk in column.chunks], target)
        return converted(column, target, _cast)


class HeldRows:
    """Rows of one data file of a primary-key table, in the order written."""

    def __init__(self, schema: TableSchema, bytes_max: int) -> None:
        """With a `bytes_max` of 0 nothing is kept."""
        self._fields = (*SYSTEM_FIELDS, *schema.fields)
        self._bytes_left = bytes_max
        self._tables: list[pa.Table] = []

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Keeps some more, or none any more."""
        self._bytes_left -= rows.nbytes
        if self._bytes_left <= 0:
            self._tables.clear()
        elif rows.num_rows:
            table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
            self._tables.append(table.select([field.name for field in self._fields]))

    def take(self, path: str) -> pa.Table | None:
        """All rows of the file at `path`, its system columns first; None where there are none or there were too many.

        Nothing is kept after that.
        """
        tables, self._tables = self._tables, []
        if not tables:
            return None
        rows = pa.concat_tables(tables)
        if len(tables) > 1:  # else each is read, and written again, as a piece of its own
            rows = rows.combine_chunks()
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        return StoredColumns(self._fields, path).table(columns, rows.num_rows)


class SmallFiles:
    """Rows of the small data files of a primary-key table that this process has written last; may be shared by threads.

    A file never changes, and no other has its name.
    """

    def __init__(self) -> None:
        self._rows: SizedCache[str, pa.Table] = SizedCache(_ALL_SMALL, pa.Table.get_total_buffer_size)

    def keep(self, file: DataFileMeta, rows: pa.Table) -> None:
        """Takes the rows of a file, unless they keep much memory."""
        if rows.get_total_buffer_size() <= SMALL_BYTES:
            self._rows.put(file.file_name, rows)

    def of(self, files: Iterable[DataFileMeta], schema: TableSchema) -> dict[str, pa.Table]:
        """The rows that are here of files that a compaction takes away, by name, as a reader at this schema has them:
        none of files of another one."""
        found = ((file, self._rows.take(file.file_name)) for file in files)
        return {file.file_name: rows for file, rows in found if rows is not None and file.schema_id == schema.id}
