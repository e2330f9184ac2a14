"""Merge engine `deduplicate`: the newest row of a key stands, with its own kind and sequence number.

| newest row | read | compaction where no older row can lie below | otherwise |
|---|---|---|---|
| +I, +U | seen | written as it is | written as it is |
| -U, -D | key absent | removed | written: it hides older rows below |

With `ignore-delete`, retracts met while merging (files written before the option was set) are skipped; a key of which
nothing else is left has no result. A lone retract passes.

Source: MERGING.md §2.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshet.storage.merge.key_order import Flags, KeySegments
from freshet.storage.merge.merge_function import Decision, MergeFunction, StandingRows, retracts
from freshet.storage.merge.sort_words import Positions


@dataclass(frozen=True, slots=True)
class Deduplicate(MergeFunction):
    """The engine with its options."""

    ignore_delete: bool = False
    passes_lone_rows: bool = True

    @property
    def merges_in_stages(self) -> bool:
        return True

    def decide(self, segments: KeySegments, columns: tuple[str, ...]) -> Decision:
        winners = segments.last_rows
        if self.ignore_delete:
            is_retract = retracts(segments.rows)
            if is_retract.any():
                lone = segments.lone if self.passes_lone_rows else None
                winners = _newest_adds(segments, is_retract[segments.order], lone)
        return StandingRows(segments.rows, winners)


def _newest_adds(segments: KeySegments, is_retract: Flags, lone: Flags | None) -> Positions:
    """The newest row that is not a retract, or the lone row, of each key; -1 if there is none.

    `is_retract` is in row order.
    """
    if not len(segments.starts):
        return segments.order
    index = np.where(is_retract, -1, np.arange(len(is_retract)))
    newest = np.maximum.reduceat(index, segments.starts)
    if lone is not None:
        newest = np.where(lone, segments.starts, newest)
    return np.where(newest < 0, -1, segments.order[newest])
