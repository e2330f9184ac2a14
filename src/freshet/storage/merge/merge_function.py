"""What a merge engine is to the merge: rows of each key in order go in; out come the results, and what became of keys.

A merge has two steps. The engine decides for all keys at once (`decide`): which rows or values are the result, and its
row kind. Then the rows that the caller keeps are gathered. Engines know nothing of dropping deletes: a caller that
wants only adds says `keep=without_retracts`, and retracts are never gathered.

The rule of the lone record holds for every engine: a key with exactly one row passes as it is, with its kind, its
sequence number and its nulls, and the function is not asked. (The compaction of a table that needs lookup has no such
rule; its function says so by `passes_lone_rows = False`.)

`Merged` reports for each key, also where nothing or a retract results, all that a changelog needs:

| keys of the segments | 1 | 2 | 3 | 4 |
|---|---|---|---|---|
| rows (old: the one before the merge) | old, +I | +I | old, -D | -D (ignored) |
| `kinds` | +I | +I | -D | `NO_ROW` |
| `positions` in `rows`, retracts kept | 0 | 1 | 2 | -1 |
| `positions` in `rows`, `keep=without_retracts` | 0 | 1 | -1 | -1 |
| `previous` in `segments.rows` | old | -1 | old | -1 |

Source: MERGING.md §0, §2.1, §2.7, §4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.merge.key_order import Flags, KeySegments
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import VALUE_KIND_COLUMN

LEVEL_COLUMN: Final = "_LEVEL"
"""Level of the file a row comes from, int8; 0 or less for level 0 and the buffer. Only while rows are merged, and only
for functions that read levels; the callers add it."""

RowKinds = npt.NDArray[np.int8]
"""A row kind per key, as `RowKind` numbers them; `NO_ROW` where a key has no result."""

NO_ROW: Final = -1

Keep = Callable[[RowKinds], Flags]
"""Which keys' rows are wanted, by the kind of their result. Never those without one."""

PreviousRow = Callable[[KeySegments], Positions]
"""Which row of each key is the old one, of before the merge, as a position in the segments' rows; -1 for none."""


class Decision(Protocol):
    """What an engine has decided for the keys of some segments."""

    @property
    def kinds(self) -> RowKinds:
        """The kind of each key's result."""
        ...

    def rows(self, kept: Flags | None, columns: Sequence[str], executor: Executor | None) -> pa.Table:
        """The results of the keys kept (None: of all that have one), in key order, with these columns.

        `executor` works on columns in parallel. Raises `InvalidRequestError` for rows that cannot be merged.
        """
        ...


def no_previous_row(segments: KeySegments) -> Positions:
    """No key had a row before: for merges whose changes are not needed."""
    return np.full(len(segments.starts), -1, np.int64)


class Merged(Frozen, dict=True):
    """The results of a merge, and what became of each key. Each is computed when it is first asked for."""

    rows: pa.Table
    """Results of the keys kept, in key order, without `LEVEL_COLUMN`."""
    segments: KeySegments
    """What was merged, with the rows that did not count."""
    decision: Decision
    kept: Flags | None
    previous_row: PreviousRow

    @property
    def kinds(self) -> RowKinds:
        """By key: the kind of the result, also where it was not kept; `NO_ROW` where nothing results."""
        return self.decision.kinds

    @cached_property
    def positions(self) -> Positions:
        """By key: the position of the result in `rows`; -1 where nothing results or it was not kept."""
        has_row = self.kinds != NO_ROW
        if self.kept is not None:
            has_row &= self.kept
        return np.where(has_row, np.cumsum(has_row) - 1, -1)

    @cached_property
    def previous(self) -> Positions:
        """By key: the position in `segments.rows` of the old row; -1 where there is none."""
        return self.previous_row(self.segments)


class MergeFunction(Protocol):
    """One merge engine with its options. Engines derive from it and say only where they are not as most are."""

    @property
    def passes_lone_rows(self) -> bool:
        """True if a key with one row is not merged."""
        ...

    @property
    def merges_in_stages(self) -> bool:
        """True if rows merged in stages, each on neighbouring rows, always give what they give merged at once."""
        return False

    @property
    def reads_levels(self) -> bool:
        """True if the rows must have the column `LEVEL_COLUMN`; results never have it."""
        return False

    def columns_needed(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        """`columns`, and those that the merge must see to make them; key and sequence columns are the caller's."""
        return columns

    def decide(self, segments: KeySegments, columns: tuple[str, ...]) -> Decision:
        """Decides the result of each key, as far as these columns of the result ask for it."""
        ...

    def merge(
        self,
        segments: KeySegments,
        *,
        columns: tuple[str, ...] | None = None,
        keep: Keep | None = None,
        previous_row: PreviousRow = no_previous_row,
        executor: Executor | None = None,
    ) -> Merged:
        """The results in key order, with all columns or those named.

        Without `keep` every result is kept, retracts included. `previous_row` says which row of a key is the old one
        (`merge.row_levels` has rules).
        """
        names = stored_columns(segments.rows) if columns is None else columns
        decision = self.decide(segments, names)
        kept = None if keep is None else keep(decision.kinds)
        if kept is not None and kept.all():
            kept = None
        return Merged(decision.rows(kept, names, executor), segments, decision, kept, previous_row)


@dataclass(frozen=True, slots=True)
class WrappedFunction(MergeFunction):
    """A merge function that does as another one, `function`, where it does not say otherwise."""

    function: MergeFunction

    @property
    def passes_lone_rows(self) -> bool:
        return self.function.passes_lone_rows

    @property
    def merges_in_stages(self) -> bool:
        return self.function.merges_in_stages

    @property
    def reads_levels(self) -> bool:
        return self.function.reads_levels

    def columns_needed(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        return self.function.columns_needed(columns)

    def decide(self, segments: KeySegments, columns: tuple[str, ...]) -> Decision:
        return self.function.decide(segments, columns)


def without_retracts(kinds: RowKinds) -> Flags:
    """Keeps results of kind +I and +U: what readers see, and what is left where no older row can lie below."""
    result: Flags = (kinds == RowKind.INSERT) | (kinds == RowKind.UPDATE_AFTER)
    return result


def kinds_of(rows: pa.Table) -> RowKinds:
    """The kind of each row."""
    kinds: RowKinds = rows.column(VALUE_KIND_COLUMN).to_numpy()
    return kinds


def retracts(rows: pa.Table) -> Flags:
    """True where the kind of a row is -U or -D."""
    kinds = kinds_of(rows)
    result: Flags = (kinds == RowKind.UPDATE_BEFORE) | (kinds == RowKind.DELETE)
    return result


def stored_columns(rows: pa.Table) -> tuple[str, ...]:
    """All columns but the transient one."""
    return tuple(name for name in rows.column_names if name != LEVEL_COLUMN)
