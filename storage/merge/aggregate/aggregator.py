"""An aggregate function of one column, ready to reduce the events of many keys at once."""

from __future__ import annotations

from typing import Protocol

from storage.merge.aggregate.events import ColumnEvents, Reduction


class Aggregator(Protocol):
    """One function with its options and its column's type."""

    def reduce(self, events: ColumnEvents) -> Reduction:
        """The accumulator of each key after all its events.

        Segment operations for all keys that can be; a loop over the values of one key at a time for the others.
        Raises `AggregationError` for an event that the function cannot take: a retract, an overflow.
        """
        ...
