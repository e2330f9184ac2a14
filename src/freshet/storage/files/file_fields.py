"""Columns of data files: which there are, in which order.

    primary-key file   `_KEY_<c>` of each trimmed key column (not in thin mode), `_SEQUENCE_NUMBER`, `_VALUE_KIND`,
                       then all columns of the table
    append file        all columns of the table

Source: FORMAT.md §2.2, §7.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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

_NANO_PRECISION_MIN: Final = 7


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
    match data_type:
        case ArrayType(element=element):
            return _has_nanos(element)
        case MapType(key=key, value=value):
            return _has_nanos(key) or _has_nanos(value)
        case RowType(fields=fields):
            return has_nano_timestamps(fields)
    return is_nano_timestamp(data_type)
