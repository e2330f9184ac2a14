"""An aggregate function of one column, ready to reduce the events of many keys at once.

A function is one of two things. An `Aggregator` computes values out of values. A `Chooser` only says which event's
value stands: it never looks at values, works for every type, and the engine gathers no value it does not need.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from freshet.storage.merge.aggregate.events import Choice, ColumnEvents, EventCourse, Flags, Reduction


class Aggregator(Protocol):
    """One function with its options and its column's type."""

    def reduce(self, events: ColumnEvents) -> Reduction:
        """The accumulator of each key after all its events.

        Segment operations for all keys that can be; a loop over the values of one key at a time for the others.
        Raises `AggregationError` for an event that the function cannot take: a retract, an overflow.
        """
        ...


class ColumnAggregator(Aggregator, Protocol):
    """An aggregator as engines get it."""

    @property
    def keeps_lone_value(self) -> bool:
        """True if a single ADD always gives the value as it is."""
        ...


@runtime_checkable
class Chooser(Protocol):
    """A function whose result is always the value of one event, or NULL. It keeps a single value as it is."""

    def choose(self, course: EventCourse, valid: Flags | None) -> Choice:
        """The event whose value stands, per key. `valid` is False for NULL; None if no value is."""
        ...
