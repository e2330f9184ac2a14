"""Columns of data files: which there are, in which order.

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

Source: FORMAT.md §2.2, §7.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.model.arrow_types import arrow_type
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
