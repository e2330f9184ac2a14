"""The values that count for sum, product, max, min, bool_and and bool_or: no SKIP, no NULL, nothing before a SET.

For these functions agg(acc, x) = agg(x, acc), a NULL changes nothing, and SET is the same as starting again with x. So
all that counts is, per key, some values, each added or taken away. What a SET throws away cannot fail either, by
an overflow or a division by zero; Apache Paimon has failed there already.

`CountedValues` has all events and says which of them count: enough where a value can be made to change nothing.
`Contributions` has only those that count, which costs a copy.

Floats are not associative, and an overflow counts where it happens: such functions need the order of the values.
`folded` folds many keys one after the other, all keys in step, so that each key is folded in its own order. Step i
applies the i-th value of every key that has one; keys are ordered by length first, so that the keys of a step are the
first ones. What keys have beyond `STEPS_MAX` values is the caller's, key by key: few keys are that long.

Source: MERGING.md §2.6.1 (N-absorbing).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.merge.aggregate.events import ColumnEvents, Event, Reduction
from freshet.storage.merge.gather import gathered
from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.key_rows import last_marked
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.value_bits import valid_flags


class CountedValues(Frozen, dict=True):
    """The values of key k are `values[starts[k]:ends[k]]`; no key is empty."""

    values: pa.Array[Any]
    counts: Flags | None
    """False for values that count for nothing; None if all count."""
    takes_away: Flags | None
    """True for values of retracts; None if there is none."""
    starts: Positions
    ends: Positions

    @cached_property
    def has_values(self) -> Flags | None:
        """True for keys with a value that counts; None if all keys have one."""
        if self.counts is None:
            return None
        before = np.cumsum(self.counts, dtype=np.int32).take(self.ends - 1)
        has_values = np.empty(len(before), np.bool_)
        has_values[:1] = before[:1] > 0
        np.not_equal(before[1:], before[:-1], out=has_values[1:])
        return None if has_values.all() else has_values

    @property
    def longest(self) -> int:
        """Number of values of the key that has most."""
        return int((self.ends - self.starts).max(initial=0))

    def contributions(self) -> Contributions:
        """Only the values that count."""
        if self.counts is None:
            return Contributions(self.values, self.takes_away, self.starts, self.ends - self.starts, None)
        before = np.append(0, np.cumsum(self.counts))
        starts, lengths = before[self.starts], before[self.ends] - before[self.starts]
        taken = np.flatnonzero(self.counts)
        takes_away = None if self.takes_away is None else self.takes_away[taken]
        return Contributions(gathered(self.values, taken, may_miss=False), takes_away, starts, lengths, taken)

    def reduction(self, values: pa.Array[Any]) -> Reduction:
        """The result, with one value per key, none of them folded alone."""
        return Reduction(values, np.zeros(len(self.starts), np.bool_))


class Contributions(Frozen, dict=True):
    """Values of key k are `values[starts[k]:starts[k] + lengths[k]]`, none NULL; some keys have none."""

    values: pa.Array[Any]
    takes_away: Flags | None
    """True for values of retracts; None if there is none."""
    starts: Positions
    lengths: Positions
    events: Positions | None
    """Number of the event that each value comes from; None if all events count."""

    @cached_property
    def has_values(self) -> Flags:
        """True for keys with a value."""
        result: Flags = self.lengths > 0
        return result

    @property
    def longs(self) -> npt.NDArray[np.int64]:
        """The values, which are integers, as 64-bit numbers."""
        longs: npt.NDArray[np.int64] = self.values.to_numpy().astype(np.int64, copy=False)
        return longs

    def event_of(self, value: int) -> int:
        """The event that a value comes from."""
        return value if self.events is None else int(self.events[value])

    def reduction(self, values: pa.Array[Any], scalar_keys: Flags | None = None) -> Reduction:
        """The result, of one value for each key that has values; NULL for the others."""
        flags = np.zeros(len(self.starts), np.bool_)
        if scalar_keys is not None:
            flags[self.has_values] = scalar_keys
        if len(values) == len(self.starts):
            return Reduction(values, flags)
        positions = np.where(self.has_values, np.cumsum(self.has_values) - 1, -1)
        return Reduction(gathered(values, positions, may_miss=True), flags)


def counted_values(events: ColumnEvents) -> CountedValues:
    """Which values count."""
    codes, ends = events.codes, events.ends
    counts = valid_flags(events.values) if events.values.null_count else None
    if (codes == Event.ADD).all():
        return CountedValues(events.values, counts, None, events.starts, ends)
    does = codes != Event.SKIP
    if not does.all():
        counts = does if counts is None else counts & does
    sets = codes == Event.SET
    if sets.any():
        last_set = last_marked(sets, events.starts, ends)
        origins = np.where(last_set < 0, events.starts, last_set)
        is_left = np.arange(len(codes)) >= np.repeat(origins, ends - events.starts)
        counts = is_left if counts is None else counts & is_left
    takes_away = codes == Event.RETRACT
    return CountedValues(events.values, counts, takes_away if takes_away.any() else None, events.starts, ends)


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
