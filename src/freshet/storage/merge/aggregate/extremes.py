"""max, min, bool_and, bool_or: the largest or smallest value in the order of the format.

bool_and is the smallest and bool_or the largest of booleans, false < true. NULL counts for nothing.

| values | compared as |
|---|---|
| BOOLEAN, integers, dates, times | numbers |
| FLOAT, DOUBLE | their bits, made monotone: -0.0 < 0.0, NaN largest |
| strings, bytes, DECIMAL | the words that order keys, one after the other, among the values that still tie |

Source: MERGING.md §0 (comparators), §2.6.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from freshet.storage.merge.aggregate.contributions import Contributions, CountedValues, counted_values
from freshet.storage.merge.aggregate.events import ColumnAggregator, ColumnEvents, Reduction
from freshet.storage.merge.gather import gathered
from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.sort_words import Positions, pack, sequence_words
from freshet.storage.model.value_bits import fixed_width, float_bits, from_fixed_width, has_fixed_width, ordered_bits
from freshet.storage.options.engine import AggregateFunction

_LARGEST: Final = frozenset({AggregateFunction.MAX, AggregateFunction.BOOL_OR})
_LOWEST: Final = -(1 << 63)
_HIGHEST: Final = (1 << 63) - 1
_SPAN_MAX: Final = _HIGHEST - 1
_FLOATS: Final[Mapping[int, type[Any]]] = {4: np.float32, 8: np.float64}


class Extreme(ColumnAggregator):
    """One of the four functions, for one column."""

    def _reduce(self, events: ColumnEvents) -> Reduction:
        counted = counted_values(events)
        choose = np.maximum if self.function.name in _LARGEST else np.minimum
        if not len(counted.starts):
            return counted.reduction(events.values)
        if pt.is_boolean(events.values.type):
            bits = replace(counted, values=events.values.cast(pa.int8()))
            return counted.reduction(_extreme_numbers(bits, choose).cast(pa.bool_()))
        if pt.is_decimal(events.values.type) or not has_fixed_width(events.values.type):
            positions = _extreme_positions(counted.contributions(), self.column, choose)
            return counted.reduction(gathered(events.values, positions, may_miss=True))
        return counted.reduction(_extreme_numbers(counted, choose))


def _extreme_numbers(counted: CountedValues, choose: np.ufunc) -> pa.Array[Any]:
    arrow_type = counted.values.type
    numbers = fixed_width(counted.values)
    if pt.is_floating(arrow_type):
        numbers = ordered_bits(float_bits(numbers.view(_FLOATS[numbers.dtype.itemsize])))
    extreme, has_values = _reduced(numbers, counted, choose)
    extreme = extreme.astype(numbers.dtype)
    return from_fixed_width(ordered_bits(extreme) if pt.is_floating(arrow_type) else extreme, arrow_type, has_values)


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
