"""Which rows remove the record, in partial-update with sequence groups.

A -D removes the record if it is in order in a group that asks for it. From then on all groups hold what that row has,
so that what one group removes decides what is in order in the others. With one such group nothing changes for itself:
the row was the largest it had seen. With several, the keys that have such a -D are walked through, row by row.

Source: MERGING.md §2.5.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.key_rows import KeyRows
from freshet.storage.merge.sequence_groups import GroupOrder
from freshet.storage.model.row_kind import RowKind
from freshet.storage.options.engine import SequenceGroup


def rows_removing_records(
    keys: KeyRows, orders: Mapping[SequenceGroup, GroupOrder], is_start: Flags
) -> tuple[Flags, Flags]:
    """True for rows that remove the record, and for which keys they were found one by one."""
    deletes = keys.kinds == RowKind.DELETE
    removing = [order for group, order in orders.items() if group.removes_record]
    none = np.zeros(keys.key_count, np.bool_)
    if not removing or not deletes.any():
        return np.zeros(len(deletes), np.bool_), none
    if len(removing) == 1:
        # A row that removes the record is the largest its group has seen, so the group goes on as without the removal.
        return deletes & removing[0].in_order(is_start), none
    candidates = deletes & np.logical_or.reduce([order.present for order in removing])
    if not candidates.any():
        return candidates, none
    looped = np.logical_or.reduceat(candidates, keys.starts)
    removes = np.zeros(len(deletes), np.bool_)
    for first, end in zip(keys.starts[looped].tolist(), keys.ends[looped].tolist(), strict=True):
        indices = np.arange(first, end)
        rows = list(zip(*(order.numbers_at(indices) for order in removing), strict=True))
        removes[first:end] = _removing_rows(deletes[first:end].tolist(), rows)
    return removes, looped


def _removing_rows(deletes: list[bool], rows: list[tuple[int, ...]]) -> list[bool]:
    """Which rows of one key remove the record; `rows` has the number of each group that removes, -1 for no event."""
    held = [-1] * len(rows[0])
    removes = []
    for is_delete, numbers in zip(deletes, rows, strict=True):
        in_order = [0 <= number >= holds for number, holds in zip(numbers, held, strict=True)]
        removes.append(is_delete and any(in_order))
        if removes[-1] or len(removes) == 1:
            held = list(numbers)
        else:
            held = [n if follows else h for n, h, follows in zip(numbers, held, in_order, strict=True)]
    return removes
