"""Results that stay as they are when they are merged again alone: what a changelog emits is what readers will see.

A compaction with lookup merges every key of its inputs, also those that level 0 does not bring, of which it emits
nothing; and a reader merges the rows that several levels have of a key. So a row whose merge with nothing gives
another row would change some time later, and no changelog would have it:

| result of the first merge | merged again alone |
|---|---|
| `nested_update`: a late array on nothing, as it came | without NULL rows, repeated keys, rows beyond the limit |
| `nested_partial_update`: the same | without NULL rows and repeated keys |
| what a leading retract has set, then an add that is no event of the group | NULL |

Therefore such results are merged once more before they are emitted and written. Merging a third time changes nothing.
Apache Paimon writes and emits the first result, and its table goes on to the second without a changelog.

Source: MERGING.md §2.5, §2.6, §4.3.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from freshet.storage.merge.gather import joined_rows, take_rows
from freshet.storage.merge.key_order import Flags, KeySegments
from freshet.storage.merge.merge_function import (
    Keep,
    Merged,
    MergeFunction,
    PreviousRow,
    WrappedFunction,
    no_previous_row,
    retracts,
    stored_columns,
    without_retracts,
)
from freshet.storage.merge.sort_words import Positions


@dataclass(frozen=True, slots=True)
class IdempotentMerge(WrappedFunction):
    """A function whose results are merged with nothing by `engine`, which passes no lone row."""

    engine: MergeFunction
    takes_adds: bool
    """True where adds alone can leave such a result; else only keys with a retract are looked at."""

    def merge(
        self,
        segments: KeySegments,
        *,
        columns: tuple[str, ...] | None = None,
        keep: Keep | None = None,
        previous_row: PreviousRow = no_previous_row,
        executor: Executor | None = None,
    ) -> Merged:
        """The merge of any function; `columns` must be such that rows can be merged again (`columns_needed`)."""
        merged = self.function.merge(segments, columns=columns, keep=keep, previous_row=previous_row, executor=executor)
        unstable = self._may_change(segments) & (merged.positions >= 0) & without_retracts(merged.kinds)
        if not unstable.any():
            return merged
        positions = merged.positions[unstable]
        again = take_rows(merged.rows, positions, executor=executor)
        each = np.arange(len(positions))
        alone = KeySegments(again, each, each)
        stable = self.engine.merge(alone, columns=stored_columns(again), executor=executor).rows
        return replace(merged, rows=_replaced(merged.rows, positions, stable, executor))

    def _may_change(self, segments: KeySegments) -> Flags:
        """Keys of several rows, of which maybe one has to be a retract."""
        several = segments.counts > 1
        if self.takes_adds or not several.any():
            return several
        several &= np.logical_or.reduceat(retracts(segments.rows)[segments.order], segments.starts)
        return several


def _replaced(rows: pa.Table, positions: Positions, others: pa.Table, executor: Executor | None) -> pa.Table:
    """The rows, with others at these positions."""
    order = np.arange(rows.num_rows)
    order[positions] = rows.num_rows + np.arange(len(positions))
    return take_rows(joined_rows(rows, others, rows.schema), order, executor=executor)
