"""Changelog producer `lookup`: a compaction of level 0 compares with the row that was above it.

Old is the row of the lowest level at or above 1 among the compaction's inputs; where none of them has the key, the one
that was looked up above the output level. New is what the engine makes of the rows of level 0 and the old one; no row
passes unmerged.

| level 0 has the key | old | new | changelog |
|---|---|---|---|
| no | any | any | none |
| yes | none, or a retract | a row | +I new |
| yes | none, or a retract | none, or a retract | none |
| yes | a row | none, or a retract | -D old |
| yes | a row | a row | -U old, +U new; with row-deduplicate none where both are the same |

First-row: a key that is at any level above is not new.

| inputs have the key above level 0, or it was found above | result | changelog |
|---|---|---|
| yes | the old row | none |
| no | the first row | +I that row |

The files belong to the COMPACT snapshot. A row of level 0 is compacted once: two compactions that take it conflict.

Apache Paimon emits a first row that was written as +U as +U, although nothing came before it.

Source: MERGING.md §4.3, §4.4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from freshet.storage.changelog.changed_rows import Unchanged, changed_rows
from freshet.storage.merge.key_order import KeySegments
from freshet.storage.merge.merge_function import Merged, PreviousRow
from freshet.storage.merge.row_levels import levels_of, row_of_lowest_level
from freshet.storage.merge.sort_words import Positions


@dataclass(frozen=True, slots=True)
class LookupChangelog:
    """A `CompactionChangelog` of every engine but first-row."""

    unchanged: Unchanged | None = None

    @property
    def previous_row(self) -> PreviousRow:
        return row_of_lowest_level

    def changes(self, merged: Merged) -> pa.Table:
        return changed_rows(merged, lowest_levels(merged.segments) <= 0, self.unchanged)


@dataclass(frozen=True, slots=True)
class FirstRowChangelog:
    """A `CompactionChangelog` of first-row tables; keys found above were left out before the merge."""

    @property
    def previous_row(self) -> PreviousRow:
        return row_of_lowest_level

    def changes(self, merged: Merged) -> pa.Table:
        return changed_rows(merged, merged.previous < 0)


def lowest_levels(segments: KeySegments) -> Positions:
    """By key: the lowest level that has a row of it; level 0 and the buffer are 0 or less."""
    if not len(segments.starts):
        return np.zeros(0, np.int64)
    lowest: Positions = np.minimum.reduceat(levels_of(segments.rows)[segments.order], segments.starts)
    return lowest
