"""max, min, bool_and, bool_or: the largest or smallest value in the order of the format.

bool_and is the smallest and bool_or the largest of booleans, false < true. NULL counts for nothing.

| values | compared as |
|---|---|
| BOOLEAN, integers, dates, times | numbers |
| FLOAT, DOUBLE | their bits, made monotone: -0.0 < 0.0, NaN largest |
| strings, bytes, DECIMAL | the words that order keys, one after the other, among the values still level |

Source: LSM semantics §0 (comparators), §2.6.1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from storage.engine_options import AggregateFunction, ColumnFunction
from storage.merge.aggregate.contributions import Contributions, CountedValues, counted_values
from storage.merge.aggregate.events import ColumnEvents, Flags, Positions, Reduction
from storage.merge.gather import fixed_width, from_fixed_width, gathered
from storage.merge.sort_words import pack, sequence_words
from storage.model.data_type import DataType

_LARGEST: Final = frozenset({AggregateFunction.MAX, AggregateFunction.BOOL_OR})
_LOWEST: Final = -(1 << 63)
_HIGHEST: Final = (1 << 63) - 1
_SPAN_MAX: Final = _HIGHEST - 1
_NAN_BITS: Final = np.int64(0x7FF8000000000000)
_MAGNITUDE: Final = np.int64(0x7FFFFFFFFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Extreme:
    """One of the four functions, for one column."""

    function: ColumnFunction
    column: str
    type: DataType

    def reduce(self, events: ColumnEvents) -> Reduction:
        """The extreme value of each key."""
        counted = counted_values(events)
        choose = np.maximum if self.function.name in _LARGEST else np.minimum
        if not len(counted.starts):
            return counted.reduction(events.values)
        if pt.is_boolean(events.values.type):
            bits = replace(counted, values=events.values.cast(pa.int8()))
            return counted.reduction(_extreme_numbers(bits, choose).cast(pa.bool_()))
        if pt.is_decimal(events.values.type) or fixed_width(events.values) is None:
            positions = _extreme_positions(counted.contributions(), self.column, choose)
            return counted.reduction(gathered(events.values, positions, may_miss=True))
        return counted.reduction(_extreme_numbers(counted, choose))


def _extreme_numbers(counted: CountedValues, choose: np.ufunc) -> pa.Array[Any]:
    kind = counted.values.type
    numbers = fixed_width(counted.values)
    assert numbers is not None
    is_float = pt.is_floating(kind)
    if is_float:
        floats = counted.values.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        numbers = _flipped(np.where(np.isnan(floats), _NAN_BITS, floats.view(np.int64)))
    extreme, has_values = _reduced(numbers, counted, choose)
    if is_float:
        extreme = _flipped(extreme).view(np.float64)
        with np.errstate(invalid="ignore"):  # what stands for keys without a value need not be a number
            return from_fixed_width(extreme.astype(kind.to_pandas_dtype()), kind, has_values)
    return from_fixed_width(extreme.astype(numbers.dtype), kind, has_values)


def _reduced(
    numbers: npt.NDArray[Any], counted: CountedValues, choose: np.ufunc
) -> tuple[npt.NDArray[Any], Flags | None]:
    """The extreme number of each key, and which keys have one."""
    if counted.counts is None:
        return choose.reduceat(numbers, counted.starts), None
    low, high = int(numbers.min()), int(numbers.max())
    is_max = choose is np.maximum
    if high - low >= _SPAN_MAX or (low == _LOWEST if is_max else high == _HIGHEST):
        bounds = np.iinfo(numbers.dtype)
        least = numbers.dtype.type(bounds.min if is_max else bounds.max)
        return choose.reduceat(np.where(counted.counts, numbers, least), counted.starts), counted.has_values
    # Ranks from 1 on, the better the larger, and 0 where a value does not count: the largest one also says whether
    # there is any. To choose values by a random mask costs three times as much as these two operations.
    ranks = numbers - np.int64(low - 1) if is_max else np.int64(high + 1) - numbers
    best = np.maximum.reduceat(ranks * counted.counts, counted.starts)
    return best + np.int64(low - 1) if is_max else np.int64(high + 1) - best, best > 0


def _flipped(bits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Between the bits of floats and integers of the same order; its own inverse."""
    flipped: npt.NDArray[np.int64] = bits ^ ((bits >> 63) & _MAGNITUDE)
    return flipped


def _extreme_positions(counted: Contributions, column: str, choose: np.ufunc) -> Positions:
    """The event with the extreme value of each key, -1 for keys without any."""
    found = np.full(len(counted.starts), -1, np.int64)
    if len(counted.values):
        positions = _level_positions(counted, column, choose)
        found[counted.has_values] = positions if counted.events is None else counted.events[positions]
    return found


def _level_positions(counted: Contributions, column: str, choose: np.ufunc) -> Positions:
    lengths = counted.lengths[counted.has_values]
    positions = np.arange(len(counted.values))
    for words in pack(sequence_words(counted.values, column, descending=False)):
        for index in range(words.count):
            if len(positions) == len(lengths):
                return positions
            word = words.word(index, positions)
            starts = np.cumsum(lengths) - lengths
            is_level = word == np.repeat(choose.reduceat(word, starts), lengths)
            positions = positions[is_level]
            lengths = np.add.reduceat(is_level, starts, dtype=np.int64)
    first: Positions = positions[np.cumsum(lengths) - lengths]
    return first
