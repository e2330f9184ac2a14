"""Merge engine `deduplicate`: the newest row of a key stands, with its own kind and sequence number.

| newest row | read | compaction, drop_delete | otherwise |
|---|---|---|---|
| +I, +U | seen | written as it is | written as it is |
| -U, -D | key absent | removed | written: it hides older rows below |

With `ignore-delete`, retracts met while merging (files written before the option was set) are skipped; a key of which
nothing else is left has no result. A lone retract passes.

Source: LSM semantics §2.2.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from freshet.storage.merge.key_order import Flags, KeySegments
from freshet.storage.merge.merge_function import MergeFunction, retracts
from freshet.storage.merge.sort_words import Positions
from freshet.storage.merge.take import take_rows


@dataclass(frozen=True, slots=True)
class Deduplicate(MergeFunction):
    """The engine with its options."""

    ignore_delete: bool = False
    passes_lone_rows: bool = True

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
        winners = segments.last_rows
        if drop_delete or self.ignore_delete:
            is_retract = retracts(segments.rows)
            if is_retract.any():
                if self.ignore_delete:
                    lone = segments.lone if self.passes_lone_rows else None
                    winners = _newest_adds(segments, is_retract[segments.order], lone)
                if drop_delete:
                    winners = winners[~is_retract[winners]]
        return take_rows(segments.rows, winners, columns, executor)


def _newest_adds(segments: KeySegments, is_retract: Flags, lone: Flags | None) -> Positions:
    """The newest row that is no retract, or the lone row, of each key that has one. `is_retract` is in row order."""
    if not len(segments.starts):
        return segments.order
    index = np.where(is_retract, -1, np.arange(len(is_retract)))
    newest = np.maximum.reduceat(index, segments.starts)
    if lone is not None:
        newest = np.where(lone, segments.starts, newest)
    return segments.order[newest[newest >= 0]]
