"""Deletes and updates of the rows of an append table that a filter chooses, and what goes in an overwrite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from freshet.storage.commit.round_change import RoundCheck
from freshet.storage.edits.arrivals import Arrivals
from freshet.storage.edits.file_plan import Choice, Flags, Numbers, chosen_alike
from freshet.storage.edits.update_rows import updated
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.scan.pruning import ScanFilter

_ROW: Final = "\0row"
"""No name of a column."""


@dataclass(frozen=True, slots=True)
class FilterPlan:
    """A `FilePlan` of the rows for which the filter is true: they get the values, without values they go.

    `replaces`: so do those that others add before the commit, which is an overwrite.
    """

    store: TableStore
    filter: ScanFilter
    values: Mapping[str, Any] | None = None
    replaces: bool = False

    @property
    def columns(self) -> list[str]:
        """Those of the filter."""
        return sorted(self.filter.predicate.columns())

    def begin(self) -> None:
        """Nothing is kept from one attempt to the next."""

    def choose(self, rows: pa.Table) -> Choice:
        """By the filter."""
        return chosen_alike(passing(rows, self.filter))

    def deletes(self, clauses: Numbers) -> Flags:
        """All or none."""
        return np.full(len(clauses), self.values is None)

    def updated(self, rows: pa.Table, choice: Choice) -> pa.Table:
        """With the values."""
        del choice
        return updated(self.store, rows, self.values or {})

    def added(self) -> Iterator[pa.Table]:
        """None."""
        return iter(())

    def check(self, upon: Snapshot | None) -> RoundCheck | None:
        """Rows that others add count as later, but for those that are to be replaced."""
        if not self.replaces:
            return None
        return Arrivals(
            self.store,
            upon,
            self.columns,
            lambda rows: bool(len(passing(rows, self.filter))),
            self.filter.predicate,
        )


def passing(rows: pa.Table, bound: ScanFilter) -> Numbers:
    """Positions of the rows for which a filter is true."""
    numbered = rows.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
    found: Numbers = numbered.filter(bound.predicate.to_arrow()).column(_ROW).to_numpy().astype(np.int64)
    return found
