"""Casts from and to DECIMAL on whole arrays: rounded half up, NULL where a value does not fit.

Rounding happens in 256 bits, where no value of 38 digits overflows. Source: FORMAT.md §13.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.model.data_type import ScalarType

_WIDE: Final = 76
_EXACT_DIGITS: Final = 18
"""Digits that a double quotient of two exact doubles renders as well as the decimal itself: the format's own rule."""
_SIGNIFICANT: Final = 18
"""More decimal digits than the shortest text of a double has."""


def rescale(array: pa.Array[Any], target: ScalarType) -> pa.Array[Any]:
    """A decimal array at another precision and scale."""
    precision, scale = _digits(target)
    goal = pa.decimal128(precision, scale)
    wide: pa.Array[Any] = array.cast(pa.decimal256(_WIDE, array.type.scale))
    if array.type.scale > scale:
        wide = pc.round(wide, ndigits=scale, round_mode="half_towards_infinity")
    if array.type.precision - array.type.scale >= precision - scale:
        limit = pa.scalar(Decimal(10) ** (precision - scale), wide.type)
        wide = pc.if_else(pc.less(pc.abs(wide), limit), wide, pa.scalar(None, wide.type))
    return wide.cast(goal)


def float_to_decimal(array: pa.Array[Any], target: ScalarType) -> pa.Array[Any]:
    """Doubles by their shortest text, so that 0.1 becomes 0.1; NULL for NaN and infinities."""
    precision, scale = _digits(target)
    limit = 10.0 ** (precision - scale)
    within = pc.and_(pc.is_finite(array), pc.less(pc.abs(array), limit))
    kept = pc.if_else(within, array, pa.scalar(None, pa.float64()))
    # Below half of the last digit the text may need more digits than 256 bits hold; such a value is zero anyway.
    tiny = pc.less(pc.abs(kept), 10.0 ** -(scale + 1))
    texts = pc.if_else(tiny, 0.0, kept).cast(pa.string())
    return rescale(texts.cast(pa.decimal256(_WIDE, scale + _SIGNIFICANT)), target)


def decimal_to_integer(array: pa.Array[Any]) -> pa.Array[Any]:
    """The integer part in 64 bits; higher bits are lost, as in Java."""
    whole = pc.trunc(array.cast(pa.decimal256(_WIDE, array.type.scale))).cast(pa.decimal128(38, 0))
    low = np.frombuffer(whole.buffers()[1], np.int64)[2 * whole.offset :: 2][: len(whole)]
    nulls = whole.is_null().to_numpy(zero_copy_only=False) if whole.null_count else None
    return pa.array(low, pa.int64(), mask=nulls)


def decimal_to_float(array: pa.Array[Any]) -> pa.Array[Any]:
    """The nearest double."""
    if array.type.precision > _EXACT_DIGITS:
        return array.cast(pa.string()).cast(pa.float64())
    low = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset :: 2][: len(array)]
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(low.astype(np.float64) / float(10**array.type.scale), pa.float64(), mask=nulls)


def _digits(target: ScalarType) -> tuple[int, int]:
    assert target.precision is not None
    assert target.scale is not None
    return target.precision, target.scale
