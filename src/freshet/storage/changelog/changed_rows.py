"""The changelog rows of keys whose rows before and after a merge are known.

| row before | row after | changelog rows, in key order |
|---|---|---|
| nothing, or a retract | nothing, or a retract | none |
| nothing, or a retract | a row | +I the new row |
| a row | nothing, or a retract | -D the old row |
| a row | a row | -U the old row, then +U the new one |

Each changelog row has the sequence number of its record: the old one's, or that of the merged one. The values of -D are
those of the old row, whatever the delete brought.

Source: MERGING.md §4.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.merge.gather import joined_rows, take_rows
from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.merge_function import Merged, PreviousRow, retracts, without_retracts
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import VALUE_KIND_COLUMN

_KIND_TYPE: Final = pa.int8()


class CompactionChangelog(Protocol):
    """What a compaction emits of its changes."""

    @property
    def previous_row(self) -> PreviousRow:
        """Which of a key's rows is the old one; a merge must get this rule before its changes are asked for."""
        ...

    def changes(self, merged: Merged) -> pa.Table:
        """The changelog rows of a round of merging, in key order; system columns first."""
        ...


class Unchanged(Protocol):
    """Compares pairs of rows."""

    def pairs(self, old: pa.Table, old_rows: Positions, new: pa.Table, new_rows: Positions) -> Flags:
        """True where `old[old_rows[i]]` is the same as `new[new_rows[i]]`."""
        ...


def changed_rows(merged: Merged, touched: Flags, unchanged: Unchanged | None = None) -> pa.Table:
    """The changelog rows of the keys touched, by the table above; of updates that are `unchanged` none."""
    has_new = touched & without_retracts(merged.kinds)
    has_old = touched & (merged.previous >= 0)
    if has_old.any():
        has_old &= ~retracts(merged.segments.rows)[merged.previous]
    updates = has_old & has_new
    if unchanged is not None and updates.any():
        before, after = merged.previous[updates], merged.positions[updates]
        emits = ~unchanged.pairs(merged.segments.rows, before, merged.rows, after)
        has_old[updates] = emits
        has_new[updates] = emits
    return _joined(merged, has_old, has_new)


def with_kind(rows: pa.Table, kinds: npt.NDArray[np.int8]) -> pa.Table:
    """The rows with other kinds."""
    index = rows.schema.get_field_index(VALUE_KIND_COLUMN)
    return rows.set_column(index, rows.schema.field(index), pa.array(kinds, _KIND_TYPE))


def _joined(merged: Merged, old: Flags, new: Flags) -> pa.Table:
    """The old rows of some keys and the new rows of some keys, the old one of a key first."""
    after = take_rows(merged.rows, merged.positions[new])
    kinds_after = np.where(old[new], RowKind.UPDATE_AFTER, RowKind.INSERT).astype(np.int8)
    if not old.any():
        return with_kind(after, kinds_after)
    before = take_rows(merged.segments.rows, merged.previous[old], merged.rows.column_names)
    kinds_before = np.where(new[old], RowKind.UPDATE_BEFORE, RowKind.DELETE).astype(np.int8)
    ends = np.cumsum(old.astype(np.int64) + new)
    # A key's last row is the new one where it has one; the old row is right before it.
    positions = np.concatenate([ends[old] - 1 - new[old], ends[new] - 1])
    order = np.empty(len(positions), np.int64)
    order[positions] = np.arange(len(positions))
    joined = take_rows(joined_rows(before, after, after.schema), order)
    return with_kind(joined, np.concatenate([kinds_before, kinds_after])[order])
