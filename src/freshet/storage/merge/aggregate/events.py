"""What the rows of each key do to one column: the form in which engines hand columns to aggregate functions.

| event | effect on the accumulator `acc` of the column, `x` being the row's value |
|---|---|
| SKIP | none |
| ADD | agg(acc, x) |
| ADD_LATE | agg(x, acc): the row is older than what its sequence group holds |
| RETRACT | retract(acc, x) |
| SET | acc := x as it is, whatever acc was; what a function remembers besides acc stays |

Every key begins with acc = NULL. Events lie key after key, in merge order; each key has at least one.

`LiveEvents` are those that decide the result of a function which remembers nothing but the accumulator: what comes
before a SET does not count. Where a function joins values and has aggReversed(acc, x) = agg(x, acc), late values come
down to an order: before the others, the last of them first (`LiveEvents.late_first`).

A `ColumnAggregator` computes values out of the events of its column. Functions that only choose one of the values are
in `choosers`.

Source: MERGING.md §2.5, §2.6.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.merge.key_order import Flags, ends_of
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.data_type import DataType
from freshet.storage.options.aggregate_function import CAPABILITIES, ColumnAggregate

EventCodes = npt.NDArray[np.int8]


class Event(IntEnum):
    """Codes of `ColumnEvents.codes`."""

    SKIP = 0
    ADD = 1
    ADD_LATE = 2
    RETRACT = 3
    SET = 4


class ColumnEvents(Frozen):
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


class Reduction(Frozen):
    """One value per key, of the column's type, and for which keys the values were folded one by one."""

    values: pa.Array[Any]
    scalar_keys: Flags


class AggregationError(Exception):
    """A function cannot take an event; the engine adds table, column and key. `event` is its position."""

    def __init__(self, event: int, reason: str) -> None:
        super().__init__(reason)
        self.event = event
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ColumnAggregator(ABC):
    """An aggregate function of one column that computes values out of values.

    | function | RETRACT |
    |---|---|
    | with `ignore-retract` | nothing happens |
    | that takes retracts | the function's own rule |
    | any other | refused, whatever the value |
    """

    function: ColumnAggregate
    column: str
    type: DataType

    @property
    def keeps_lone_value(self) -> bool:
        """True if a single ADD always gives the value as it is."""
        return CAPABILITIES[self.function.name].keeps_lone_value

    def reduce(self, events: ColumnEvents) -> Reduction:
        """The accumulator of each key after all its events.

        Segment operations for all keys that can be; a loop over the values of one key at a time for the others.
        Raises `AggregationError` for an event that the function cannot take: a retract, an overflow.
        """
        return self._reduce(replace(events, codes=admitted(events.codes, self.function, self.column)))

    @abstractmethod
    def _reduce(self, events: ColumnEvents) -> Reduction:
        """The same, of events that the function takes."""


def takes_retracts(function: ColumnAggregate) -> bool:
    """False if a retract is refused."""
    return function.ignore_retract or CAPABILITIES[function.name].takes_retracts


def admitted(codes: EventCodes, function: ColumnAggregate, column: str) -> EventCodes:
    """The events that reach the function, by the rule for retracts."""
    if not function.ignore_retract and CAPABILITIES[function.name].takes_retracts:
        return codes
    is_retract = codes == Event.RETRACT
    if not is_retract.any():
        return codes
    if not function.ignore_retract:
        raise AggregationError(int(np.flatnonzero(is_retract)[0]), retract_error_text(function, column))
    return np.where(is_retract, np.int8(Event.SKIP), codes)


def retract_error_text(function: ColumnAggregate, column: str) -> str:
    """Why a retract is refused, and what to do."""
    taking = ", ".join(sorted(name for name, capability in CAPABILITIES.items() if capability.takes_retracts))
    return (
        f"{function.name} does not take rows of kind -U and -D ({taking} do); "
        f"set fields.{column}.ignore-retract=true to leave its values as they are"
    )


class LiveEvents(Frozen):
    """Events that decide the result, without SKIP and without all that comes before the last SET of a key.

    The i-th is event `rows[i]` of key `keys[i]` with the code `codes[i]`. They lie key after key.
    """

    rows: Positions
    keys: Positions
    codes: EventCodes
    key_count: int

    def only(self, chosen: Flags) -> LiveEvents:
        """The values that are chosen."""
        if chosen.all():
            return self
        # Three gathers by position take half the time of three by flag.
        positions = np.flatnonzero(chosen)
        return replace(
            self, rows=self.rows.take(positions), keys=self.keys.take(positions), codes=self.codes.take(positions)
        )

    @property
    def counts(self) -> Positions:
        """Number of events of each key."""
        return np.bincount(self.keys, minlength=self.key_count)

    def keys_with(self, *codes: Event) -> Flags:
        """True for keys that have one of these events."""
        flags = np.zeros(self.key_count, np.bool_)
        flags[self.keys[np.isin(self.codes, codes)]] = True
        return flags

    def last_rows(self, chosen: Flags) -> Positions:
        """The last chosen event of each key, -1 where there is none."""
        found = np.full(self.key_count, -1, np.int64)
        positions = np.flatnonzero(chosen)
        found[self.keys.take(positions)] = self.rows.take(positions)
        return found

    def late_first(self) -> LiveEvents:
        """ADD_LATE events before the others of their key, the last of them first.

        This is the order of the values in functions that join values and have aggReversed(acc, x) = agg(x, acc).
        """
        late = self.codes == Event.ADD_LATE
        if not late.any():
            return self
        rank = np.where(late, -self.rows - 1, self.rows)
        order = np.lexsort((rank, self.keys))
        return replace(self, rows=self.rows[order], keys=self.keys[order], codes=self.codes[order])


def live_events(events: ColumnEvents, *, trimmed: bool = True) -> LiveEvents:
    """The events that decide, for functions that remember nothing but the accumulator.

    Not `trimmed`, those before a SET are among them: they may still be refused.
    """
    count = len(events.codes)
    keys = np.repeat(np.arange(events.key_count), np.diff(events.starts, append=count))
    live = events.codes != Event.SKIP
    rows = np.arange(count)
    is_set = events.codes == Event.SET
    if trimmed and np.count_nonzero(is_set) > np.count_nonzero(is_set.take(events.starts)):
        last_set = np.full(events.key_count, -1, np.int64)
        last_set[keys[is_set]] = rows[is_set]
        live &= rows >= last_set[keys]
    return LiveEvents(rows, keys, events.codes, events.key_count).only(live)
