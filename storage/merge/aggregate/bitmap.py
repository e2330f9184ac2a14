"""The functions `rbm32` and `rbm64`: unions of sets of integers, stored as roaring bitmaps.

| acc | x | ADD and ADD_LATE |
|---|---|---|
| NULL | any | x, byte by byte |
| any | NULL | acc |
| set | set | their union |

They take no retracts. Keys with one value are not read at all; the others are united one after the other, by pyroaring
or container by container (`codec.roaring_bitmaps`).

Source: MERGING.md §2.6.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from freshet.storage.codec.roaring_bitmaps import Bitmap64, read_bitmap32, unite_bitmaps32, write_bitmap32
from freshet.storage.merge.aggregate.events import ColumnEvents, Reduction
from freshet.storage.merge.aggregate.library_fold import fold_each
from freshet.storage.model.data_type import DataType
from freshet.storage.options.engine import ColumnFunction


@dataclass(frozen=True, slots=True)
class RoaringBitmap32:
    """rbm32 of one column."""

    function: ColumnFunction
    column: str
    type: DataType

    def reduce(self, events: ColumnEvents) -> Reduction:
        """The united set of each key."""
        return fold_each(events, read=read_bitmap32, merge=unite_bitmaps32, write=write_bitmap32)


@dataclass(frozen=True, slots=True)
class RoaringBitmap64:
    """rbm64 of one column."""

    function: ColumnFunction
    column: str
    type: DataType

    def reduce(self, events: ColumnEvents) -> Reduction:
        """The united set of each key."""
        return fold_each(events, read=Bitmap64.read, merge=_united64, write=Bitmap64.write)


def _united64(acc: Bitmap64, x: Bitmap64) -> Bitmap64:
    acc.update(x)
    return acc
