"""Which row of a key stood before a merge, by the levels of its rows: rules for those who make changelogs.

| changelog of | the row that stood before |
|---|---|
| lookup compaction | the row of the lowest level at or above 1, an input or looked up and inserted among them |
| full compaction | the row of the highest level of the bucket |

A row that stood may be a retract; the caller decides whether that counts as none.

Source: MERGING.md §4.2, §4.3.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from freshet.storage.merge.key_order import Flags, KeySegments
from freshet.storage.merge.key_rows import last_marked
from freshet.storage.merge.lookup_levels import levels_of
from freshet.storage.merge.merge_function import PreviousRow
from freshet.storage.merge.sort_words import Positions

_NO_LEVEL: Final = np.int8(127)


def row_of_lowest_level(segments: KeySegments) -> Positions:
    """Of each key the row of the lowest level at or above 1; -1 if all its rows are of level 0 or the buffer."""
    levels = levels_of(segments.rows)[segments.order]
    is_higher = levels > 0
    if not is_higher.any():
        return np.full(len(segments.starts), -1, np.int64)
    lowest = np.minimum.reduceat(np.where(is_higher, levels, _NO_LEVEL), segments.starts)
    return _marked_rows(segments, levels == np.repeat(lowest, segments.counts))


def row_of_level(level: int) -> PreviousRow:
    """The rule by which the row of one level is the one that stood: the highest, for full compactions."""

    def rule(segments: KeySegments) -> Positions:
        return _marked_rows(segments, levels_of(segments.rows)[segments.order] == level)

    return rule


def _marked_rows(segments: KeySegments, marks: Flags) -> Positions:
    """The marked row of each key, -1 where there is none; `marks` is in row order."""
    found = last_marked(marks, segments.starts, segments.starts + segments.counts)
    rows = segments.order.take(found, mode="wrap")
    rows[found < 0] = -1
    return rows
