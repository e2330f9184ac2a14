"""Folds values whose content only a library understands: bitmaps and sketches."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.merge.aggregate.events import AggregationError, ColumnEvents, Event, Reduction
from freshet.storage.merge.aggregate.live_events import live_events
from freshet.storage.merge.aggregate.values import valid_flags, with_looped

Part = TypeVar("Part")

_REMEDY: Final = (
    "if it is in the table, leave the column out when reading, or set its function to last_non_null_value until the "
    "value is written over and compacted away"
)


def fold_each(
    events: ColumnEvents,
    *,
    read: Callable[[bytes], Part],
    merge: Callable[[Part, Part], Part],
    write: Callable[[Part], bytes],
) -> Reduction:
    """Folds serialized values by a library: NULL changes nothing, a value alone stays as it is, byte by byte.

    `merge(acc, x)` may change `acc`. Keys with two values and more are folded one by one, in merge order.
    """
    live = live_events(events)
    live = live.only(valid_flags(events.values)[live.rows])
    looped = live.counts > 1
    keys = np.flatnonzero(looped)
    folded = live.only(looped[live.keys])
    values = events.values.take(pa.array(folded.rows)).to_pylist()
    steps = zip(folded.keys.tolist(), folded.rows.tolist(), folded.codes.tolist(), values, strict=True)
    results = []
    for _, group in groupby(steps, key=itemgetter(0)):
        accumulator: Part | None = None
        for _, event, code, value in group:
            try:
                part = read(value)
                if accumulator is None:
                    accumulator = part
                else:
                    late = code == Event.ADD_LATE
                    accumulator = merge(part, accumulator) if late else merge(accumulator, part)
            except InvalidRequestError as error:
                raise AggregationError(event, f"{error}; {_REMEDY}") from error
        assert accumulator is not None
        results.append(write(accumulator))
    rows = live.last_rows(np.ones(len(live.rows), np.bool_))
    return Reduction(with_looped(events.values, rows, keys, results), looped)
