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

Source: LSM semantics §2.5, §2.6.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from storage.merge.aggregate.aggregator import EventTest
from storage.merge.aggregate.events import Choice, Event, EventCodes, Flags, Positions, ends_of
from storage.merge.place_search import first_place, last_place

_DECIDES: Final = (Event.ADD, Event.RETRACT, Event.SET)
_CALLS: Final = (Event.ADD, Event.ADD_LATE)
_REPLACES: Final = (Event.ADD_LATE, Event.SET)


@dataclass(frozen=True, slots=True)
class LastValue:
    """The newest value, NULL or not."""

    def choose(self, codes: EventCodes, is_valid: EventTest, starts: Positions) -> Choice:
        ends = ends_of(starts, len(codes))
        found = last_place(lambda places: np.isin(codes[places], _DECIDES), starts, ends)
        found[(found >= 0) & (codes[found] == Event.RETRACT)] = -1
        return Choice(found, np.zeros(len(starts), np.bool_))


@dataclass(frozen=True, slots=True)
class LastNonNullValue:
    """The newest value that is not NULL."""

    def choose(self, codes: EventCodes, is_valid: EventTest, starts: Positions) -> Choice:
        ends = ends_of(starts, len(codes))
        looped = np.zeros(len(starts), np.bool_)
        if (codes == Event.ADD).all():
            return Choice(last_place(is_valid, starts, ends), looped)
        settled = last_place(lambda places: _settles(codes[places], is_valid(places)), starts, ends)
        at_settled = codes[settled]
        has_value = (settled >= 0) & (at_settled != Event.RETRACT)
        if (at_settled == Event.SET).any():
            has_value &= is_valid(settled)
        found = np.where(has_value, settled, -1)
        if (codes == Event.ADD_LATE).any():
            # Late values only fill what is NULL, the first of them.
            is_open = np.flatnonzero(found < 0)
            after = np.where(settled[is_open] < 0, starts[is_open], settled[is_open] + 1)
            found[is_open] = first_place(
                lambda places: (codes[places] == Event.ADD_LATE) & is_valid(places), after, ends[is_open]
            )
        return Choice(found, looped)


@dataclass(frozen=True, slots=True)
class FirstValue:
    """The first value of the merge, NULL or not."""

    def choose(self, codes: EventCodes, is_valid: EventTest, starts: Positions) -> Choice:
        ends = ends_of(starts, len(codes))
        looped = np.zeros(len(starts), np.bool_)
        called = first_place(lambda places: np.isin(codes[places], _CALLS), starts, ends)
        if not np.isin(codes, _REPLACES).any():
            return Choice(called, looped)
        after = np.where(called < 0, starts, called + 1)
        found = last_place(lambda places: np.isin(codes[places], _REPLACES), after, ends)
        before = last_place(lambda places: codes[places] == Event.SET, starts, np.where(called < 0, starts, called))
        taken = np.where((called >= 0) & (codes[called] == Event.ADD), called, before)
        return Choice(np.where(found < 0, taken, found), looped)


@dataclass(frozen=True, slots=True)
class FirstNonNullValue:
    """The first value of the merge that is not NULL."""

    def choose(self, codes: EventCodes, is_valid: EventTest, starts: Positions) -> Choice:
        ends = ends_of(starts, len(codes))
        taken = first_place(lambda places: (codes[places] == Event.ADD) & is_valid(places), starts, ends)
        looped = np.zeros(len(starts), np.bool_)
        if not np.isin(codes, _REPLACES).any():
            return Choice(taken, looped)
        set_last = last_place(lambda places: codes[places] == Event.SET, starts, ends)
        found = np.maximum(taken, set_last)
        is_late = codes == Event.ADD_LATE
        if is_late.any():
            looped = np.logical_or.reduceat(is_late, starts)
            for key in np.flatnonzero(looped).tolist():
                places = np.arange(starts[key], ends[key])
                found[key] = _walked(codes[places].tolist(), is_valid(places).tolist(), int(starts[key]))
        return Choice(found, looped)


def _walked(codes: list[int], valid: list[bool], first: int) -> int:
    """first_non_null_value over the events of one key."""
    held, is_null, is_taken = -1, True, False
    for place, (code, is_valid) in enumerate(zip(codes, valid, strict=True), first):
        if code == Event.ADD and is_valid and not is_taken:
            held, is_null, is_taken = place, False, True
        elif code == Event.ADD_LATE and not is_taken and not is_null:
            is_taken = True
        elif code in _REPLACES:
            held, is_null = place, not is_valid
    return held


def _settles(codes: EventCodes, is_valid: Flags) -> Flags:
    """True for events after which nothing before them matters to last_non_null_value."""
    settles: Flags = (codes == Event.SET) | (is_valid & ((codes == Event.ADD) | (codes == Event.RETRACT)))
    return settles
