"""Curves through a space of several columns: rows that are near on the curve are near in every column.

    z_order   the bits of all coordinates in turn, the highest first
    hilbert   the Hilbert curve: neighbours on it are neighbours in space, so it makes no jumps

Coordinates are whole numbers of `bits` bits, one row of `coordinates` per column; the position on the curve is a number
of as many bits as all of them together, 64 at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

UInt64s = npt.NDArray[np.uint64]


def z_order(coordinates: Sequence[UInt64s], bits: int) -> UInt64s:
    """Places on the Z-order curve."""
    position = np.zeros(len(coordinates[0]), np.uint64)
    one = np.uint64(1)
    for bit in range(bits - 1, -1, -1):
        for values in coordinates:
            position = (position << one) | ((values >> np.uint64(bit)) & one)
    return position


def hilbert(coordinates: Sequence[UInt64s], bits: int) -> UInt64s:
    """Places on the Hilbert curve: the coordinates are turned bit by bit (Skilling's transform), then interleaved."""
    turned = [values.copy() for values in coordinates]
    zero = np.uint64(0)
    for bit in range(bits - 1, 0, -1):
        mask, below = np.uint64(1 << bit), np.uint64((1 << bit) - 1)
        for values in turned:
            is_set = (values & mask) != zero
            swapped = np.where(is_set, zero, (turned[0] ^ values) & below)
            turned[0] ^= np.where(is_set, below, swapped)
            if values is not turned[0]:
                values ^= swapped
    for before, values in pairwise(turned):
        values ^= before
    last = np.zeros(len(turned[0]), np.uint64)
    for bit in range(bits - 1, 0, -1):
        last ^= np.where((turned[-1] & np.uint64(1 << bit)) != zero, np.uint64((1 << bit) - 1), zero)
    return z_order([values ^ last for values in turned], bits)
