"""The nearest row of each key that passes a test, for many keys at once.

A step tries one place per key that is still open; most keys have few rows, so few steps settle nearly all of them, and
what is then left is looked at in one go. The last value that is not NULL in 20 columns of 2 M rows, half of them NULL,
is found in 0.13 s this way, in 0.5 s by a segment maximum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from storage.merge.key_order import Flags
from storage.merge.sort_words import Positions

STEPS_MAX: Final = 8
"""Places tried one at a time."""

PlaceTest = Callable[[Positions], Flags]
"""True for places that pass; asked only for those that matter."""


def last_place(test: PlaceTest, first: Positions, ends: Positions) -> Positions:
    """The last place in [first, end) of each key that passes the test, or -1. `test` is asked for places as needed."""
    return _nearest(test, ends - 1, ends - first, -1)


def first_place(test: PlaceTest, first: Positions, ends: Positions) -> Positions:
    """The first place in [first, end) of each key that passes the test, or -1."""
    return _nearest(test, first.copy(), ends - first, 1)


def _nearest(test: PlaceTest, found: Positions, left: Positions, step: int) -> Positions:
    """Tries `left` places of each key from `found` on, which becomes the result."""
    open_keys = np.arange(len(found))
    for tried in range(STEPS_MAX):
        is_over = left[open_keys] <= tried
        if is_over.any():
            found[open_keys[is_over]] = -1
            open_keys = open_keys[~is_over]
        if not len(open_keys):
            return found
        open_keys = open_keys[~test(found[open_keys])]
        found[open_keys] += step
    rest = left[open_keys] - STEPS_MAX
    found[open_keys[rest <= 0]] = -1
    open_keys, rest = open_keys[rest > 0], rest[rest > 0]
    if len(open_keys):
        starts = np.cumsum(rest) - rest
        turns = np.arange(int(rest.sum())) - np.repeat(starts, rest)
        places = np.repeat(found[open_keys], rest) + step * turns
        passed = np.where(test(places), turns, np.iinfo(np.int64).max)
        nearest = np.minimum.reduceat(passed, starts)
        is_found = nearest < np.iinfo(np.int64).max
        found[open_keys] = np.where(is_found, found[open_keys] + step * np.where(is_found, nearest, 0), -1)
    return found
