"""What the rows of each key do to one column: the form in which engines hand columns to aggregate functions.

| event | effect on the accumulator `acc` of the column, `x` being the row's value |
|---|---|
| SKIP | none |
| ADD | agg(acc, x) |
| ADD_LATE | agg(x, acc): the row is older than what its sequence group holds |
| RETRACT | retract(acc, x) |
| SET | acc := x as it is, whatever acc was; what a function remembers beside acc stays |

Every key begins with acc = NULL. Events stand key after key, in merge order; each key has at least one.

Source: LSM semantics §2.5, §2.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
EventCodes = npt.NDArray[np.int8]


class Event(IntEnum):
    """Codes of `ColumnEvents.codes`."""

    SKIP = 0
    ADD = 1
    ADD_LATE = 2
    RETRACT = 3
    SET = 4


@dataclass(frozen=True, slots=True)
class ColumnEvents:
    """`codes[i]` happens with `values[i]`; events `starts[k]` to `starts[k + 1]` belong to key k."""

    values: pa.Array[Any]
    codes: EventCodes
    starts: Positions

    @property
    def key_count(self) -> int:
        """Number of keys."""
        return len(self.starts)

    @property
    def ends(self) -> Positions:
        """One past the last event of each key."""
        return ends_of(self.starts, len(self.codes))

    def keys_with(self, *events: Event) -> Flags:
        """True for keys that have one of these events."""
        if not len(self.starts):
            return np.zeros(0, np.bool_)
        found: Flags = np.logical_or.reduceat(np.isin(self.codes, events), self.starts)
        return found


@dataclass(frozen=True, slots=True)
class Reduction:
    """One value per key, of the column's type, and for which keys the values were folded one by one."""

    values: pa.Array[Any]
    looped: Flags


@dataclass(frozen=True, slots=True)
class Choice:
    """The event whose value stands, per key, -1 for NULL; and for which keys events were looked at one by one."""

    events: Positions
    looped: Flags


class AggregationError(Exception):
    """A function cannot take an event; the engine adds table, column and key. `event` is its position."""

    def __init__(self, event: int, reason: str) -> None:
        super().__init__(reason)
        self.event = event
        self.reason = reason


def ends_of(starts: Positions, count: int) -> Positions:
    """One past the last of `count` events for each key."""
    ends: Positions = np.append(starts[1:], count)[: len(starts)]
    return ends
