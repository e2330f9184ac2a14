"""The functions `rbm32` and `rbm64`: unions of sets of integers, stored as roaring bitmaps.

| acc | x | ADD and ADD_LATE |
|---|---|---|
| NULL | any | x, byte by byte |
| any | NULL | acc |
| set | set | their union |

They take no retracts. Sets are united by a library, one key after the other; the bytes hold the same set as those that
Paimon writes, though not always in the same containers.

Source: LSM semantics §2.6.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from storage.codec.roaring_bitmaps import (
    read_bitmap32,
    read_bitmap64,
    unite_bitmaps32,
    unite_bitmaps64,
    write_bitmap32,
    write_bitmap64,
)
from storage.engine_options import ColumnFunction
from storage.merge.aggregate.events import ColumnEvents, Reduction
from storage.merge.aggregate.library_fold import fold_each
from storage.model.data_type import DataType


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
        return fold_each(events, read=read_bitmap64, merge=unite_bitmaps64, write=write_bitmap64)
