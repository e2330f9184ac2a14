"""Which rows of a key count in a table that needs lookup, and the transient column that tells their levels.

In such a table every compaction of level 0 merges with the whole row found above, so that the lowest level at or above
1 that has a key holds everything; what stands higher is a stale copy, and merging it again would count it twice.

| rows of the key | what the engine merges, in merge order |
|---|---|
| buffer, level 0 | all of them |
| level 1 and above | the one of the lowest level |

The rule of the lone record looks at the rows before any is left out. Holds for flushes, compactions and reads.

Source: MERGING.md §0, §2.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.merge.key_order import Flags, KeySegments
from freshet.storage.merge.merge_function import LEVEL_COLUMN, Decision, MergeFunction

LEVEL_FIELD: Final = pa.field(LEVEL_COLUMN, pa.int8(), nullable=False)

R = TypeVar("R", pa.Table, pa.RecordBatch)

_NO_LEVEL: Final = np.int8(127)


@dataclass(frozen=True, slots=True)
class LookupLevels(MergeFunction):
    """An engine that sees only the rows that count."""

    function: MergeFunction

    @property
    def passes_lone_rows(self) -> bool:
        return self.function.passes_lone_rows

    @property
    def merges_in_stages(self) -> bool:
        return self.function.merges_in_stages

    @property
    def reads_levels(self) -> bool:
        return True

    def columns_needed(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        return self.function.columns_needed(columns)

    def decide(self, segments: KeySegments, columns: tuple[str, ...]) -> Decision:
        return self.function.decide(without_stale_rows(segments), columns)


def without_stale_rows(segments: KeySegments) -> KeySegments:
    """Of each key the rows at level 0 or below and the one of the lowest level above, in order."""
    levels = levels_of(segments.rows)[segments.order]
    is_high = levels > 0
    if not is_high.any():
        return segments
    lowest = np.minimum.reduceat(np.where(is_high, levels, _NO_LEVEL), segments.starts)
    return with_rows(segments, ~is_high | (levels == np.repeat(lowest, segments.counts)))


def with_rows(segments: KeySegments, kept: Flags) -> KeySegments:
    """The segments with some of their rows; `kept` is in row order. Keys that lose all rows are gone."""
    if kept.all():
        return segments
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
    starts = before[segments.starts]
    counts = np.append(starts[1:], before[-1]) - starts
    had = segments.counts
    is_left = counts > 0
    never_lone = counts < had if segments.never_lone is None else segments.never_lone | (counts < had)
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
