"""sum and product.

| acc | x | sum ADD | sum RETRACT | product ADD | product RETRACT |
|---|---|---|---|---|---|
| NULL | NULL | NULL | NULL | NULL | NULL |
| NULL | x | x | -x | x | NULL |
| acc | NULL | acc | acc | acc | acc |
| acc | x | acc + x | acc - x | acc * x | acc / x |

| type | arithmetic |
|---|---|
| integers | an overflow is refused where it happens, at whatever row; division cuts toward zero, by zero is refused |
| FLOAT, DOUBLE | IEEE, in the order of the rows, FLOAT in 32 bits |
| DECIMAL p <= 18, sum | 64-bit unscaled numbers, whose digits are not counted; beyond 64 bits NULL |
| DECIMAL p > 18, sum | NULL beyond p digits |
| DECIMAL, product | half up to the scale, NULL beyond p digits; a quotient that does not terminate is refused |

After an overflow to NULL the next value starts again. Sums of integers and decimals are segment sums, and checked step
by step only where the sum of magnitudes could overflow; floats, and products of numbers, go in step through all keys
(`in_order`). Key by key go decimals that came near an overflow, products of decimals, and products of very many values.

Source: LSM semantics §2.6.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from storage.engine_options import ColumnFunction
from storage.merge.aggregate.contributions import Contributions, CountedValues, counted_values
from storage.merge.aggregate.decimals import (
    from_halves,
    from_longs,
    from_unscaled,
    halves_of,
    magnitudes,
    segment_sums,
    unscaled,
)
from storage.merge.aggregate.events import AggregationError, ColumnEvents, Flags, Positions, Reduction
from storage.merge.aggregate.in_order import folded
from storage.merge.gather import fixed_width, from_fixed_width
from storage.merge.place_search import first_marked
from storage.model.data_type import DataType

Int64s = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]

_LONG_DIGITS: Final = 18
_LIMB: Final = np.int64((1 << 32) - 1)
_BY_ZERO: Final = "the product is divided by zero, by a row of kind -U or -D; use sum, or ignore-retract"
_NEAR: Final = 1 - 1e-9
"""Magnitudes are estimated as floats; this close to a bound the exact way is taken."""


@dataclass(frozen=True, slots=True)
class Sum:
    """sum of one column."""

    function: ColumnFunction
    column: str
    type: DataType

    def reduce(self, events: ColumnEvents) -> Reduction:
        """The sum of each key."""
        counted = counted_values(events)
        kind = counted.values.type
        if not len(counted.starts):
            return counted.reduction(counted.values)
        if pt.is_floating(kind):
            return _float_sums(counted)
        if pt.is_decimal(kind):
            return _decimal_sums(counted)
        overflow = f"the sum overflows {self.type}; give column {self.column} a wider type"
        return _integer_sums(counted, overflow)


@dataclass(frozen=True, slots=True)
class Product:
    """product of one column."""

    function: ColumnFunction
    column: str
    type: DataType

    def reduce(self, events: ColumnEvents) -> Reduction:
        """The product of each key."""
        counted = _from_first_add(counted_values(events).contributions())
        kind = counted.values.type
        if pt.is_decimal(kind):
            return _decimal_products(counted)
        if pt.is_floating(kind):
            return _float_products(counted)
        return _integer_products(counted, f"the product overflows {self.type}; give column {self.column} a wider type")


# Sums


def _integer_sums(counted: CountedValues, overflow: str) -> Reduction:
    kind = counted.values.type
    bounds = np.iinfo(kind.to_pandas_dtype())
    numbers = fixed_width(counted.values)
    assert numbers is not None
    sums = _plain_sums(numbers, counted, int(bounds.max))
    if sums is not None:
        values, has_values = sums
        return counted.reduction(from_fixed_width(values.astype(numbers.dtype), kind, has_values))
    few = counted.contributions()
    checked, outside = _checked_sums(_longs(few), few, int(bounds.min), int(bounds.max))
    if outside is not None:
        raise AggregationError(few.event_of(int(np.flatnonzero(outside)[0])), overflow)
    return few.reduction(pa.array(checked, kind))


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
    # The sums of the low bits are numbers of values: that saves a pass.
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
    """Of each value the sum of its key so far."""
    total = np.cumsum(numbers)
    starts = counted.starts[counted.has_values]
    before = total[starts] - numbers[starts]
    running: Int64s = total - np.repeat(before, counted.lengths[counted.has_values])
    return running


def _float_sums(counted: CountedValues) -> Reduction:
    kind = counted.values.type
    bits = fixed_width(counted.values)
    assert bits is not None
    sign = np.iinfo(bits.dtype).min
    if counted.counts is not None:
        # Where a value does not count it becomes -0.0: to add it changes nothing, not even another -0.0.
        bits = bits ^ sign
        bits *= counted.counts
        bits ^= sign
    if counted.takes_away is not None:
        bits = np.where(counted.takes_away & (counted.counts is None or counted.counts), bits ^ sign, bits)
    numbers = bits.view(kind.to_pandas_dtype())
    sums = _float_fold(
        numbers,
        counted.starts,
        counted.ends - counted.starts,
        lambda acc, at: acc + numbers[at],
        lambda part, _: np.add.accumulate(part)[-1],
    )
    return counted.reduction(from_fixed_width(sums, kind, counted.has_values))


def _decimal_sums(counted: CountedValues) -> Reduction:
    kind = counted.values.type
    halves = halves_of(counted.values)
    limit = 10**kind.precision
    low = np.ascontiguousarray(halves[:, 0])
    if kind.precision <= _LONG_DIGITS or not (halves[:, 1] != low >> 63).any():
        # Up to these sums, no digits are lost whatever the precision is.
        sums = _plain_sums(low, counted, min(limit, 1 << 63) - 1)
        if sums is not None:
            return counted.reduction(from_longs(sums[0], kind, sums[1]))
    few = counted.contributions()
    halves, has_values = halves_of(few.values), few.has_values
    starts, lengths = few.starts[has_values], few.lengths[has_values]
    if not len(starts):
        return few.reduction(few.values)
    if kind.precision <= _LONG_DIGITS:
        bounds = (-(1 << 63), (1 << 63) - 1)
        longs, outside = _checked_sums(halves[:, 0], few, *bounds)
        too_large = (halves[:, 0] >= limit) | (halves[:, 0] <= -limit)
        near = too_large if outside is None else too_large | outside
        near = np.logical_or.reduceat(near, starts)
        results = from_longs(longs, kind)
    else:
        bounds = (1 - limit, limit - 1)
        near = np.add.reduceat(magnitudes(halves), starts) >= limit * _NEAR
        results = from_halves(segment_sums(halves, few.takes_away, starts), kind)

    def total(key: int) -> int | None:
        return _decimal_total(_signed(halves, few, starts[key], lengths[key]), limit, *bounds)

    return few.reduction(_replaced(results, near, total), near)


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


# Products


def _from_first_add(counted: Contributions) -> Contributions:
    """Without the retracts of each key that come before its first add: dividing nothing gives nothing."""
    takes_away = counted.takes_away
    if takes_away is None:
        return counted
    ends = counted.starts + counted.lengths
    first = first_marked(~takes_away, counted.starts, ends)
    return replace(counted, starts=np.maximum(first, 0), lengths=np.where(first < 0, 0, ends - first))


def _integer_products(counted: Contributions, overflow: str) -> Reduction:
    numbers = _longs(counted)
    kind = counted.values.type
    bounds = np.iinfo(kind.to_pandas_dtype())
    lowest, highest = int(bounds.min), int(bounds.max)
    has_values = counted.has_values
    starts, lengths = counted.starts[has_values], counted.lengths[has_values]
    takes_away = counted.takes_away

    def refuse(places: Positions, is_bad: Flags, reason: str) -> None:
        if is_bad.any():
            raise AggregationError(counted.event_of(int(places[np.flatnonzero(is_bad)[0]])), reason)

    def step(products: Numbers, at: Positions) -> Numbers:
        factors = numbers[at]
        results = products * factors
        outside = _near_overflow(products, factors)
        if takes_away is not None and (divides := takes_away[at]).any():
            refuse(at, divides & (factors == 0), _BY_ZERO)
            results = np.where(divides, _quotients(products, np.where(divides, factors, 1)), results)
            outside = np.where(divides, (products == -(1 << 63)) & (factors == -1), outside)
        refuse(at, outside | (results < lowest) | (results > highest), overflow)
        return np.asarray(results)

    products, is_long = folded(numbers[starts], starts, lengths, step)
    for key in np.flatnonzero(is_long).tolist():
        product = products[key : key + 1]
        for place in range(int(starts[key]) + 1, int(starts[key] + lengths[key])):
            product = step(product, np.array([place]))
        products[key] = product[0]
    return counted.reduction(pa.array(products, kind), is_long)


def _near_overflow(left: Int64s, right: Int64s) -> Flags:
    """True where a product of 64-bit numbers leaves 64 bits."""
    outside: Flags = np.abs(left.astype(np.float64) * right.astype(np.float64)) >= 2.0**63 * _NEAR
    for index in np.flatnonzero(outside).tolist():
        outside[index] = not -(1 << 63) <= int(left[index]) * int(right[index]) < 1 << 63
    return outside


def _quotients(left: Int64s, right: Int64s) -> Int64s:
    """Division toward zero; nobody divides by zero, and the lowest number by -1 gives anything."""
    by = np.where(right == -1, 1, right)
    floors = left // by
    exact = floors * by == left
    cut = floors + (~exact & ((left < 0) != (by < 0)))
    quotients: Int64s = np.where(right == -1, -left, cut)
    return quotients


def _float_products(counted: Contributions) -> Reduction:
    numbers = counted.values.to_numpy()
    takes_away, has_values = counted.takes_away, counted.has_values

    def step(products: Numbers, at: Positions) -> Numbers:
        if takes_away is None:
            return np.asarray(products * numbers[at])
        return np.asarray(np.where(takes_away[at], products / numbers[at], products * numbers[at]))

    def alone(part: Numbers, start: int) -> Any:
        if takes_away is None:
            return np.multiply.accumulate(part)[-1]
        product = part[:1]
        for place in range(start + 1, start + len(part)):
            product = step(product, np.array([place]))
        return product[0]

    products = _float_fold(numbers, counted.starts[has_values], counted.lengths[has_values], step, alone)
    return counted.reduction(pa.array(products, counted.values.type))


def _decimal_products(counted: Contributions) -> Reduction:
    kind = counted.values.type
    halves = halves_of(counted.values)
    has_values = counted.has_values
    starts, lengths = counted.starts[has_values], counted.lengths[has_values]

    def product(key: int) -> int | None:
        signed = _signed(halves, counted, starts[key], lengths[key])
        return _decimal_product(signed, kind.precision, kind.scale, counted, int(starts[key]))

    results = from_halves(halves[starts], kind)
    return counted.reduction(_replaced(results, lengths > 1, product), lengths > 1)


def _decimal_product(
    signed: Iterable[tuple[int, bool]], precision: int, scale: int, counted: Contributions, first: int
) -> int | None:
    """The product of one key: unscaled, rounded half up after each step; NULL on overflow, and a value starts again."""
    unit = 10**scale
    product: int | None = None
    for place, (number, divides) in enumerate(signed, first):
        if product is None:
            product = None if divides else number
            continue
        if divides and number == 0:
            raise AggregationError(counted.event_of(place), _BY_ZERO)
        exact = Fraction(product * unit, number) if divides else Fraction(product * number, unit)
        if divides and not _terminates(Fraction(product, number).denominator):
            raise AggregationError(
                counted.event_of(place),
                "the quotient of the product and the value taken back has no end; use sum, or ignore-retract",
            )
        rounded = int(abs(exact) + Fraction(1, 2))
        product = None if rounded >= 10**precision else rounded if exact > 0 else -rounded
    return product


def _terminates(denominator: int) -> bool:
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1


# What they share


def _float_fold(
    numbers: Numbers,
    starts: Positions,
    lengths: Positions,
    step: Callable[[Numbers, Positions], Numbers],
    alone: Callable[[Numbers, int], Any],
) -> Numbers:
    """Folds floats in order; `alone` folds the values of one long key, given where they begin."""
    with np.errstate(all="ignore"):
        results, is_long = folded(numbers[starts], starts, lengths, step)
        for key in np.flatnonzero(is_long).tolist():
            start = int(starts[key])
            results[key] = alone(numbers[start : start + int(lengths[key])], start)
    return results


def _longs(counted: Contributions) -> Int64s:
    """The values as 64-bit numbers."""
    longs: Int64s = counted.values.to_numpy().astype(np.int64, copy=False)
    return longs


def _signed(halves: Numbers, counted: Contributions, start: int, length: int) -> Iterable[tuple[int, bool]]:
    """Unscaled values of one key, and whether each is taken away."""
    part = slice(int(start), int(start + length))
    takes_away = [False] * int(length) if counted.takes_away is None else counted.takes_away[part].tolist()
    return zip(unscaled(halves[part]), takes_away, strict=True)


def _replaced(results: pa.Array[Any], looped: Flags, result_of: Callable[[int], int | None]) -> pa.Array[Any]:
    """The decimals with those of the looped keys computed one by one."""
    keys = np.flatnonzero(looped).tolist()
    if not keys:
        return results
    numbers = [result_of(key) for key in keys]
    halves = halves_of(results).copy()
    halves[keys] = from_unscaled([number or 0 for number in numbers])
    valid = np.ones(len(halves), np.bool_)
    valid[keys] = [number is not None for number in numbers]
    return from_halves(halves, results.type, valid)
