"""Aggregate functions as folds over Python values, one event at a time, to compare the vectorised ones with.

A `Fold` is what the fact sheet says of a function: `add(acc, x)` and `retract(acc, x)`; a late value is `add(x, acc)`
unless the function has an own rule. `column_events` writes keys and their events as arrays, the values as a slice of a
longer array, because that is how they come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from freshet.storage.merge.aggregate.events import ColumnAggregator, ColumnEvents, Event

Keys = Sequence[Sequence[tuple[Event, Any]]]
Binary = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Fold:
    """The rules of one function."""

    add: Binary
    retract: Binary | None = None
    late: Binary | None = None

    def result(self, events: Sequence[tuple[Event, Any]]) -> Any:
        acc = None
        for event, x in events:
            match event:
                case Event.ADD:
                    acc = self.add(acc, x)
                case Event.ADD_LATE:
                    acc = self.late(acc, x) if self.late else self.add(x, acc)
                case Event.RETRACT:
                    assert self.retract is not None
                    acc = self.retract(acc, x)
                case Event.SET:
                    acc = x
        return acc


def column_events(keys: Keys, kind: pa.DataType, padding: Any = None) -> ColumnEvents:
    """The events of these keys; the values are a slice with `padding` before and after it."""
    values = [value for key in keys for _, value in key]
    codes = np.array([event for key in keys for event, _ in key], np.int8)
    lengths = np.array([len(key) for key in keys], np.int64)
    array = pa.array([padding, padding, *values, padding], kind).slice(2, len(values))
    return ColumnEvents(array, codes, np.cumsum(lengths) - lengths)


def reduced(aggregator: ColumnAggregator, keys: Keys, kind: pa.DataType, padding: Any = None) -> list[Any]:
    """What the aggregator makes of the keys, checked to be of the column's type and valid."""
    events = column_events(keys, kind, padding)
    reduction = aggregator.reduce(events)
    assert reduction.values.type.equals(kind)
    assert len(reduction.values) == len(reduction.scalar_keys) == len(keys)
    reduction.values.validate(full=True)
    return reduction.values.to_pylist()


def added(*values: Any) -> list[tuple[Event, Any]]:
    """One key to which these values are added."""
    return [(Event.ADD, value) for value in values]


def keys_of(values: st.SearchStrategy[Any], *events: Event, key_count_max: int = 5) -> st.SearchStrategy[Any]:
    """Some keys with some of these events each (SKIP among them)."""
    event = st.tuples(st.sampled_from([Event.SKIP, *events]), st.none() | values)
    return st.lists(st.lists(event, min_size=1, max_size=7), max_size=key_count_max)
