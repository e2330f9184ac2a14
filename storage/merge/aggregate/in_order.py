"""Folds the values of many keys one after the other, all keys in step, so that each key is folded in its own order.

Floats are not associative, and an overflow counts where it happens: such functions need the order of the values. Step
i applies the i-th value of every key that has one; keys are ordered by length first, so that the keys of a step are the
first ones. What keys have beyond `STEPS_MAX` values is the caller's, key by key: few keys are that long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from freshet.storage.merge.aggregate.events import Flags, Positions

STEPS_MAX: Final = 64

Numbers = npt.NDArray[Any]
Step = Callable[[Numbers, Positions], Numbers]
"""The accumulators after the values at these positions; the positions say which value each accumulator meets."""


def folded(first: Numbers, starts: Positions, lengths: Positions, step: Step) -> tuple[Numbers, Flags]:
    """The accumulators after all values but the first, which they begin as; and which keys are too long for that.

    The accumulator of such a key is as it was: fold it alone.
    """
    is_long = lengths > STEPS_MAX
    accumulators = first.copy()
    short = np.flatnonzero(~is_long & (lengths > 1))
    by_length = short[np.argsort(-lengths[short].astype(np.int16), kind="stable")]
    if not len(by_length):
        return accumulators, is_long
    states, begins = accumulators[by_length], starts[by_length]
    falling = -lengths[by_length]
    for index in range(1, int(-falling[0])):
        count = int(np.searchsorted(falling, -index, side="left"))
        states[:count] = step(states[:count], begins[:count] + index)
    accumulators[by_length] = states
    return accumulators, is_long


def folded_floats(
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
