"""Columns of data files: which there are, in which order, and as a file stores them, brought into the types wanted.

    primary-key file   `_KEY_<c>` of each trimmed key column (not in thin mode), `_SEQUENCE_NUMBER`, `_VALUE_KIND`,
                       then all columns of the table
    append file        all columns of the table

Field ids as data files carry them: every column and every part of a nested type has one.

`_KEY_<c>` has 1073741823 + the id of c. Parts of nested types that have no id of their own get one from the field
around them (id, with depth counting lists and maps since that field, from 1):

| part | id |
|---|---|
| list element, map value | 536870911 + 1024 * id + depth |
| map key | 536870911 - 1024 * id - depth |

Into the Arrow types of the fields wanted (`StoredColumns`):

| stored | becomes |
|---|---|
| the type itself | the same buffers |
| another width, fixed-size binary, another list child name or zone flag | cast, refused where it does not fit |
| a timestamp in a finer unit | cut |
| nothing | NULL; refused for a NOT NULL field |

`HeldRows` keeps the rows of a file in memory as they are written, in the form in which the file gives them, for
readers that follow at once: to open, read and decode a few hundred rows costs more than anything done with them.
`SmallFiles` keeps those of the last small files for the compactions that take several of them together.

Source: FORMAT.md §2.2, §2.3, §7.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.exceptions import CorruptDataError
from freshet.storage.io.sized_cache import SharedBound, SizedCache
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.data_type import (
    ArrayType,
    DataField,
    DataType,
    MapType,
    RowType,
    ScalarType,
    TypeRoot,
    child_types,
    with_nullable,
)
from freshet.storage.model.nested_arrays import converted
from freshet.storage.model.schema import (
    KEY_COLUMN_ID_START,
    KEY_COLUMN_PREFIX,
    SEQUENCE_NUMBER_COLUMN,
    SEQUENCE_NUMBER_ID,
    VALUE_KIND_COLUMN,
    VALUE_KIND_ID,
    TableSchema,
)

SEQUENCE_NUMBER_FIELD: Final = DataField(
    SEQUENCE_NUMBER_ID, SEQUENCE_NUMBER_COLUMN, ScalarType(TypeRoot.BIGINT, nullable=False)
)
VALUE_KIND_FIELD: Final = DataField(VALUE_KIND_ID, VALUE_KIND_COLUMN, ScalarType(TypeRoot.TINYINT, nullable=False))
SYSTEM_FIELDS: Final = (SEQUENCE_NUMBER_FIELD, VALUE_KIND_FIELD)
"""What a key-value batch has in front of the table's columns."""

_NANO_PRECISION_MIN: Final = 7

SCHEMAS_MAX: Final = 512
"""Of files, that a process keeps: a batch of a hundred tables writes some of each."""


def key_value_fields(schema: TableSchema, *, thin: bool) -> tuple[DataField, ...]:
    """Columns of a data or changelog file of a primary-key table."""
    keys = () if thin else tuple(key_field(schema.by_name[name]) for name in schema.trimmed_primary_keys)
    return (*keys, *SYSTEM_FIELDS, *schema.fields)


def key_field(column: DataField) -> DataField:
    """The `_KEY_` column of a primary-key column."""
    return DataField(
        KEY_COLUMN_ID_START + column.id, KEY_COLUMN_PREFIX + column.name, with_nullable(column.type, False)
    )


def has_nano_timestamps(fields: Sequence[DataField]) -> bool:
    """True when a timestamp finer than microseconds is among the columns, at any depth."""
    return any(_has_nanos(field.type) for field in fields)


def is_nano_timestamp(data_type: DataType) -> bool:
    """True for TIMESTAMP(7) and finer."""
    return (
        isinstance(data_type, ScalarType)
        and data_type.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
        and (data_type.precision or 0) >= _NANO_PRECISION_MIN
    )


def _has_nanos(data_type: DataType) -> bool:
    return is_nano_timestamp(data_type) or any(map(_has_nanos, child_types(data_type)))


_NESTED_ID_BASE: Final = 536870911
_NESTED_ID_STEP: Final = 1024


class NumberedFields(Frozen):
    """Arrow fields whose metadata has their id under `id_key`, from which a writer takes names, types and ids."""

    id_key: bytes
    scalar_type: Callable[[DataType], pa.DataType] = arrow_type
    keeps_not_null: bool = True

    def schema(self, fields: Iterable[DataField]) -> pa.Schema:
        """The columns of a file."""
        return _schema(self, tuple(fields))

    def made(self, fields: Iterable[DataField]) -> pa.Schema:
        """The same, made anew."""
        return pa.schema([self._field(field.name, field.type, field.id, field.id, 0) for field in fields])

    def _field(self, name: str, data_type: DataType, own_id: int, around_id: int, depth: int) -> pa.Field[Any]:
        """`own_id` is the part's id; `around_id` that of the nearest field with an id of its own, `depth` levels up."""
        nullable = data_type.nullable or not self.keeps_not_null
        return pa.field(
            name, self._type(data_type, around_id, depth + 1), nullable, {self.id_key: str(own_id).encode()}
        )

    def _type(self, data_type: DataType, around_id: int, depth: int) -> pa.DataType:
        above = _NESTED_ID_BASE + _NESTED_ID_STEP * around_id + depth
        below = _NESTED_ID_BASE - _NESTED_ID_STEP * around_id - depth
        match data_type:
            case ArrayType(element=element):
                return pa.list_(self._field("element", element, above, around_id, depth))
            case MapType(key=key, value=value):
                key_part = self._field("key", with_nullable(key, False), below, around_id, depth).with_nullable(False)
                map_type: pa.DataType = pa.map_(key_part, self._field("value", value, above, around_id, depth))
                return map_type
            case RowType(fields=fields):
                return pa.struct([self._field(child.name, child.type, child.id, child.id, 0) for child in fields])
        return self.scalar_type(data_type)


@lru_cache(SCHEMAS_MAX)
def _schema(numbered: NumberedFields, fields: tuple[DataField, ...]) -> pa.Schema:
    return numbered.made(fields)


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
