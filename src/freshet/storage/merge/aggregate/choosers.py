"""last_value, last_non_null_value, first_value, first_non_null_value: functions that choose one of the values.

They only say which event's value is the result: they never look at values, work for every type, and the engine gathers
no value that it does not need.

| | ADD x | ADD_LATE x | RETRACT x | SET x |
|---|---|---|---|---|
| last_value | x | acc | NULL | x |
| last_non_null_value | x, unless NULL | acc, unless NULL; then x | NULL, unless x is NULL | x |
| first_value | x if it is the first call, else acc | acc if it is the first call, else x | refused | x |
| first_non_null_value | x if nothing was taken yet and x is not NULL, else acc | see below | refused | x |

A *call* is an ADD or ADD_LATE; first_value remembers per merge that there was one, whatever SET does meanwhile. So a
late row, which calls agg(x, acc), replaces the value once something was taken. first_non_null_value remembers that a
value was taken: ADD_LATE takes acc as it is if nothing was taken yet and acc is not NULL, else it replaces acc by x,
also by NULL. Keys with such rows are walked through; everything else is a search per key.

Source: MERGING.md §2.5, §2.6.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from freshet._frozen import Frozen
from freshet.storage.merge.aggregate.events import Event, EventCodes, admitted
from freshet.storage.merge.key_order import Flags, ends_of
from freshet.storage.merge.key_rows import first_marked, last_marked
from freshet.storage.merge.sort_words import Positions
from freshet.storage.options.aggregate_function import AggregateFunction, ColumnAggregate

KEY_SHIFT: Final = 33
"""Bits for the event in numbers that hold a key and an event; 2**31 rows at once are far more than memory holds."""


class SharedEvents(Frozen, dict=True):
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

    @property
    def no_keys(self) -> Flags:
        """False for every key."""
        return np.zeros(self.key_count, np.bool_)

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

        At the end of key 0 is 6, the ADD; at that of key 1 rank 2, the older of the two late ones. One running maximum
        thus answers for all keys, since numbers of a key are larger than those of all keys before it.
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


class _Choice(Frozen):
    """The event whose value is the result, per key, -1 for NULL; and for which keys events were read one by one."""

    events: Positions
    scalar_keys: Flags


class Chooser(Frozen):
    """An aggregate function of one column whose result is always the value of one event, or NULL.

    It keeps a single value as it is.
    """

    function: ColumnAggregate
    column: str

    def choose(self, events: SharedEvents, valid: Flags | None) -> _Choice:
        """The event whose value is the result, per key. `valid` is False for NULL; None if no value is."""
        codes = admitted(events.codes, self.function, self.column)
        return CHOICES[self.function.name](
            events if codes is events.codes else SharedEvents(codes, events.starts), valid
        )


def _last_value(events: SharedEvents, valid: Flags | None) -> _Choice:
    """The newest value, NULL or not."""
    found = last_marked(events.marks(Event.ADD, Event.RETRACT, Event.SET), events.starts, events.ends)
    if events.has(Event.RETRACT):
        found[(found >= 0) & (events.codes[found] == Event.RETRACT)] = -1
    return _Choice(found, events.no_keys)


def _last_non_null_value(events: SharedEvents, valid: Flags | None) -> _Choice:
    """The newest value that is not NULL."""
    starts, ends, scalar_keys = events.starts, events.ends, events.no_keys
    is_late, has_late = events.marks(Event.ADD_LATE), events.has(Event.ADD_LATE)
    if not events.has(Event.RETRACT, Event.SET):
        if has_late:
            return _Choice(_newest_add_or_oldest_late(events, valid), scalar_keys)
        return _Choice(last_marked(_with_value(events.marks(Event.ADD), valid), starts, ends), scalar_keys)
    decides = _with_value(events.marks(Event.ADD, Event.RETRACT), valid) | events.marks(Event.SET)
    deciding = last_marked(decides, starts, ends)
    has_value = (deciding >= 0) & (events.codes[deciding] != Event.RETRACT)
    found = np.where(has_value if valid is None else has_value & valid[deciding], deciding, -1)
    if has_late:
        # Late values only fill what is NULL: the first of them after the deciding event.
        open_keys = np.flatnonzero(found < 0)
        after = np.where(deciding[open_keys] < 0, starts[open_keys], deciding[open_keys] + 1)
        found[open_keys] = first_marked(_with_value(is_late, valid), after, ends[open_keys])
    return _Choice(found, scalar_keys)


def _newest_add_or_oldest_late(events: SharedEvents, valid: Flags | None) -> Positions:
    """last_non_null_value without retracts: late values only count where no other is."""
    numbers = events.newest_add_or_oldest_late
    if valid is not None:
        numbers = numbers * valid
    return events.event_of_number(np.maximum.accumulate(numbers).take(events.ends - 1))


def _with_value(marks: Flags, valid: Flags | None) -> Flags:
    return marks if valid is None else marks & valid


def _first_value(events: SharedEvents, valid: Flags | None) -> _Choice:
    """The first value of the merge, NULL or not."""
    starts, ends, scalar_keys = events.starts, events.ends, events.no_keys
    called = first_marked(events.marks(Event.ADD, Event.ADD_LATE), starts, ends)
    if not events.has(Event.SET, Event.ADD_LATE):
        return _Choice(called, scalar_keys)
    found = last_marked(events.marks(Event.SET, Event.ADD_LATE), np.where(called < 0, starts, called + 1), ends)
    before = last_marked(events.marks(Event.SET), starts, np.where(called < 0, starts, called))
    taken = np.where((called >= 0) & (events.codes[called] == Event.ADD), called, before)
    return _Choice(np.where(found < 0, taken, found), scalar_keys)


def _first_non_null_value(events: SharedEvents, valid: Flags | None) -> _Choice:
    """The first value of the merge that is not NULL."""
    starts, ends, scalar_keys = events.starts, events.ends, events.no_keys
    taken = first_marked(_with_value(events.marks(Event.ADD), valid), starts, ends)
    if events.has(Event.SET):
        taken = np.maximum(taken, last_marked(events.marks(Event.SET), starts, ends))
    if events.has(Event.ADD_LATE):
        scalar_keys = np.logical_or.reduceat(events.marks(Event.ADD_LATE), starts)
        for key in np.flatnonzero(scalar_keys).tolist():
            part = slice(int(starts[key]), int(ends[key]))
            flags = [True] * (part.stop - part.start) if valid is None else valid[part].tolist()
            taken[key] = _walked(events.codes[part].tolist(), flags, part.start)
    return _Choice(taken, scalar_keys)


def _walked(codes: list[int], valid: list[bool], first: int) -> int:
    """first_non_null_value over the events of one key."""
    held, is_null, is_taken = -1, True, False
    for event, (code, is_valid) in enumerate(zip(codes, valid, strict=True), first):
        if code == Event.ADD and is_valid and not is_taken:
            held, is_null, is_taken = event, False, True
        elif code == Event.ADD_LATE and not is_taken and not is_null:
            is_taken = True
        elif code in (Event.ADD_LATE, Event.SET):
            held, is_null = event, not is_valid
    return held


CHOICES: Final[Mapping[AggregateFunction, Callable[[SharedEvents, Flags | None], _Choice]]] = {
    AggregateFunction.LAST_VALUE: _last_value,
    AggregateFunction.LAST_NON_NULL_VALUE: _last_non_null_value,
    AggregateFunction.FIRST_VALUE: _first_value,
    AggregateFunction.FIRST_NON_NULL_VALUE: _first_non_null_value,
}
