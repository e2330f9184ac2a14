"""What an edit does to the rows of a table without a primary key: rows are chosen by their position in a file.

A plan sees the rows of a file twice at most: some columns of all rows, by which it chooses, then all columns of those
that get new values. What it knows of a source, such as which of its rows have matched, begins anew with each attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.commit.round_change import RoundCheck
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.scan.pruning import ScanFilter

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Choice:
    """Rows that change: their positions, ascending; of each its clause, by number, and its row of the source or -1."""

    positions: Numbers
    clauses: Numbers
    source_rows: Numbers

    def __len__(self) -> int:
        return len(self.positions)

    def of(self, rows: slice | npt.NDArray[Any]) -> Choice:
        """Some of them, by their number or by flags."""
        return Choice(self.positions[rows], self.clauses[rows], self.source_rows[rows])

    def placed(self, positions: Numbers) -> Choice:
        """The same with other positions."""
        return Choice(positions, self.clauses, self.source_rows)


def chosen_alike(positions: Numbers) -> Choice:
    """Rows of which all become the same."""
    return Choice(positions, np.zeros(len(positions), np.int64), np.full(len(positions), -1, np.int64))


def together(choices: Sequence[Choice]) -> Choice:
    """Choices of parts of a file, in its order."""
    return Choice(
        np.concatenate([np.empty(0, np.int64), *(each.positions for each in choices)]),
        np.concatenate([np.empty(0, np.int64), *(each.clauses for each in choices)]),
        np.concatenate([np.empty(0, np.int64), *(each.source_rows for each in choices)]),
    )


class FilePlan(Protocol):
    """Rows to delete, to update and to add."""

    @property
    def filter(self) -> ScanFilter | None:
        """True for every row that may be chosen: files without any are not read."""
        ...

    @property
    def columns(self) -> Sequence[str]:
        """The columns by which rows are chosen."""
        ...

    def begin(self) -> None:
        """An attempt begins: what was seen of the table before does not count."""
        ...

    def choose(self, rows: pa.Table) -> Choice:
        """Those of the rows that change, in columns that include `columns`; called once for each row of the table that
        the filter may choose."""
        ...

    def deletes(self, clauses: Numbers) -> Flags:
        """Of each clause, whether its rows go; the others get new values."""
        ...

    def updated(self, rows: pa.Table, choice: Choice) -> pa.Table:
        """The rows chosen, of all columns and as they are, with their new values, in the schema of the table."""
        ...

    def added(self) -> Iterator[pa.Table]:
        """Rows to add, once all were chosen."""
        ...

    def check(self, upon: Snapshot | None) -> RoundCheck | None:
        """What raises `OutdatedPlanError` where rows that others have added since the snapshot change the outcome."""
        ...
