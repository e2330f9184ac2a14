"""What a table must hold, by a dict per merge engine: too simple to be wrong.

An oracle takes rows one by one, in commit order, each with its kind and its sequence fields, and answers with the rows
a reader sees. New engines are new subclasses of `Oracle` with their own `fold`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
RETRACTS = (UPDATE_BEFORE, DELETE)


@dataclass
class Row:
    """One change: its key, kind and values; `sequence` are the values of the sequence fields, `number` the counter."""

    key: Hashable
    kind: int
    values: Any
    sequence: tuple[Any, ...] = ()
    number: int = 0


@dataclass
class Oracle:
    """Keeps every accepted row of each key and folds them when asked."""

    ignore_delete: bool = False
    ignore_update_before: bool = False
    descending: bool = False
    history: dict[Hashable, list[Row]] = field(default_factory=dict)
    accepted: int = 0

    def write(self, row: Row) -> bool:
        """Takes a row as a writer does; False if an option leaves it out."""
        if self.ignore_delete and row.kind in RETRACTS:
            return False
        if self.ignore_update_before and row.kind == UPDATE_BEFORE:
            return False
        row.number = self.accepted
        self.accepted += 1
        self.history.setdefault(exact_key(row.key), []).append(row)
        return True

    def write_all(self, rows: Iterable[Row]) -> None:
        """Takes rows in order."""
        for row in rows:
            self.write(row)

    def visible(self) -> dict[Hashable, Row]:
        """The row of each key that a reader sees."""
        folded = {key: self.fold(sorted(rows, key=self.rank)) for key, rows in self.history.items()}
        return {key: row for key, row in folded.items() if row is not None and row.kind not in RETRACTS}

    def rank(self, row: Row) -> tuple[Any, ...]:
        """Sorts the rows of a key: sequence fields, then the counter."""
        return (tuple(sequence_rank(value, self.descending) for value in row.sequence), row.number)

    def fold(self, rows: Sequence[Row]) -> Row | None:
        """The merged row of one key; `rows` are ordered."""
        raise NotImplementedError


class DeduplicateOracle(Oracle):
    """The last row stays."""

    def fold(self, rows: Sequence[Row]) -> Row | None:
        return rows[-1]


def exact_key(value: Any) -> Hashable:
    """A key that a dict keeps apart as the format does: -0.0 is not 0.0, NaN is NaN, True is not 1."""
    if isinstance(value, tuple):
        return tuple(exact_key(item) for item in value)
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else struct.pack(">d", value))
    return (type(value).__name__, value)


def key_rank(value: Any) -> Any:
    """Sorts key values of one column, by definition and not by the code under test."""
    if isinstance(value, float):
        if math.isnan(value):
            return (2, 0.0, 0)
        return (1, value, 0 if math.copysign(1, value) < 0 else 1)
    if isinstance(value, str):
        return value.encode()
    return value


def sequence_rank(value: Any, descending: bool) -> Any:
    """Sorts values of a sequence field: NULL smallest in both directions."""
    if value is None:
        return (0, 0)
    rank = key_rank(value)
    return (1, Reversed(rank) if descending else rank)


@dataclass(frozen=True)
class Reversed:
    """Sorts the other way round."""

    value: Any

    def __lt__(self, other: Reversed) -> bool:
        return bool(other.value < self.value)
