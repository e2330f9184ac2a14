"""Nested Arrow arrays taken apart into their children, and the same nesting put around others.

| array | children | offsets |
|---|---|---|
| ROW, struct | one for each field, NULL where the row is | None |
| ARRAY, list | the elements | value i has those from `offsets[i]` to `offsets[i + 1]` |
| MAP, map | the keys, the values | the same |

Children hold what the values hold and no more: of a slice its own part only, and nothing of what Arrow lets lie hidden
under a NULL. So offsets begin at 0, and every element of a child belongs to a value. Nothing is copied, except where
something lies hidden. The children of a column type are `data_type.child_types`, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from freshet._frozen import Frozen

Offsets = npt.NDArray[np.int32]


class Nested(Frozen):
    """An array of structs, lists or maps, taken apart."""

    array: pa.Array[Any]
    children: tuple[pa.Array[Any], ...]
    offsets: Offsets | None

    @classmethod
    def of(cls, array: pa.Array[Any]) -> Nested:
        """Takes one level apart; the children may be nested themselves."""
        if pt.is_struct(array.type):
            return cls(array, tuple(array.flatten()), None)
        offsets = array.offsets.to_numpy()
        if array.null_count and ((offsets[1:] != offsets[:-1]) & array.is_null().to_numpy(zero_copy_only=False)).any():
            array = array.take(pa.array(np.arange(len(array))))  # leaves out what lies under a NULL
            offsets = array.offsets.to_numpy()
        first, end = int(offsets[0]), int(offsets[-1])
        raw = (array.keys, array.items) if pt.is_map(array.type) else (array.values,)
        return cls(array, tuple(child.slice(first, end - first) for child in raw), offsets - first)

    @property
    def parents(self) -> npt.NDArray[np.int64]:
        """For each element of a list or map, the index of its value."""
        assert self.offsets is not None
        return np.repeat(np.arange(len(self.array)), np.diff(self.offsets))

    def over(self, children: Sequence[pa.Array[Any]], arrow_type: pa.DataType) -> pa.Array[Any]:
        """The same values with other children; `arrow_type` may be a list where the array is a map."""
        valid = self.array.is_valid().buffers()[1] if self.array.null_count else None
        if valid is not None and self.offsets is None:
            children = [self._some_value(child, field) for child, field in zip(children, arrow_type, strict=True)]
        return assembled(arrow_type, len(self.array), valid, self.offsets, children)

    def _some_value(self, child: pa.Array[Any], field: pa.Field) -> pa.Array[Any]:
        """A field that is NOT NULL has some value under a NULL row too: Parquet is not written otherwise."""
        if field.nullable or not child.null_count:
            return child
        empty = pa.array([None], pa.struct([field])).field(0)[0]
        return pc.if_else(self.array.is_null(), empty, child)

    def lists(self, elements: pa.Array[Any]) -> pa.Array[Any]:
        """A list for each list or map, of one element for each that it has."""
        return self.over([elements], pa.list_(elements.type))


def assembled(
    arrow_type: pa.DataType,
    count: int,
    valid: pa.Buffer | None,
    offsets: Offsets | None,
    children: Sequence[pa.Array[Any]],
) -> pa.Array[Any]:
    """So many structs, lists or maps of these children; `valid` are bits, None where no value is NULL."""
    if offsets is None:
        return pa.Array.from_buffers(arrow_type, count, [valid], children=list(children))
    if pt.is_map(arrow_type):
        entries = pa.struct([arrow_type.key_field, arrow_type.item_field])
        children = [pa.Array.from_buffers(entries, len(children[0]), [None], children=list(children))]
    return pa.Array.from_buffers(arrow_type, count, [valid, pa.py_buffer(offsets)], children=list(children))


def converted(
    array: pa.Array[Any], arrow_type: pa.DataType, convert: Callable[[pa.Array[Any], pa.DataType], pa.Array[Any]]
) -> pa.Array[Any]:
    """The array in another type of the same nesting, each child by `convert(child, type)`."""
    nested = Nested.of(array)
    fields = child_fields(arrow_type)
    children = [convert(child, field.type) for child, field in zip(nested.children, fields, strict=True)]
    return nested.over(children, arrow_type)


def with_hidden_values(array: pa.Array[Any], arrow_type: pa.DataType) -> pa.Array[Any]:
    """The array in a type that differs in NOT NULL alone: fields that are NOT NULL have some value under a NULL row.

    No field that is NOT NULL may be NULL in a row that is there.
    """
    return converted(array, arrow_type, with_hidden_values) if pt.is_nested(arrow_type) else array


def has_not_null_parts(arrow_type: pa.DataType) -> bool:
    """Whether a field or element of it is NOT NULL; keys of maps do not count."""
    if not pt.is_nested(arrow_type):
        return False
    fields = child_fields(arrow_type)[1 if pt.is_map(arrow_type) else 0 :]
    return any(not field.nullable or has_not_null_parts(field.type) for field in fields)


def all_nullable(arrow_type: pa.DataType) -> pa.DataType:
    """The type with fields and elements that may be NULL, at every depth."""
    if not pt.is_nested(arrow_type):
        return arrow_type
    fields = [field.with_type(all_nullable(field.type)).with_nullable(True) for field in child_fields(arrow_type)]
    if pt.is_struct(arrow_type):
        return pa.struct(fields)
    if pt.is_map(arrow_type):
        return pa.map_(fields[0].with_nullable(False), fields[1])
    return pa.list_(fields[0])


def child_fields(arrow_type: pa.DataType) -> list[pa.Field]:
    """The fields of the children."""
    if pt.is_map(arrow_type):
        return [arrow_type.key_field, arrow_type.item_field]
    return [arrow_type.field(index) for index in range(arrow_type.num_fields)]
