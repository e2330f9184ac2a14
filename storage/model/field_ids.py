"""Hands out field ids.

A new top-level column takes its id first, then the ids of the rows nested in its type. Inside a ROW, the ids nested in
a child are handed out before the child's own: `r ROW<x, y ROW<p, q>, z>` with r = 30 gives x 31, p 32, q 33, y 34,
z 35. Ids are never reused within a table. Source: FORMAT.md §2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from freshet.storage.model.data_type import ArrayType, DataField, DataType, MapType, RowType


def assign_ids(columns: Sequence[DataField], first_free_id: int = 0) -> tuple[tuple[DataField, ...], int]:
    """Numbers columns, nested fields included, from `first_free_id` on; whatever ids they carry are replaced.

    Returns the columns and the highest id handed out (`first_free_id - 1` when there are no columns).
    """
    result = []
    free = first_free_id
    for column in columns:
        own = free
        nested, free = _assign(column.type, free + 1)
        result.append(replace(column, id=own, type=nested))
    return tuple(result), free - 1


def _assign(data_type: DataType, free: int) -> tuple[DataType, int]:
    match data_type:
        case ArrayType(element=element):
            assigned, free = _assign(element, free)
            return replace(data_type, element=assigned), free
        case MapType(key=key, value=value):
            assigned_key, free = _assign(key, free)
            assigned_value, free = _assign(value, free)
            return replace(data_type, key=assigned_key, value=assigned_value), free
        case RowType(fields=fields):
            children = []
            for child in fields:
                assigned, free = _assign(child.type, free)
                children.append(replace(child, id=free, type=assigned))
                free += 1
            return replace(data_type, fields=tuple(children)), free
    return data_type, free
