"""last_value, last_non_null_value, first_value, first_non_null_value: functions that choose one of the values.

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

from dataclasses import dataclass

import numpy as np

from freshet.storage.merge.aggregate.events import Choice, Event, SharedEvents
from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.key_rows import first_marked, last_marked
from freshet.storage.merge.sort_words import Positions


@dataclass(frozen=True, slots=True)
class LastValue:
    """The newest value, NULL or not."""

    def choose(self, events: SharedEvents, valid: Flags | None) -> Choice:
        found = last_marked(events.marks(Event.ADD, Event.RETRACT, Event.SET), events.starts, events.ends)
        if events.has(Event.RETRACT):
            found[(found >= 0) & (events.codes[found] == Event.RETRACT)] = -1
        return Choice(found, np.zeros(events.key_count, np.bool_))


@dataclass(frozen=True, slots=True)
class LastNonNullValue:
    """The newest value that is not NULL."""

    def choose(self, events: SharedEvents, valid: Flags | None) -> Choice:
        starts, ends, scalar_keys = events.starts, events.ends, np.zeros(events.key_count, np.bool_)
        is_late, has_late = events.marks(Event.ADD_LATE), events.has(Event.ADD_LATE)
        if not events.has(Event.RETRACT, Event.SET):
            if has_late:
                return Choice(_newest_add_or_oldest_late(events, valid), scalar_keys)
            return Choice(last_marked(_with_value(events.marks(Event.ADD), valid), starts, ends), scalar_keys)
        settles = _with_value(events.marks(Event.ADD, Event.RETRACT), valid) | events.marks(Event.SET)
        settled = last_marked(settles, starts, ends)
        has_value = (settled >= 0) & (events.codes[settled] != Event.RETRACT)
        found = np.where(has_value if valid is None else has_value & valid[settled], settled, -1)
        if has_late:
            # Late values only fill what is NULL, the first of them after what settled it.
            open_keys = np.flatnonzero(found < 0)
            after = np.where(settled[open_keys] < 0, starts[open_keys], settled[open_keys] + 1)
            found[open_keys] = first_marked(_with_value(is_late, valid), after, ends[open_keys])
        return Choice(found, scalar_keys)


def _newest_add_or_oldest_late(events: SharedEvents, valid: Flags | None) -> Positions:
    """last_non_null_value where nothing is taken back: late values only count where no other is."""
    numbers = events.newest_add_or_oldest_late
    if valid is not None:
        numbers = numbers * valid
    return events.event_of_number(np.maximum.accumulate(numbers).take(events.ends - 1))


def _with_value(marks: Flags, valid: Flags | None) -> Flags:
    return marks if valid is None else marks & valid


@dataclass(frozen=True, slots=True)
class FirstValue:
    """The first value of the merge, NULL or not."""

    def choose(self, events: SharedEvents, valid: Flags | None) -> Choice:
        starts, ends, scalar_keys = events.starts, events.ends, np.zeros(events.key_count, np.bool_)
        called = first_marked(events.marks(Event.ADD, Event.ADD_LATE), starts, ends)
        if not events.has(Event.SET, Event.ADD_LATE):
            return Choice(called, scalar_keys)
        found = last_marked(events.marks(Event.SET, Event.ADD_LATE), np.where(called < 0, starts, called + 1), ends)
        before = last_marked(events.marks(Event.SET), starts, np.where(called < 0, starts, called))
        taken = np.where((called >= 0) & (events.codes[called] == Event.ADD), called, before)
        return Choice(np.where(found < 0, taken, found), scalar_keys)


@dataclass(frozen=True, slots=True)
class FirstNonNullValue:
    """The first value of the merge that is not NULL."""

    def choose(self, events: SharedEvents, valid: Flags | None) -> Choice:
        starts, ends, scalar_keys = events.starts, events.ends, np.zeros(events.key_count, np.bool_)
        taken = first_marked(_with_value(events.marks(Event.ADD), valid), starts, ends)
        if events.has(Event.SET):
            taken = np.maximum(taken, last_marked(events.marks(Event.SET), starts, ends))
        if events.has(Event.ADD_LATE):
            scalar_keys = np.logical_or.reduceat(events.marks(Event.ADD_LATE), starts)
            for key in np.flatnonzero(scalar_keys).tolist():
                part = slice(int(starts[key]), int(ends[key]))
                flags = [True] * (part.stop - part.start) if valid is None else valid[part].tolist()
                taken[key] = _walked(events.codes[part].tolist(), flags, part.start)
        return Choice(taken, scalar_keys)


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
