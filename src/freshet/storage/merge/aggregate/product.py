"""product.

| acc | x | ADD | RETRACT |
|---|---|---|---|
| NULL | NULL | NULL | NULL |
| NULL | x | x | NULL |
| acc | NULL | acc | acc |
| acc | x | acc * x | acc / x |

| type | arithmetic |
|---|---|
| integers | an overflow is refused where it happens, at whatever row; division cuts toward zero, by zero is refused |
| FLOAT, DOUBLE | IEEE, in the order of the rows, FLOAT in 32 bits |
| DECIMAL | half up to the scale; NULL beyond p digits, the next value starts again; a quotient without end is refused |

Numbers go in step through all keys (`contributions.folded`); key by key go decimals, and keys of very many values.

Source: MERGING.md §2.6.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from freshet.storage.merge.aggregate.contributions import Contributions, Numbers, counted_values, folded, folded_floats
from freshet.storage.merge.aggregate.events import AggregationError, ColumnAggregator, ColumnEvents, Reduction
from freshet.storage.merge.aggregate.sum import signed_values, with_scalar_results
from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.key_rows import first_marked
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.arrow_types import numpy_type
from freshet.storage.model.value_bits import fixed_width, from_fixed_width

Int64s = npt.NDArray[np.int64]

_BY_ZERO: Final = "the product is divided by zero, by a row of kind -U or -D; use sum, or ignore-retract"
_NEAR: Final = 1 - 1e-9
"""Magnitudes are estimated as floats; this close to a bound the exact way is taken."""


class Product(ColumnAggregator):
    """product of one column."""

    def _reduce(self, events: ColumnEvents) -> Reduction:
        counted = _from_first_add(counted_values(events).contributions())
        arrow_type = counted.values.type
        if pt.is_decimal(arrow_type):
            return _decimal_products(counted)
        if pt.is_floating(arrow_type):
            return _float_products(counted)
        return _integer_products(counted, f"the product overflows {self.type}; give column {self.column} a wider type")


def _from_first_add(counted: Contributions) -> Contributions:
    """Without the retracts of each key that come before its first add: dividing nothing gives nothing."""
    takes_away = counted.takes_away
    if takes_away is None:
        return counted
    ends = counted.starts + counted.lengths
    first = first_marked(~takes_away, counted.starts, ends)
    return replace(counted, starts=np.maximum(first, 0), lengths=np.where(first < 0, 0, ends - first))


def _integer_products(counted: Contributions, overflow: str) -> Reduction:
    numbers = counted.longs
    arrow_type = counted.values.type
    bounds = np.iinfo(numpy_type(arrow_type))
    lowest, highest = int(bounds.min), int(bounds.max)
    has_values = counted.has_values
    starts, lengths = counted.starts[has_values], counted.lengths[has_values]
    takes_away = counted.takes_away

    def refuse(positions: Positions, is_bad: Flags, reason: str) -> None:
        if is_bad.any():
            raise AggregationError(counted.event_of(int(positions[np.flatnonzero(is_bad)[0]])), reason)

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
        product = int(numbers[starts[key]])
        for index in range(int(starts[key]) + 1, int(starts[key] + lengths[key])):
            factor, divides = int(numbers[index]), takes_away is not None and bool(takes_away[index])
            if divides and factor == 0:
                raise AggregationError(counted.event_of(index), _BY_ZERO)
            product = _quotient(product, factor) if divides else product * factor
            if not lowest <= product <= highest:
                raise AggregationError(counted.event_of(index), overflow)
        products[key] = product
    return counted.reduction(pa.array(products, arrow_type), is_long)


def _near_overflow(left: Int64s, right: Int64s) -> Flags:
    """True where a product of 64-bit numbers leaves 64 bits."""
    outside: Flags = np.abs(left.astype(np.float64) * right.astype(np.float64)) >= 2.0**63 * _NEAR
    for index in np.flatnonzero(outside).tolist():
        outside[index] = not -(1 << 63) <= int(left[index]) * int(right[index]) < 1 << 63
    return outside


def _quotients(left: Int64s, right: Int64s) -> Int64s:
    """Division toward zero; no divisor is zero, and the lowest number by -1 gives anything."""
    by = np.where(right == -1, 1, right)
    floors = left // by
    exact = floors * by == left
    cut = floors + (~exact & ((left < 0) != (by < 0)))
    quotients: Int64s = np.where(right == -1, -left, cut)
    return quotients


def _quotient(left: int, right: int) -> int:
    """The same, for one division of any size."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


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
        product = part[0]
        for factor, divides in zip(part[1:], takes_away[start + 1 : start + len(part)], strict=True):
            product = product / factor if divides else product * factor
        return product

    products = folded_floats(numbers, counted.starts[has_values], counted.lengths[has_values], step, alone)
    return counted.reduction(pa.array(products, counted.values.type))


def _decimal_products(counted: Contributions) -> Reduction:
    arrow_type = counted.values.type
    halves = fixed_width(counted.values)
    has_values = counted.has_values
    starts, lengths = counted.starts[has_values], counted.lengths[has_values]

    def product(key: int) -> int | None:
        signed = signed_values(halves, counted.takes_away, starts[key], lengths[key])
        return _decimal_product(signed, arrow_type.precision, arrow_type.scale, counted, int(starts[key]))

    results = from_fixed_width(halves[starts], arrow_type, None)
    return counted.reduction(with_scalar_results(results, lengths > 1, product), lengths > 1)


def _decimal_product(
    signed: Iterable[tuple[int, bool]], precision: int, scale: int, counted: Contributions, first: int
) -> int | None:
    """The product of one key: unscaled, rounded half up after each step; NULL on overflow, and a value starts again."""
    unit = 10**scale
    product: int | None = None
    for index, (number, divides) in enumerate(signed, first):
        if product is None:
            product = None if divides else number
            continue
        if divides and number == 0:
            raise AggregationError(counted.event_of(index), _BY_ZERO)
        exact = Fraction(product * unit, number) if divides else Fraction(product * number, unit)
        if divides and not _terminates(Fraction(product, number).denominator):
            raise AggregationError(
                counted.event_of(index),
                "the quotient of the product and the retracted value has no end; use sum, or ignore-retract",
            )
        rounded = int(abs(exact) + Fraction(1, 2))
        product = None if rounded >= 10**precision else rounded if exact > 0 else -rounded
    return product


def _terminates(denominator: int) -> bool:
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1
