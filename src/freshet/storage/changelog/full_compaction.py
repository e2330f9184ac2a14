"""Changelog producer `full-compaction`: a compaction to the highest level compares with the row that was there.

Old is the row of the highest level: the state that the last full compaction left. New is what the engine makes of all
rows of the key, a key with one row passing as it is.

| rows of the key | old | new | changelog |
|---|---|---|---|
| one, at the highest level | that row | that row | none |
| one, below | none | a row | +I new |
| one, below | none | a retract | none |
| several | none | a row | +I new |
| several | none | none, or a retract | none |
| several | a row | none, or a retract | -D old |
| several | a row | a row | -U old, +U new; with row-deduplicate none where both are the same |

Compactions to lower levels emit nothing: the next full one emits what they merge. A file that moves to the highest
level as it is holds no retract and no key of that level: its rows are +I. The files belong to the COMPACT snapshot.

Source: MERGING.md §4.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from freshet.storage.changelog.changed_rows import Unchanged, changed_rows
from freshet.storage.changelog.lookup import lowest_levels
from freshet.storage.merge.merge_function import Merged, PreviousRow
from freshet.storage.merge.row_levels import row_of_level


@dataclass(frozen=True, slots=True)
class FullCompactionChangelog:
    """A `CompactionChangelog` of compactions to `max_level`."""

    max_level: int
    unchanged: Unchanged | None = None

    @property
    def previous_row(self) -> PreviousRow:
        return row_of_level(self.max_level)

    def changes(self, merged: Merged) -> pa.Table:
        return changed_rows(merged, lowest_levels(merged.segments) < self.max_level, self.unchanged)
