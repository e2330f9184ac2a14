"""Field ids as data files carry them: every column and every part of a nested type has one.

`_KEY_<c>` has 1073741823 + the id of c. Parts of nested types that have no id of their own get one from the field
around them (id, with depth counting lists and maps since that field, from 1):

| part | id |
|---|---|
| list element, map value | 536870911 + 1024 * id + depth |
| map key | 536870911 - 1024 * id - depth |

Source: FORMAT.md §2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import ArrayType, DataField, DataType, MapType, RowType, with_nullable

_NESTED_ID_BASE: Final = 536870911
_NESTED_ID_STEP: Final = 1024


@dataclass(frozen=True, slots=True)
class NumberedFields:
    """Arrow fields whose metadata has their id under `id_key`, from which a writer takes names, types and ids."""

    id_key: bytes
    scalar_type: Callable[[DataType], pa.DataType] = arrow_type
    keeps_not_null: bool = True

    def schema(self, fields: Iterable[DataField]) -> pa.Schema:
        """The columns of a file."""
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
