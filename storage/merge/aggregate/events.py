"""What the rows of each key do to one column: the form in which engines hand columns to aggregate functions.

| event | effect on the accumulator `acc` of the column, `x` being the row's value |
|---|---|
| SKIP | none |
| ADD | agg(acc, x) |
| ADD_LATE | agg(x, acc): the row is older than what its sequence group holds |
| RETRACT | retract(acc, x) |
| SET | acc := x as it is, whatever acc was; what a function remembers beside acc stays |

Every key begins with acc = NULL. Events stand key after key, in merge order; each key has at least one.

`LiveEvents` are those that decide the result of a function which remembers nothing beside the accumulator: what stands
before a SET does not count. Where a function joins values and has aggReversed(acc, x) = agg(x, acc), late values come
down to an order: before the others, the last of them first (`LiveEvents.late_first`).

Source: MERGING.md §2.5, §2.6.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.data_type import DataType
from freshet.storage.options.aggregate_function import ColumnAggregate

EventCodes = npt.NDArray[np.int8]

KEY_SHIFT: Final = 33
"""Bits for the event in numbers that hold a key and an event; 2**31 rows at once are far more than memory holds."""


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


@dataclass(frozen=True)
class SharedEvents:
    """The events without values, as several columns share them; what is asked of them is worked out once."""

    codes: EventCodes
    starts: Positions

    @property
    def key_count(self) -> int:
        """Number of keys."""
        return len(self.starts)

    @cached_property
    def ends(self) -> Positions:
        """One past the last event of each key."""
        return ends_of(self.starts, len(self.codes))

    def marks(self, *events: Event) -> Flags:
        """True for these events."""
        return self._marks[sum(1 << event for event in events)]

    def has(self, *events: Event) -> bool:
        """True if there is one of these events."""
        return bool(self.marks(*events).any())

    @cached_property
    def _marks(self) -> _Marks:
        return _Marks(self.codes)

    @cached_property
    def newest_add_or_oldest_late(self) -> npt.NDArray[np.int64]:
        """Numbers of which, per key, the largest is that of the newest ADD, or else of the oldest ADD_LATE.

        Key in the high bits, from `KEY_SHIFT` on; 1 and more in the low bits for these events, 0 there for others.
        With K for 2**33 and five events in two keys:

            event           0     1     2     | 3         4
            code            ADD   LATE  SKIP  | LATE      LATE
            rank            6     4     0     | 2         1          ADD: 5 + 1 + event, LATE: 5 - event
            number          6     4     0     | K + 2     K + 1
            largest so far  6     6     6     | K + 2     K + 2

        At the end of key 0 stands 6, the ADD; at that of key 1 rank 2, the older of the two late ones. One running
        maximum thus answers for all keys, since numbers of a key are larger than those of all keys before it.
        """
        count = len(self.codes)
        positions = np.arange(count)
        ranks = np.where(self.marks(Event.ADD), count + 1 + positions, count - positions)
        ranks *= self.marks(Event.ADD, Event.ADD_LATE)
        return np.repeat(self._key_bases, self.ends - self.starts) | ranks

    def event_of_number(self, numbers: npt.NDArray[np.int64]) -> Positions:
        """The event that such a number belongs to, -1 for those of other events. One number per key."""
        ranks = numbers - self._key_bases
        beyond = ranks - (len(self.codes) + 1)
        # An ADD has its event here, an ADD_LATE the complement: of rank 2 in five events -4, whose complement is 3.
        events: Positions = beyond ^ (beyond >> 63)
        # Numbers of an earlier key are below the base of this one.
        events[ranks <= 0] = -1
        return events

    @cached_property
    def _key_bases(self) -> Positions:
        return np.arange(self.key_count) << KEY_SHIFT


class _Marks(dict[int, Flags]):
    """Where events of a set are, by the bits of the set; threads may work out the same twice."""

    def __init__(self, codes: EventCodes) -> None:
        super().__init__()
        self._codes = codes

    def __missing__(self, events: int) -> Flags:
        marks = np.zeros(len(self._codes), np.bool_)
        for event in Event:
            if events >> event & 1:
                marks |= self._codes == event
        self[events] = marks
        return marks


@dataclass(frozen=True, slots=True)
class ColumnFunction:
    """What an aggregate function knows of itself: its options, and the column that it is of."""

    function: ColumnAggregate
    column: str
    type: DataType


@dataclass(frozen=True, slots=True)
class Reduction:
    """One value per key, of the column's type, and for which keys the values were folded one by one."""

    values: pa.Array[Any]
    scalar_keys: Flags


@dataclass(frozen=True, slots=True)
class Choice:
    """The event whose value stands, per key, -1 for NULL; and for which keys events were looked at one by one."""

    events: Positions
    scalar_keys: Flags


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


@dataclass(frozen=True, slots=True)
class LiveEvents:
    """Events that decide the result, without SKIP and without all that stands before the last SET of a key.

    The i-th is event `rows[i]` of key `keys[i]` with the code `codes[i]`. They stand key after key.
    """

    rows: Positions
    keys: Positions
    codes: EventCodes
    key_count: int

    def only(self, chosen: Flags) -> LiveEvents:
        """Those that are chosen."""
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


def live_events(events: ColumnEvents, *, takes_retracts: bool = False, trimmed: bool = True) -> LiveEvents:
    """The events that decide, for functions that remember nothing beside the accumulator.

    Not `trimmed`, those before a SET are among them: they may still be refused.
    """
    # `make_aggregator` has refused retracts where the function takes none.
    assert takes_retracts or not (events.codes == Event.RETRACT).any()
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
