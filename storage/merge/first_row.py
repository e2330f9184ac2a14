"""Merge engine `first-row`: the oldest row of a key stands, with its own kind and sequence number.

| rows of the key, oldest first | result |
|---|---|
| +I or +U first, more of them | the first |
| one row, where lone rows pass | that row, also a retract |
| a retract among them, `ignore-delete` | the first that is none; nothing if there is none |
| a retract among them otherwise | error: such a table takes no retract |

Writers refuse retracts before they are buffered (Apache Paimon lets a lone one pass and fails later), so the error
speaks of a file that somebody else wrote. Sequence fields are forbidden: oldest is by sequence number.

Which rows of level 0 are new is decided where level 0 is compacted: a key that exists above is left out there
(`lookup.higher_levels`). Readers take levels above 0 only, where each key stands once.

Source: LSM semantics §2.3, §4.4.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from freshet.storage.merge.key_order import Flags, KeySegments
from freshet.storage.merge.lookup_levels import stored_columns
from freshet.storage.merge.merge_function import MergeFunction, retracts
from freshet.storage.merge.refusal import MergedTable
from freshet.storage.merge.sort_words import Positions
from freshet.storage.merge.take import take_rows


@dataclass(frozen=True, slots=True)
class FirstRow(MergeFunction):
    """The engine with its options. `key_columns` and `table` are for messages."""

    key_columns: tuple[str, ...]
    ignore_delete: bool = False
    passes_lone_rows: bool = True
    table: str = "the table"

    @property
    def merges_in_stages(self) -> bool:
        return True

    def merge(
        self,
        segments: KeySegments,
        *,
        drop_delete: bool,
        columns: tuple[str, ...] | None = None,
        executor: Executor | None = None,
    ) -> pa.Table:
        winners = segments.order[segments.starts]
        is_retract = retracts(segments.rows)
        if is_retract.any():
            winners = self._oldest_adds(segments, is_retract[segments.order])
            if drop_delete:
                winners = winners[~is_retract[winners]]
        return take_rows(segments.rows, winners, columns or stored_columns(segments.rows), executor)

    def _oldest_adds(self, segments: KeySegments, is_retract: Flags) -> Positions:
        """The oldest row that is no retract, or the lone row, of each key. `is_retract` is in row order."""
        if not len(segments.starts):
            return segments.order
        passes = segments.lone if self.passes_lone_rows else np.zeros(len(segments.starts), np.bool_)
        offends = np.logical_or.reduceat(is_retract, segments.starts) & ~passes
        if offends.any() and not self.ignore_delete:
            row = int(segments.order[segments.starts[offends][0]])
            reason = "first-row takes no retract (-U, -D); set ignore-delete=true to pass over them"
            raise MergedTable(self.table, self.key_columns, frozenset()).refused(segments.rows, row, reason)
        nothing = len(is_retract)
        oldest = np.minimum.reduceat(np.where(is_retract, nothing, np.arange(nothing)), segments.starts)
        oldest = np.where(passes, segments.starts, oldest)
        return segments.order[oldest[oldest < nothing]]
