"""Columns as a Parquet file stores them, brought into the Arrow types of the fields wanted.

| stored | becomes |
|---|---|
| the type itself | the same buffers |
| another width, fixed-size binary, another list child name or zone flag | cast, refused where it does not fit |
| a timestamp in a finer unit | cut |
| nothing | NULL; refused for a NOT NULL field |

`HeldRows` keeps the rows of a file in memory as they are written, in the form in which the file gives them, for
readers that follow at once: to open, read and decode a few hundred rows costs more than anything done with them.

Source: FORMAT.md §2.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.exceptions import CorruptDataError, UnsupportedFeatureError
from freshet.storage.files.parquet_schema import SYSTEM_FIELDS
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import DataField
from freshet.storage.model.schema import TableSchema

_ARROW_CREATED_BY: Final = "parquet-cpp-arrow"
_WRAP_MICROS: Final = 2**64 // 1000
"""Microseconds after which 64-bit nanoseconds wrap around."""


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
        # Only timestamps may lose something: a writer stored finer units than the type has.
        return column.cast(target, safe=not pa.types.is_timestamp(target))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise CorruptDataError(
            f"column {field.name!r} is stored as {column.type}, which does not convert to {field.type}: {error}",
            path=path,
        ) from error


def check_instants(
    name: str, nanos: pa.ChunkedArray[Any], micros: pa.ChunkedArray[Any], created_by: str, path: str
) -> None:
    """Refuses a column of INT96 values that 64-bit nanoseconds cannot carry; `micros` is the same column, cut.

    Only top-level columns are looked at. A column stored as 64-bit integers reads the same both ways and is fine.
    """
    if not pa.types.is_timestamp(nanos.type) or micros.type == nanos.type:
        return
    if not _same_instants(nanos, micros, has_negative_nanos=not created_by.startswith(_ARROW_CREATED_BY)):
        raise UnsupportedFeatureError(
            f"column {name!r} of {path} holds nanosecond timestamps outside 1677..2262, which Arrow cannot carry; read "
            "without that column"
        )


def _same_instants(nanos: pa.ChunkedArray[Any], micros: pa.ChunkedArray[Any], *, has_negative_nanos: bool) -> bool:
    """False when nanoseconds have wrapped around.

    Before 1970 the two may round to neighbouring microseconds. Paimon's writer gives an INT96 before 1970 a negative
    nanosecond of the day, which Arrow takes as unsigned when it reads microseconds: one wrap too much there. (Its years
    2262 to 2554 look the same and are read 584 years too early; nothing in the file distinguishes the two.)
    """
    cut = nanos.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    apart = pc.subtract(micros.cast(pa.timestamp("us")).cast(pa.int64()), cut)
    fits = pc.less_equal(pc.abs(apart), 1)
    if has_negative_nanos:
        one_wrap = pc.less_equal(pc.abs(pc.subtract(apart, _WRAP_MICROS)), 1)
        fits = pc.or_(fits, pc.and_(one_wrap, pc.less(nanos.cast(pa.int64()), 0)))
    return pc.all(fits, min_count=0).as_py() is not False


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
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        return StoredColumns(self._fields, path).table(columns, rows.num_rows)
