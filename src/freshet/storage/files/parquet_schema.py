"""Columns of Parquet files: which there are, in which order, with which field ids.

    primary-key file   `_KEY_<c>` of each trimmed key column (not in thin mode), `_SEQUENCE_NUMBER`, `_VALUE_KIND`,
                       then all columns of the table
    append file        all columns of the table

Every column carries its field id; `_KEY_<c>` has 1073741823 + the id of c. Parts of nested types that have no id of
their own get one from the field around them (id, with depth counting lists and maps since that field, from 1):

| part | id |
|---|---|
| list element, map value | 536870911 + 1024 * id + depth |
| map key | 536870911 - 1024 * id - depth |

NOT NULL columns are `required`. Source: FORMAT.md §2.2, §2.3, §7.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import (
    ArrayType,
    DataField,
    DataType,
    MapType,
    RowType,
    ScalarType,
    TypeRoot,
    with_nullable,
)
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

_NESTED_ID_BASE: Final = 536870911
_NESTED_ID_STEP: Final = 1024
_FIELD_ID: Final = b"PARQUET:field_id"
_INT96_PRECISION_MIN: Final = 7


def key_value_fields(schema: TableSchema, *, thin: bool) -> tuple[DataField, ...]:
    """Columns of a data or changelog file of a primary-key table."""
    keys = () if thin else tuple(key_field(schema.by_name[name]) for name in schema.trimmed_primary_keys)
    return (*keys, *SYSTEM_FIELDS, *schema.fields)


def key_field(column: DataField) -> DataField:
    """The `_KEY_` column of a primary-key column."""
    return DataField(
        KEY_COLUMN_ID_START + column.id, KEY_COLUMN_PREFIX + column.name, with_nullable(column.type, False)
    )


def parquet_schema(fields: Iterable[DataField]) -> pa.Schema:
    """The Arrow schema from which a Parquet file gets its columns and their ids."""
    return pa.schema([_numbered(field.name, field.type, field.id, field.id, 0) for field in fields])


def needs_int96(fields: Sequence[DataField]) -> bool:
    """True when a timestamp finer than microseconds is among the columns, at any depth.

    Readers before 2.0 take INT64 nanoseconds wrongly; all take INT96 for every precision, and the choice holds for
    the whole file.
    """
    return any(_has_nanos(field.type) for field in fields)


def is_nano_timestamp(data_type: DataType) -> bool:
    """True for TIMESTAMP(7) and finer."""
    return (
        isinstance(data_type, ScalarType)
        and data_type.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
        and (data_type.precision or 0) >= _INT96_PRECISION_MIN
    )


def _has_nanos(data_type: DataType) -> bool:
    match data_type:
        case ArrayType(element=element):
            return _has_nanos(element)
        case MapType(key=key, value=value):
            return _has_nanos(key) or _has_nanos(value)
        case RowType(fields=fields):
            return needs_int96(fields)
    return is_nano_timestamp(data_type)


def _numbered(name: str, data_type: DataType, own_id: int, around_id: int, depth: int) -> pa.Field[Any]:
    """`own_id` is the part's id; `around_id` that of the nearest field with an id of its own, `depth` levels up."""
    return pa.field(
        name, _numbered_type(data_type, around_id, depth + 1), data_type.nullable, {_FIELD_ID: str(own_id).encode()}
    )


def _numbered_type(data_type: DataType, around_id: int, depth: int) -> pa.DataType:
    above = _NESTED_ID_BASE + _NESTED_ID_STEP * around_id + depth
    below = _NESTED_ID_BASE - _NESTED_ID_STEP * around_id - depth
    match data_type:
        case ArrayType(element=element):
            return pa.list_(_numbered("element", element, above, around_id, depth))
        case MapType(key=key, value=value):
            key_part = _numbered("key", with_nullable(key, False), below, around_id, depth)
            map_type: pa.DataType = pa.map_(key_part, _numbered("value", value, above, around_id, depth))
            return map_type
        case RowType(fields=fields):
            return pa.struct([_numbered(child.name, child.type, child.id, child.id, 0) for child in fields])
    return arrow_type(data_type)
