"""What a column of the merged keys has come to: the row whose value stands, or a value that was computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.merge.merge_function import RowKinds
from freshet.storage.merge.sort_words import Positions


@dataclass(frozen=True, slots=True)
class Chosen:
    """Position in the table of the row whose value stands, for each merged key; -1 for NULL."""

    rows: Positions


@dataclass(frozen=True, slots=True)
class Computed:
    """The value of each merged key."""

    values: pa.Array[Any]


ColumnResult = Chosen | Computed


@dataclass(frozen=True, slots=True)
class SystemValues:
    """Row kind and sequence number of the result of each merged key."""

    kinds: RowKinds
    sequence_numbers: npt.NDArray[np.int64]


class NullInNotNull(Exception):
    """Merging left NULL in a NOT NULL column; `row` is the newest row of such a key."""

    def __init__(self, column: str, row: int) -> None:
        super().__init__(column)
        self.column = column
        self.row = row
