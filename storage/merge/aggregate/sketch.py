"""The functions `hll_sketch` and `theta_sketch`: unions of sketches that count distinct values.

| acc | x | ADD | ADD_LATE |
|---|---|---|---|
| NULL | any | x, byte by byte | x |
| any | NULL | acc | acc |
| sketch | sketch | union of acc, then x | union of x, then acc |

They take no retracts. Sketches are united by Apache DataSketches, one key after the other. Theta sketches have the
bytes that Paimon writes; those of HLL may list the same coupons in another order.

Source: MERGING.md §2.6.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from freshet.storage.codec.sketches import read_hll, read_theta, unite_hll, unite_theta, write_hll, write_theta
from freshet.storage.merge.aggregate.events import ColumnEvents, Reduction
from freshet.storage.merge.aggregate.library_fold import fold_each
from freshet.storage.model.data_type import DataType
from freshet.storage.options.engine import ColumnFunction


@dataclass(frozen=True, slots=True)
class HllSketches:
    """hll_sketch of one column."""

    function: ColumnFunction
    column: str
    type: DataType

    def reduce(self, events: ColumnEvents) -> Reduction:
        """The united sketch of each key."""
        return fold_each(events, read=read_hll, merge=unite_hll, write=write_hll)


@dataclass(frozen=True, slots=True)
class ThetaSketches:
    """theta_sketch of one column."""

    function: ColumnFunction
    column: str
    type: DataType

    def reduce(self, events: ColumnEvents) -> Reduction:
        """The united sketch of each key."""
        return fold_each(events, read=read_theta, merge=unite_theta, write=write_theta)
