"""The levels of a key's rows: the transient column that holds them, which rows count, and which one is the old row.

In a table that needs lookup every compaction of level 0 merges with the whole row found above, so that the lowest level
at or above 1 that has a key holds everything; a row at a higher level is a stale copy, and merging it again would count
it twice. In flushes, compactions and reads:

| rows of the key | what the engine merges, in merge order |
|---|---|
| buffer, level 0 | all of them |
| level 1 and above | the one of the lowest level |

The rule of the lone record looks at the rows before any is left out.

| changelog of | the old row |
|---|---|
| lookup compaction | the row of the lowest level at or above 1, an input or looked up and inserted among them |
| full compaction | the row of the highest level of the bucket |

An old row may be a retract; the caller decides whether that counts as none.

Source: MERGING.md §0, §2.7, §4.2, §4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.merge.key_order import Flags, KeySegments
from freshet.storage.merge.key_rows import last_marked, rows_at
from freshet.storage.merge.merge_function import LEVEL_COLUMN, Decision, PreviousRow, WrappedFunction
from freshet.storage.merge.sort_words import Positions

LEVEL_FIELD: Final = pa.field(LEVEL_COLUMN, pa.int8(), nullable=False)

R = TypeVar("R", pa.Table, pa.RecordBatch)

_NO_LEVEL: Final = np.int8(127)


@dataclass(frozen=True, slots=True)
class LookupLevels(WrappedFunction):
    """An engine that sees only the rows that count."""

    @property
    def reads_levels(self) -> bool:
        return True

    def decide(self, segments: KeySegments, columns: tuple[str, ...]) -> Decision:
        levels = _levels_in_order(segments)
        is_high = levels > 0
        if is_high.any():
            segments = with_rows(segments, ~is_high | _is_lowest(levels, segments))
        return self.function.decide(segments, columns)


def row_of_lowest_level(segments: KeySegments) -> Positions:
    """The row of each key of the lowest level at or above 1; -1 if all its rows are of level 0 or the buffer."""
    levels = _levels_in_order(segments)
    if not (levels > 0).any():
        return np.full(len(segments.starts), -1, np.int64)
    return _marked_rows(segments, _is_lowest(levels, segments))


def row_of_level(level: int) -> PreviousRow:
    """The rule by which the row of one level is the old one: the highest, for full compactions."""
    return lambda segments: _marked_rows(segments, _levels_in_order(segments) == level)


def with_rows(segments: KeySegments, kept: Flags) -> KeySegments:
    """The segments with some of their rows; `kept` is in row order. Keys that lose all rows are gone."""
    if kept.all():
        return segments
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
    starts = before[segments.starts]
    counts = before[segments.ends] - starts
    is_left = counts > 0
    never_lone = counts < segments.counts
    if segments.never_lone is not None:
        never_lone |= segments.never_lone
    return KeySegments(segments.rows, segments.order[kept], starts[is_left], never_lone[is_left])


def levels_of(rows: pa.Table) -> npt.NDArray[np.int8]:
    """The level of each row."""
    levels: npt.NDArray[np.int8] = rows.column(LEVEL_COLUMN).to_numpy()
    return levels


def with_level(rows: R, level: int) -> R:
    """The rows of one file or buffer, each with its level."""
    leveled: R = rows.append_column(LEVEL_FIELD, pa.array(np.full(rows.num_rows, level, np.int8)))
    return leveled


def with_levels(batches: Iterable[pa.RecordBatch], level: int) -> Iterator[pa.RecordBatch]:
    """Batches of one level."""
    return (with_level(batch, level) for batch in batches)


def _levels_in_order(segments: KeySegments) -> npt.NDArray[np.int8]:
    return levels_of(segments.rows)[segments.order]


def _is_lowest(levels: npt.NDArray[np.int8], segments: KeySegments) -> Flags:
    """True for rows of the lowest level at or above 1 that their key has; levels are in row order."""
    lowest = np.minimum.reduceat(np.where(levels > 0, levels, _NO_LEVEL), segments.starts)
    is_lowest: Flags = levels == np.repeat(lowest, segments.counts)
    return is_lowest


def _marked_rows(segments: KeySegments, marks: Flags) -> Positions:
    """The marked row of each key, -1 where there is none; `marks` is in row order."""
    return rows_at(segments.order, last_marked(marks, segments.starts, segments.ends))
