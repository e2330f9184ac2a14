"""Decimals as integers: the 128 bits of an Arrow decimal in two halves, and their sums.

value = high * 2**64 + low      unscaled, two's complement: high signed, low unsigned
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.value_bits import fixed_width, from_fixed_width

Halves = npt.NDArray[np.int64]
"""Shape (n, 2): low and high half of each value, both as signed numbers."""

_LIMB_BITS: Final = 32
_LIMB: Final = np.int64((1 << _LIMB_BITS) - 1)


def from_longs(longs: npt.NDArray[np.int64], arrow_type: pa.DataType, valid: Flags | None) -> pa.Array[Any]:
    """Decimals of unscaled 64-bit numbers."""
    return from_fixed_width(np.stack([longs, longs >> 63], axis=1), arrow_type, valid)


def unscaled(halves: Halves) -> list[int]:
    """The unscaled values as Python integers."""
    lows: list[int] = halves[:, 0].astype(np.uint64).tolist()
    highs: list[int] = halves[:, 1].tolist()
    return [(high << 64) + low for low, high in zip(lows, highs, strict=True)]


def magnitudes(halves: Halves) -> npt.NDArray[np.float64]:
    """About how large values are, whatever their sign."""
    size: npt.NDArray[np.float64] = np.abs(halves[:, 1] * 2.0**64 + halves[:, 0].astype(np.uint64).astype(np.float64))
    return size


def segment_sums(halves: Halves, negated: Flags | None, starts: Positions) -> Halves:
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


def signed_values(halves: Halves, takes_away: Flags | None, start: int, length: int) -> Iterable[tuple[int, bool]]:
    """Unscaled values of one key, and whether each is taken away."""
    part = slice(int(start), int(start + length))
    flags = [False] * int(length) if takes_away is None else takes_away[part].tolist()
    return zip(unscaled(halves[part]), flags, strict=True)


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
