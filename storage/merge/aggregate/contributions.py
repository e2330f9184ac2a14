"""The values that count for sum, product, max, min, bool_and and bool_or: no SKIP, no NULL, nothing before a SET.

For these functions agg(acc, x) = agg(x, acc), a NULL changes nothing, and SET is the same as to begin anew with x. So
all that counts is, per key, a list of values, each added or taken away. What a SET throws away cannot fail either, by
an overflow or a division by zero; Apache Paimon has failed there already.

Source: LSM semantics §2.6.1 (N-absorbing).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from storage.merge.aggregate.events import ColumnEvents, Event, Flags, Positions
from storage.merge.place_search import last_marked


@dataclass(frozen=True, slots=True)
class Contributions:
    """Values of key k are `values[starts[k]:starts[k] + lengths[k]]`, none NULL; some keys have none."""

    values: pa.Array[Any]
    takes_away: Flags | None
    """True for values of retracts; None if there is none."""
    starts: Positions
    lengths: Positions
    events: Positions | None
    """Number of the event that each value comes from; None if all events count."""

    @property
    def has_values(self) -> Flags:
        """True for keys with a value."""
        result: Flags = self.lengths > 0
        return result

    def event_of(self, value: int) -> int:
        """The event that a value comes from."""
        return value if self.events is None else int(self.events[value])


def contributions(events: ColumnEvents) -> Contributions:
    """The values that count."""
    codes, values = events.codes, events.values
    ends = events.ends
    counts = None if values.null_count == 0 else values.is_valid().to_numpy(zero_copy_only=False)
    if (codes == Event.SKIP).any():
        does = codes != Event.SKIP
        counts = does if counts is None else counts & does
    if (codes == Event.SET).any():
        last_set = last_marked(codes == Event.SET, events.starts, ends)
        origins = np.where(last_set < 0, events.starts, last_set)
        is_left = np.arange(len(codes)) >= np.repeat(origins, ends - events.starts)
        counts = is_left if counts is None else counts & is_left
    taken, starts, lengths = None, events.starts, ends - events.starts
    if counts is not None:
        before = np.append(0, np.cumsum(counts))
        starts, lengths = before[events.starts], before[ends] - before[events.starts]
        taken = np.flatnonzero(counts)
        values, codes = values.take(pa.array(taken)), codes[taken]
    takes_away = codes == Event.RETRACT
    return Contributions(values, takes_away if takes_away.any() else None, starts, lengths, taken)
