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

Source: MERGING.md §2.3, §4.4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshet.storage.merge.key_order import Flags, KeySegments
from freshet.storage.merge.merge_error import MergedTable
from freshet.storage.merge.merge_function import Decision, MergeFunction, StandingRows, retracts
from freshet.storage.merge.sort_words import Positions


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

    def decide(self, segments: KeySegments, columns: tuple[str, ...]) -> Decision:
        winners = segments.order[segments.starts]
        is_retract = retracts(segments.rows)
        if is_retract.any():
            winners = self._oldest_adds(segments, is_retract[segments.order])
        return StandingRows(segments.rows, winners)

    def _oldest_adds(self, segments: KeySegments, is_retract: Flags) -> Positions:
        """The oldest row that is not a retract, or the lone row, of each key; -1 if there is none.

        `is_retract` is in row order.
        """
        if not len(segments.starts):
            return segments.order
        passes = segments.lone if self.passes_lone_rows else np.zeros(len(segments.starts), np.bool_)
        offends = np.logical_or.reduceat(is_retract, segments.starts) & ~passes
        if offends.any() and not self.ignore_delete:
            row = int(segments.order[segments.starts[offends][0]])
            reason = "first-row takes no retract (-U, -D); set ignore-delete=true to pass over them"
            raise MergedTable(self.table, self.key_columns, frozenset()).merge_error(segments.rows, row, reason)
        nothing = len(is_retract)
        oldest = np.minimum.reduceat(np.where(is_retract, nothing, np.arange(nothing)), segments.starts)
        oldest = np.where(passes, segments.starts, oldest)
        rows = segments.order.take(oldest, mode="clip")
        rows[oldest == nothing] = -1
        return rows
