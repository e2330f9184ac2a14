"""Functions whose values only a library understands: unions of roaring bitmaps (`rbm32`, `rbm64`) and of sketches that
count distinct values (`hll_sketch`, `theta_sketch`).

| acc | x | ADD | ADD_LATE |
|---|---|---|---|
| NULL | any | x, byte by byte | x |
| any | NULL | acc | acc |
| set or sketch | set or sketch | union of acc, then x | union of x, then acc |

They take no retracts. Keys with one value are not read at all; the others are united one after the other, by pyroaring
or container by container (`codec.roaring_bitmaps`), and by Apache DataSketches. Theta sketches have the bytes that
Paimon writes; those of HLL may list the same coupons in another order.

Source: MERGING.md §2.6.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from operator import ior, itemgetter
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.codec.roaring_bitmaps import Bitmap64, read_bitmap32, write_bitmap32
from freshet.storage.codec.sketches import read_hll, read_theta, unite_hll, unite_theta, write_hll, write_theta
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.merge.aggregate.events import (
    AggregationError,
    ColumnAggregator,
    ColumnEvents,
    Event,
    Reduction,
    live_events,
)
from freshet.storage.merge.gather import gathered_or_computed
from freshet.storage.model.value_bits import valid_flags
from freshet.storage.options.aggregate_function import AggregateFunction

Part = TypeVar("Part")

_REMEDY: Final = (
    "if it is in the table, leave the column out when reading, or set its function to last_non_null_value until the "
    "value is written over and compacted away"
)


class _Library(Frozen, Generic[Part]):
    """Reads, unites and writes values of one function; `unite(acc, x)` may change `acc`."""

    read: Callable[[bytes], Part]
    unite: Callable[[Part, Part], Part]
    write: Callable[[Part], bytes]


_LIBRARIES: Final[Mapping[AggregateFunction, _Library[Any]]] = {
    AggregateFunction.RBM32: _Library(read_bitmap32, ior, write_bitmap32),
    AggregateFunction.RBM64: _Library(Bitmap64.read, ior, Bitmap64.write),
    AggregateFunction.HLL_SKETCH: _Library(read_hll, unite_hll, write_hll),
    AggregateFunction.THETA_SKETCH: _Library(read_theta, unite_theta, write_theta),
}


class SerializedUnion(ColumnAggregator):
    """rbm32, rbm64, hll_sketch or theta_sketch of one column."""

    def _reduce(self, events: ColumnEvents) -> Reduction:
        """The united set or sketch of each key. Keys with several values are folded one by one, in merge order."""
        library = _LIBRARIES[self.function.name]
        live = live_events(events)
        live = live.only(valid_flags(events.values)[live.rows])
        scalar_keys = live.counts > 1
        keys = np.flatnonzero(scalar_keys)
        folded = live.only(scalar_keys[live.keys])
        values = events.values.take(pa.array(folded.rows)).to_pylist()
        steps = zip(folded.keys.tolist(), folded.rows.tolist(), folded.codes.tolist(), values, strict=True)
        results = []
        for _, group in groupby(steps, key=itemgetter(0)):
            accumulator: Any = None
            for _, event, code, value in group:
                try:
                    part = library.read(value)
                    if accumulator is None:
                        accumulator = part
                    else:
                        late = code == Event.ADD_LATE
                        accumulator = library.unite(part, accumulator) if late else library.unite(accumulator, part)
                except InvalidRequestError as error:
                    raise AggregationError(event, f"{error}; {_REMEDY}") from error
            assert accumulator is not None
            results.append(library.write(accumulator))
        rows = live.last_rows(np.ones(len(live.rows), np.bool_))
        return Reduction(gathered_or_computed(events.values, rows, keys, results), scalar_keys)
