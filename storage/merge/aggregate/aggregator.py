"""An aggregate function of one column, ready to reduce the events of many keys at once.

A function is one of two things. An `Aggregator` computes values out of values. A `Chooser` only says which event's
value stands: it never looks at values, works for every type, and the engine gathers no value it does not need.

`make_aggregator` makes the function of a column from its options, behind the rule for retracts that all share:

| function | RETRACT |
|---|---|
| with `ignore-retract` | nothing happens |
| that takes retracts | the function's own rule |
| any other | refused, whatever the value |

Source: MERGING.md §2.6.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol, runtime_checkable

import numpy as np

from freshet.storage.merge.aggregate.collect import Collect
from freshet.storage.merge.aggregate.events import (
    AggregationError,
    Choice,
    ColumnEvents,
    Event,
    EventCodes,
    Reduction,
    SharedEvents,
)
from freshet.storage.merge.aggregate.extremes import Extreme
from freshet.storage.merge.aggregate.merge_map import MergeMap, MergeMapWithKeyTime
from freshet.storage.merge.aggregate.nested import NestedPartialUpdate, NestedUpdate
from freshet.storage.merge.aggregate.ordered import FirstNonNullValue, FirstValue, LastNonNullValue, LastValue
from freshet.storage.merge.aggregate.product import Product
from freshet.storage.merge.aggregate.serialized import SerializedUnion
from freshet.storage.merge.aggregate.sum import Sum
from freshet.storage.merge.aggregate.text import ListAgg
from freshet.storage.merge.key_order import Flags
from freshet.storage.model.data_type import DataType
from freshet.storage.options.aggregate_function import CAPABILITIES, AggregateFunction, ColumnAggregate


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

    def choose(self, events: SharedEvents, valid: Flags | None) -> Choice:
        """The event whose value stands, per key. `valid` is False for NULL; None if no value is."""
        ...


_CHOOSERS: Final[Mapping[AggregateFunction, Chooser]] = {
    AggregateFunction.LAST_VALUE: LastValue(),
    AggregateFunction.LAST_NON_NULL_VALUE: LastNonNullValue(),
    AggregateFunction.FIRST_VALUE: FirstValue(),
    AggregateFunction.FIRST_NON_NULL_VALUE: FirstNonNullValue(),
}

_AGGREGATORS: Final[Mapping[AggregateFunction, Callable[[ColumnAggregate, str, DataType], Aggregator]]] = {
    AggregateFunction.SUM: Sum,
    AggregateFunction.PRODUCT: Product,
    AggregateFunction.MAX: Extreme,
    AggregateFunction.MIN: Extreme,
    AggregateFunction.BOOL_AND: Extreme,
    AggregateFunction.BOOL_OR: Extreme,
    AggregateFunction.LISTAGG: ListAgg,
    AggregateFunction.COLLECT: Collect,
    AggregateFunction.MERGE_MAP: MergeMap,
    AggregateFunction.MERGE_MAP_WITH_KEYTIME: MergeMapWithKeyTime,
    AggregateFunction.NESTED_UPDATE: NestedUpdate,
    AggregateFunction.NESTED_PARTIAL_UPDATE: NestedPartialUpdate,
    AggregateFunction.RBM32: SerializedUnion,
    AggregateFunction.RBM64: SerializedUnion,
    AggregateFunction.HLL_SKETCH: SerializedUnion,
    AggregateFunction.THETA_SKETCH: SerializedUnion,
}


def make_aggregator(function: ColumnAggregate, column: str, column_type: DataType) -> ColumnAggregator | Chooser:
    """The function of a column of this type; which types a function takes was checked when the table was created."""
    if function.name in _CHOOSERS:
        return _CheckedChooser(function, column, _CHOOSERS[function.name])
    return _CheckedAggregator(function, column, _AGGREGATORS[function.name](function, column, column_type))


def takes_retracts(function: ColumnAggregate) -> bool:
    """False if a retract is refused."""
    return function.ignore_retract or CAPABILITIES[function.name].takes_retracts


@dataclass(frozen=True, slots=True)
class _CheckedAggregator:
    """A `ColumnAggregator`: the function behind the rule for retracts."""

    function: ColumnAggregate
    column: str
    inner: Aggregator

    @property
    def keeps_lone_value(self) -> bool:
        return CAPABILITIES[self.function.name].keeps_lone_value

    def reduce(self, events: ColumnEvents) -> Reduction:
        codes = _admitted(events.codes, self.function, self.column)
        return self.inner.reduce(events if codes is events.codes else replace(events, codes=codes))


@dataclass(frozen=True, slots=True)
class _CheckedChooser:
    """A `Chooser` behind the rule for retracts."""

    function: ColumnAggregate
    column: str
    inner: Chooser

    def choose(self, events: SharedEvents, valid: Flags | None) -> Choice:
        codes = _admitted(events.codes, self.function, self.column)
        return self.inner.choose(events if codes is events.codes else SharedEvents(codes, events.starts), valid)


def _admitted(codes: EventCodes, function: ColumnAggregate, column: str) -> EventCodes:
    """The events that reach the function."""
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
