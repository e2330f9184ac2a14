"""Merge engines `deduplicate` and `first-row`: one of a key's rows is chosen, with its own kind and sequence number.

| rows of the key | `deduplicate`: the newest row | `first-row`: the oldest row |
|---|---|---|
| adds only | the newest | the oldest |
| one row, where lone rows pass | that row, also a retract | that row, also a retract |
| a retract among them, `ignore-delete` | the newest add, or nothing | the oldest add, or nothing |
| a retract among them otherwise | the newest, also a retract | error: such a table takes no retract |

A retract that is chosen is absent for readers; a compaction removes it where no older row can lie below, else writes
it: it hides older rows.

With `ignore-delete`, retracts are met in files written before the option was set. Writers refuse the retracts that
first-row does not take before they are buffered (Apache Paimon lets a lone one pass and fails later), so the error is
about a file of another writer. Sequence fields are forbidden there: oldest is by sequence number. Which rows of level 0
are new is decided where level 0 is compacted: a key that exists above is left out there (`lookup.run_lookup`).
Readers take levels above 0 only, where each key is once.

Source: MERGING.md §2.2, §2.3, §4.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.merge.gather import take_rows
from freshet.storage.merge.key_order import Flags, KeySegments
from freshet.storage.merge.key_rows import first_marked, last_marked, rows_at
from freshet.storage.merge.merge_function import NO_ROW, Decision, MergeFunction, RowKinds, kinds_of, retracts
from freshet.storage.merge.merged_table import MergedTable
from freshet.storage.merge.sort_words import Positions


class ChosenRows(Frozen, dict=True):
    """A `Decision`: the position in `table` of the row chosen of each key, -1 where none is."""

    table: pa.Table
    chosen: Positions

    @cached_property
    def kinds(self) -> RowKinds:
        """The kind of each row chosen."""
        kinds: RowKinds = kinds_of(self.table).take(self.chosen, mode="wrap")
        is_missing = self.chosen < 0
        if is_missing.any():
            kinds[is_missing] = NO_ROW
        return kinds

    def rows(self, kept: Flags | None, columns: Sequence[str], executor: Executor | None) -> pa.Table:
        """The rows chosen, of the keys kept."""
        chosen = self.chosen if kept is None else self.chosen[kept]
        is_missing = chosen < 0
        if is_missing.any():
            chosen = chosen[~is_missing]
        return take_rows(self.table, chosen, columns, executor)


@dataclass(frozen=True, slots=True)
class Deduplicate(MergeFunction):
    """The engine with its options."""

    ignore_delete: bool = False
    passes_lone_rows: bool = True

    @property
    def merges_in_stages(self) -> bool:
        return True

    def decide(self, segments: KeySegments, columns: tuple[str, ...]) -> Decision:
        chosen = segments.last_rows
        if self.ignore_delete and (is_retract := retracts(segments.rows)).any():
            newest = last_marked(~is_retract[segments.order], segments.starts, segments.ends)
            chosen = _or_lone_rows(segments, newest, passes=self.passes_lone_rows)
        return ChosenRows(segments.rows, chosen)


@dataclass(frozen=True, slots=True)
class FirstRow(MergeFunction):
    """The engine with its options."""

    table: MergedTable
    ignore_delete: bool = False
    passes_lone_rows: bool = True

    @property
    def merges_in_stages(self) -> bool:
        return True

    def decide(self, segments: KeySegments, columns: tuple[str, ...]) -> Decision:
        chosen = segments.order[segments.starts]
        is_retract = retracts(segments.rows)
        if is_retract.any():
            oldest = first_marked(~is_retract[segments.order], segments.starts, segments.ends)
            chosen = _or_lone_rows(segments, oldest, passes=self.passes_lone_rows)
            self._check(segments, is_retract[segments.order])
        return ChosenRows(segments.rows, chosen)

    def _check(self, segments: KeySegments, is_retract: Flags) -> None:
        """Refuses keys with a retract, unless it is ignored or a lone row that passes; flags are in row order."""
        if self.ignore_delete or not len(segments.starts):
            return
        offends = np.logical_or.reduceat(is_retract, segments.starts)
        if self.passes_lone_rows:
            offends &= ~segments.lone
        if offends.any():
            row = int(segments.order[segments.starts[offends][0]])
            reason = "first-row takes no retract (-U, -D); set ignore-delete=true to pass over them"
            raise self.table.merge_error(segments.rows, row, reason)


def _or_lone_rows(segments: KeySegments, found: Positions, *, passes: bool) -> Positions:
    """The rows at these indices in row order, -1 for -1; where lone rows pass, those of keys with one row."""
    return rows_at(segments.order, np.where(segments.lone, segments.starts, found) if passes else found)
