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

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from storage.engine_options import AggregateFunction, ColumnFunction
from storage.merge.aggregate.contributions import Contributions, contributions
from storage.merge.aggregate.events import ColumnEvents, Positions, Reduction
from storage.merge.sort_words import pack, sequence_words
from storage.model.data_type import DataType

_LARGEST: Final = frozenset({AggregateFunction.MAX, AggregateFunction.BOOL_OR})
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
        counted = contributions(events)
        values = counted.values
        choose = np.maximum if self.function.name in _LARGEST else np.minimum
        if not len(values):
            result: pa.Array[Any] = pa.nulls(len(counted.starts), values.type)
        elif _is_numeric(values.type):
            result = _spread(_extreme_numbers(values, counted.starts[counted.has_values], choose), counted)
        else:
            positions = np.full(len(counted.starts), -1, np.int64)
            positions[counted.has_values] = _extreme_positions(values, counted, self.column, choose)
            result = values.take(pa.array(positions, mask=positions < 0))
        return Reduction(result, np.zeros(len(counted.starts), np.bool_))


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind) or pt.is_temporal(kind))


def _extreme_numbers(values: pa.Array[Any], starts: Positions, choose: np.ufunc) -> pa.Array[Any]:
    kind = values.type
    if pt.is_boolean(kind):
        return pa.array(choose.reduceat(values.cast(pa.int8()).to_numpy(), starts)).cast(kind)
    if pt.is_floating(kind):
        floats = values.to_numpy().astype(np.float64, copy=False)
        bits = np.where(np.isnan(floats), _NAN_BITS, floats.view(np.int64))
        extreme = _flipped(choose.reduceat(_flipped(bits), starts)).view(np.float64)
        return pa.array(extreme.astype(kind.to_pandas_dtype()), kind)
    if pt.is_temporal(kind):
        plain: pa.DataType = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.array(choose.reduceat(values.view(plain).to_numpy(), starts), plain).view(kind)
    return pa.array(choose.reduceat(values.to_numpy(), starts), kind)


def _flipped(bits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Between the bits of floats and integers of the same order; its own inverse."""
    flipped: npt.NDArray[np.int64] = bits ^ ((bits >> 63) & _MAGNITUDE)
    return flipped


def _spread(values: pa.Array[Any], counted: Contributions) -> pa.Array[Any]:
    """One value per key, NULL for keys without any."""
    if len(values) == len(counted.starts):
        return values
    positions = np.cumsum(counted.has_values) - 1
    return values.take(pa.array(positions, mask=~counted.has_values))


def _extreme_positions(values: pa.Array[Any], counted: Contributions, column: str, choose: np.ufunc) -> Positions:
    """The position of the extreme value of each key that has one."""
    lengths = counted.lengths[counted.has_values]
    positions = np.arange(len(values))
    for words in pack(sequence_words(values, column, descending=False)):
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
