"""sum.

| acc | x | ADD | RETRACT |
|---|---|---|---|
| NULL | NULL | NULL | NULL |
| NULL | x | x | -x |
| acc | NULL | acc | acc |
| acc | x | acc + x | acc - x |

| type | arithmetic |
|---|---|
| integers | an overflow is refused where it happens, at whatever row |
| FLOAT, DOUBLE | IEEE, in the order of the rows, FLOAT in 32 bits |
| DECIMAL p <= 18 | 64-bit unscaled numbers, whose digits are not counted; beyond 64 bits NULL |
| DECIMAL p > 18 | NULL beyond p digits |

After an overflow to NULL the next value starts again. Sums of integers and decimals are segment sums, and checked step
by step only where the sum of magnitudes could overflow; floats go in step through all keys
(`contributions.folded`). Key by key go decimals that came near an overflow.

Decimals as integers: the 128 bits of an Arrow decimal in two halves, and their sums.

value = high * 2**64 + low      unscaled, two's complement: high signed, low unsigned

Source: MERGING.md §2.6.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from freshet.storage.merge.aggregate.contributions import (
    Contributions,
    CountedValues,
    Numbers,
    counted_values,
    folded_floats,
)
from freshet.storage.merge.aggregate.events import AggregationError, ColumnAggregator, ColumnEvents, Reduction
from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.arrow_types import numpy_type
from freshet.storage.model.value_bits import fixed_width, from_fixed_width

Int64s = npt.NDArray[np.int64]

_LONG_DIGITS: Final = 18
_LIMB: Final = np.int64((1 << 32) - 1)
_NEAR: Final = 1 - 1e-9
"""Magnitudes are estimated as floats; this close to a bound the exact way is taken."""

_Halves = npt.NDArray[np.int64]
"""Shape (n, 2): low and high half of each value, both as signed numbers."""

_LIMB_BITS: Final = 32


class Sum(ColumnAggregator):
    """sum of one column."""

    def _reduce(self, events: ColumnEvents) -> Reduction:
        counted = counted_values(events)
        arrow_type = counted.values.type
        if not len(counted.starts):
            return counted.reduction(counted.values)
        if pt.is_floating(arrow_type):
            return _float_sums(counted)
        if pt.is_decimal(arrow_type):
            return _decimal_sums(counted)
        overflow = f"the sum overflows {self.type}; give column {self.column} a wider type"
        return _integer_sums(counted, overflow)


def _integer_sums(counted: CountedValues, overflow: str) -> Reduction:
    arrow_type = counted.values.type
    bounds = np.iinfo(numpy_type(arrow_type))
    numbers = fixed_width(counted.values)
    sums = _plain_sums(numbers, counted, int(bounds.max))
    if sums is not None:
        values, has_values = sums
        return counted.reduction(from_fixed_width(values.astype(numbers.dtype), arrow_type, has_values))
    few = counted.contributions()
    checked, outside = _checked_sums(few.longs, few, int(bounds.min), int(bounds.max))
    if outside is not None:
        raise AggregationError(few.event_of(int(np.flatnonzero(outside)[0])), overflow)
    return few.reduction(pa.array(checked, arrow_type))


def _plain_sums(numbers: Numbers, counted: CountedValues, highest: int) -> tuple[Int64s, Flags | None] | None:
    """The sum of each key and which keys have a value; None if a sum could leave the bounds on the way."""
    if counted.counts is not None:
        numbers = numbers * counted.counts
    bound = max(int(numbers.max()), -int(numbers.min())) * counted.longest
    if bound > highest:
        return None
    numbers = numbers.astype(np.int64, copy=False)
    if counted.takes_away is not None:
        numbers = np.where(counted.takes_away, -numbers, numbers)
    if counted.counts is None:
        return _segment_sums(numbers, counted.ends), None
    bits = counted.longest.bit_length()
    if bound << bits >= 1 << 62:
        return _segment_sums(numbers, counted.ends), counted.has_values
    # Each number carries a 1 in its low bits if it is a value, 0 if it is NULL, so that one segment sum gives both the
    # sum and the number of values. Of 5, NULL, -2 with two low bits: 5 * 4 + 1, 0, -2 * 4 + 1 add up to 14, which is
    # 3 * 4 + 2: the sum is 3, of two values. No key has more values than the low bits count.
    sums = _segment_sums((numbers << bits) | counted.counts, counted.ends)
    return sums >> bits, (sums & ((1 << bits) - 1)) != 0


def _segment_sums(numbers: Int64s, ends: Positions) -> Int64s:
    """Running sums may wrap around, their differences come out right."""
    upto = np.cumsum(numbers).take(ends - 1)
    sums = upto.copy()
    sums[1:] -= upto[:-1]
    return sums


def _checked_sums(numbers: Int64s, counted: Contributions, lowest: int, highest: int) -> tuple[Int64s, Flags | None]:
    """The sum of each key that has values, and where a sum so far left the bounds, if one did."""
    starts = counted.starts[counted.has_values]
    if not len(numbers):
        return np.zeros(0, np.int64), None
    # Both halves of a number are summed up for themselves, so that nothing is lost beyond 64 bits.
    high, low = numbers >> 32, numbers & _LIMB
    if counted.takes_away is not None:
        high, low = np.where(counted.takes_away, -high, high), np.where(counted.takes_away, -low, low)
    high, low = _running(high, counted), _running(low, counted)
    high += low >> 32
    low &= _LIMB
    wraps = (high < -(1 << 31)) | (high >= 1 << 31)
    sums = (high << 32) | low
    outside = wraps | (sums < lowest) | (sums > highest)
    ends = starts + counted.lengths[counted.has_values]
    return sums[ends - 1], outside if outside.any() else None


def _running(numbers: Int64s, counted: Contributions) -> Int64s:
    """The sum of each value's key so far."""
    total = np.cumsum(numbers)
    starts = counted.starts[counted.has_values]
    before = total[starts] - numbers[starts]
    running: Int64s = total - np.repeat(before, counted.lengths[counted.has_values])
    return running


def _float_sums(counted: CountedValues) -> Reduction:
    arrow_type = counted.values.type
    bits = fixed_width(counted.values)
    sign = np.iinfo(bits.dtype).min
    if counted.counts is not None:
        # Where a value does not count it becomes -0.0: to add it changes nothing, not even another -0.0.
        bits = bits ^ sign
        bits *= counted.counts
        bits ^= sign
    if counted.takes_away is not None:
        bits = np.where(counted.takes_away & (counted.counts is None or counted.counts), bits ^ sign, bits)
    numbers = bits.view(numpy_type(arrow_type))
    sums = folded_floats(
        numbers,
        counted.starts,
        counted.ends - counted.starts,
        lambda acc, at: acc + numbers[at],
        lambda part, _: np.add.accumulate(part)[-1],
    )
    return counted.reduction(from_fixed_width(sums, arrow_type, counted.has_values))


def _decimal_sums(counted: CountedValues) -> Reduction:
    arrow_type = counted.values.type
    halves = fixed_width(counted.values)
    limit = 10**arrow_type.precision
    low = np.ascontiguousarray(halves[:, 0])
    if arrow_type.precision <= _LONG_DIGITS or not (halves[:, 1] != low >> 63).any():
        # Up to these sums, no digits are lost whatever the precision is.
        sums = _plain_sums(low, counted, min(limit, 1 << 63) - 1)
        if sums is not None:
            return counted.reduction(_from_longs(sums[0], arrow_type, sums[1]))
    few = counted.contributions()
    halves, has_values = fixed_width(few.values), few.has_values
    starts, lengths = few.starts[has_values], few.lengths[has_values]
    if not len(starts):
        return few.reduction(few.values)
    if arrow_type.precision <= _LONG_DIGITS:
        bounds = (-(1 << 63), (1 << 63) - 1)
        longs, outside = _checked_sums(halves[:, 0], few, *bounds)
        too_large = (halves[:, 0] >= limit) | (halves[:, 0] <= -limit)
        near = too_large if outside is None else too_large | outside
        near = np.logical_or.reduceat(near, starts)
        results = _from_longs(longs, arrow_type, None)
    else:
        bounds = (1 - limit, limit - 1)
        near = np.add.reduceat(_magnitudes(halves), starts) >= limit * _NEAR
        results = from_fixed_width(segment_sums(halves, few.takes_away, starts), arrow_type, None)

    def total(key: int) -> int | None:
        return _decimal_total(signed_values(halves, few.takes_away, starts[key], lengths[key]), limit, *bounds)

    return few.reduction(with_scalar_results(results, near, total), near)


def _decimal_total(signed: Iterable[tuple[int, bool]], limit: int, lowest: int, highest: int) -> int | None:
    """The sum of one key, in order: NULL on overflow, and the next value starts again."""
    total: int | None = None
    for number, takes_away in signed:
        if total is None and not takes_away:
            total = number
        elif total is None:
            total = -number if abs(number) < limit else None
        else:
            total += -number if takes_away else number
            if not lowest <= total <= highest:
                total = total if abs(total) < limit else None
    return total


def _from_longs(longs: npt.NDArray[np.int64], arrow_type: pa.DataType, valid: Flags | None) -> pa.Array[Any]:
    """Decimals of unscaled 64-bit numbers."""
    return from_fixed_width(np.stack([longs, longs >> 63], axis=1), arrow_type, valid)


def _unscaled(halves: _Halves) -> list[int]:
    """The unscaled values as Python integers."""
    lows: list[int] = halves[:, 0].astype(np.uint64).tolist()
    highs: list[int] = halves[:, 1].tolist()
    return [(high << 64) + low for low, high in zip(lows, highs, strict=True)]


def _magnitudes(halves: _Halves) -> npt.NDArray[np.float64]:
    """About how large values are, whatever their sign."""
    size: npt.NDArray[np.float64] = np.abs(halves[:, 1] * 2.0**64 + halves[:, 0].astype(np.uint64).astype(np.float64))
    return size


def segment_sums(halves: _Halves, negated: Flags | None, starts: Positions) -> _Halves:
    """The sum of each segment, modulo 2**128. No segment is empty."""
    low, high = halves[:, 0], halves[:, 1]
    # Four limbs of 32 bits are summed each for itself, which leaves room for 2**31 values, then carried over.
    limbs = (low & _LIMB, (low >> _LIMB_BITS) & _LIMB, high & _LIMB, high >> _LIMB_BITS)
    if negated is not None:
        limbs = tuple(np.where(negated, -limb, limb) for limb in limbs)  # type: ignore[assignment]
    sums = [np.add.reduceat(limb, starts) for limb in limbs]
    for index in range(3):
        sums[index + 1] += sums[index] >> _LIMB_BITS
        sums[index] &= _LIMB
    return np.stack([sums[0] | sums[1] << _LIMB_BITS, sums[2] | sums[3] << _LIMB_BITS], axis=1)


def signed_values(halves: _Halves, takes_away: Flags | None, start: int, length: int) -> Iterable[tuple[int, bool]]:
    """Unscaled values of one key, and whether each is taken away."""
    part = slice(int(start), int(start + length))
    flags = [False] * int(length) if takes_away is None else takes_away[part].tolist()
    return zip(_unscaled(halves[part]), flags, strict=True)


def with_scalar_results(
    results: pa.Array[Any], scalar_keys: Flags, result_of: Callable[[int], int | None]
) -> pa.Array[Any]:
    """The decimals, with those of the keys of the scalar path computed one by one."""
    keys = np.flatnonzero(scalar_keys).tolist()
    if not keys:
        return results
    numbers = [result_of(key) for key in keys]
    halves = fixed_width(results).copy()
    halves[keys, 0] = np.array([(number or 0) & 0xFFFFFFFFFFFFFFFF for number in numbers], np.uint64).view(np.int64)
    halves[keys, 1] = [(number or 0) >> 64 for number in numbers]
    valid = np.ones(len(halves), np.bool_)
    valid[keys] = [number is not None for number in numbers]
    return from_fixed_width(halves, results.type, valid)
