"""What makes a row of the table a dead letter, column by column, over whole columns at once.

| a dead letter names a column when | +I, +U, -U | -D |
|---|---|---|
| it is a key column and NULL | yes | yes |
| it is a sequence field and NULL | no: orders before every change that has one | yes: it would be the oldest change |
| it is a partition key, and its folder's name would be too long (`FolderRule`) | yes | yes |
| it is NOT NULL and NULL | yes, unless its stored value is kept | no: the zero of its type is written |

| sequence groups that the source fills | +I, +U | -U, -D |
|---|---|---|
| all ordering columns of a group are NULL, and another column of it is not | dead: never taken | no |
| no group has all of its ordering columns | no | dead: it would change nothing |

A deletion needs its vital columns alone: if it became a dead letter because of another value, its row would stay in the
table for good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.pipeline.decode.carriers import carrier_arrow_type
from freshet.pipeline.decode.change import DELETE, UPDATE_BEFORE
from freshet.pipeline.decode.convert.converter import Mask, null_mask
from freshet.pipeline.decode.plan import DecodePlan
from freshet.storage.codec.partition_names import FOLDER_NAME_BYTES_MAX
from freshet.storage.model.arrow_types import empty_value
from freshet.storage.options import SequenceGroup

KEY_NULL: Final = "NULL in a key column"
NOT_NULL: Final = "NULL in a NOT NULL column"
FOLDER_TOO_LONG: Final = f"the name of its partition's folder would have more than {FOLDER_NAME_BYTES_MAX} bytes"
SEQUENCE_NULL: Final = "the sequence field of a deletion is NULL: it would be ordered as the oldest change of its key"

Kinds = npt.NDArray[np.int8]


class Broken(Frozen):
    """One rule that some rows break: which, and what the dead letter says."""

    rows: Mask
    reason: str
    column: str


def broken_rules(
    plan: DecodePlan,
    columns: Sequence[pa.Array],
    kinds: Kinds,
    kept: Mapping[int, Mask],
    unknown: AbstractSet[int] = frozenset(),
) -> Iterator[Broken]:
    """The rules that rows break, the most specific first.

    `columns` are the table's by index, `kept` says where a column's stored value is kept, `unknown` are the indexes of
    columns that are not computed yet.
    """
    is_delete: Mask = kinds == DELETE
    for index, column in enumerate(plan.columns):
        array = columns[index]
        if index in unknown:
            continue
        name = column.field.name
        if column.folder is not None and (too_long := column.folder.too_long(array)) is not None:
            yield Broken(too_long, FOLDER_TOO_LONG, name)
        if not array.null_count:
            continue
        if column.is_key:
            yield Broken(null_mask(array), KEY_NULL, name)
            continue
        if column.is_sequence:
            yield Broken(null_mask(array) & is_delete, SEQUENCE_NULL, name)
        if not column.field.type.nullable:
            rows = null_mask(array) & ~is_delete
            if index in kept and not column.keeps_on_null:
                rows &= ~kept[index]
            yield Broken(rows, NOT_NULL, name)
    if plan.groups:
        yield from _broken_groups(plan, columns, kinds, kept, unknown)


def _broken_groups(
    plan: DecodePlan, columns: Sequence[pa.Array], kinds: Kinds, kept: Mapping[int, Mask], unknown: AbstractSet[int]
) -> Iterator[Broken]:
    indexes = {column.field.name: index for index, column in enumerate(plan.columns)}
    used = {indexes[name] for group in plan.groups for name in (*group.ordering, *group.protected) if name in indexes}
    if not used.isdisjoint(unknown):
        return
    is_retract: Mask = (kinds == DELETE) | (kinds == UPDATE_BEFORE)
    lacks_any = []
    for group in plan.groups:
        ordering = [null_mask(columns[indexes[name]]) for name in group.ordering]
        lacks_any.append(np.logical_or.reduce(ordering))
        lacks_all: Mask = np.logical_and.reduce(ordering) & ~is_retract
        if lacks_all.any():
            names = ", ".join(group.ordering)
            reason = f"NULL in the ordering of its sequence group ({names}): its values would never be taken"
            yield Broken(lacks_all & _has_value(group, columns, indexes, kept), reason, group.ordering[0])
    names = "; ".join(", ".join(group.ordering) for group in plan.groups)
    reason = f"NULL in the ordering of the sequence group ({names}): the deletion would change nothing"
    yield Broken(np.logical_and.reduce(lacks_any) & is_retract, reason, plan.groups[0].ordering[0])


def _has_value(
    group: SequenceGroup, columns: Sequence[pa.Array], indexes: Mapping[str, int], kept: Mapping[int, Mask]
) -> Mask:
    """True where the row has a value for a column of the group, or an unavailable one."""
    found: Mask = np.zeros(len(columns[0]), bool)
    for name in group.protected:
        index = indexes[name]
        found |= ~null_mask(columns[index])
        if index in kept:
            found |= kept[index]
    return found


def with_zeros(
    plan: DecodePlan, columns: Sequence[pa.Array], kinds: Kinds, unknown: AbstractSet[int]
) -> list[pa.Array]:
    """The columns, the zero of the type in NOT NULL columns of deletions that have no value there."""
    filled = list(columns)
    is_delete = kinds == DELETE
    if not is_delete.any():
        return filled
    for index, column in enumerate(plan.columns):
        array = columns[index]
        if index in unknown or column.is_key or column.field.type.nullable or not array.null_count:
            continue
        arrow = carrier_arrow_type(column.field.type)
        lacks = is_delete & null_mask(array)
        if lacks.any():
            zeros = pa.array([empty_value(column.field.type)], arrow)
            whole = pa.concat_arrays([array, zeros])
            filled[index] = whole.take(pa.array(np.where(lacks, len(array), np.arange(len(array)))))
    return filled
