"""Random events of many keys, and what the oracle's functions make of them, for functions of numbers and of order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from freshet.storage.merge.aggregate.choosers import Chooser, SharedEvents
from freshet.storage.merge.aggregate.events import AggregationError, ColumnEvents, Event
from freshet.storage.merge.engine import aggregate_function
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.sql_type import parse_sql_type
from freshet.storage.options.engine import AggregateFunction, ColumnAggregate
from tests.kit.aggregate_oracles import CannotMerge, make_function

Events = list[tuple[Event, Any]]
REFUSED = "refused"


def random_keys(
    source: Random, value: Callable[[], Any], events: Sequence[Event], *, keys: int = 60, longest: int = 12
) -> list[Events]:
    """Keys with few events, and one with a hundred."""
    weights = [8 if event == Event.ADD else 3 if event == Event.ADD_LATE else 2 for event in events]
    lengths = [*(source.randint(1, longest) for _ in range(keys)), 100]
    source.shuffle(lengths)
    return [
        [(event, None if source.random() < 0.25 else value()) for event in source.choices(events, weights, k=length)]
        for length in lengths
    ]


def expected(name: str, type_text: str, events: Events) -> Any:
    """The accumulator after the events, or `REFUSED`."""
    function = make_function(name, type_text, {})
    accumulator: Any = None
    try:
        for event, x in events:
            if event == Event.ADD:
                accumulator = function.agg(accumulator, x)
            elif event == Event.ADD_LATE:
                accumulator = function.agg_reversed(accumulator, x)
            elif event == Event.RETRACT:
                accumulator = function.retract(accumulator, x)
            elif event == Event.SET:
                accumulator = x
    except CannotMerge:
        return REFUSED
    return accumulator


def reduced(name: str, type_text: str, keys: Sequence[Events]) -> list[Any]:
    """What the function makes of each key."""
    column_type = parse_sql_type(type_text)
    function = aggregate_function(ColumnAggregate(AggregateFunction(name)), "v", column_type)
    values = pa.array([value for key in keys for _, value in key], arrow_type(column_type))
    codes = np.array([event for key in keys for event, _ in key], np.int8)
    lengths = np.array([len(key) for key in keys], np.int64)
    starts = np.cumsum(lengths) - lengths
    if isinstance(function, Chooser):
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        choice = function.choose(SharedEvents(codes, starts), None if valid.all() else valid)
        assert len(choice.events) == len(choice.scalar_keys) == len(keys)
        chosen = choice.events.tolist()
        assert all(place < 0 or first <= place for place, first in zip(chosen, starts.tolist(), strict=True))
        listed = values.to_pylist()
        return [None if place < 0 else listed[place] for place in chosen]
    reduction = function.reduce(ColumnEvents(values, codes, starts))
    assert reduction.values.type == arrow_type(column_type)
    assert len(reduction.values) == len(reduction.scalar_keys) == len(keys)
    result: list[Any] = reduction.values.to_pylist()
    return result


def check(name: str, type_text: str, keys: Sequence[Events]) -> None:
    """All keys at once give what the oracle gives; keys that it refuses are refused one by one."""
    wanted = [expected(name, type_text, key) for key in keys]
    for key, result in zip(keys, wanted, strict=True):
        # What a SET throws away may have been refused by the oracle only.
        if result == REFUSED and all(event != Event.SET for event, _ in key):
            with pytest.raises(AggregationError) as caught:
                reduced(name, type_text, [key])
            assert 0 <= caught.value.event < len(key)
    merged = [(key, result) for key, result in zip(keys, wanted, strict=True) if result != REFUSED]
    found = reduced(name, type_text, [key for key, _ in merged])
    for (key, result), value in zip(merged, found, strict=True):
        assert exact(value) == exact(result), key


def exact(value: Any) -> Any:
    """A value as it is compared: -0.0 is not 0.0, NaN is NaN."""
    return value if isinstance(value, Decimal) else repr(value)
