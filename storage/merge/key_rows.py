"""The rows of the keys that a function merges, key after key.

Keys whose lone row passes are left out, so that a merge costs what its repeated keys cost. Three kinds of numbers:

    place    number of a row here: rows of key k are the places starts[k] to ends[k], the newest last
    row      position in the table: `rows[place]`
    key      number of a key among those merged; `numbers[key]` is its number among all keys of the segments
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.merge.key_order import Flags, KeySegments
from storage.merge.sort_words import Positions
from storage.model.row_kind import RowKind
from storage.model.schema import VALUE_KIND_COLUMN


@dataclass(frozen=True)
class KeyRows:
    """Rows of the merged keys; not empty keys only."""

    table: pa.Table
    rows: Positions
    starts: Positions
    numbers: Positions | None
    """None if every key of the segments is merged."""

    @property
    def key_count(self) -> int:
        """Number of keys merged."""
        return len(self.starts)

    @cached_property
    def ends(self) -> Positions:
        """One past the last place of each key."""
        return np.append(self.starts[1:], len(self.rows))[: len(self.starts)]

    @cached_property
    def kinds(self) -> npt.NDArray[np.int8]:
        """Kind of the row at each place."""
        kinds: npt.NDArray[np.int8] = self.table.column(VALUE_KIND_COLUMN).to_numpy()[self.rows]
        return kinds

    @cached_property
    def retracts(self) -> Flags:
        """True at places of -U and -D."""
        result: Flags = (self.kinds == RowKind.UPDATE_BEFORE) | (self.kinds == RowKind.DELETE)
        return result

    @cached_property
    def has_retracts(self) -> bool:
        """False if every row is an add."""
        return bool(self.retracts.any())

    def valid(self, column: str) -> Flags | None:
        """True where the column has a value, by row of the table; None if it has everywhere."""
        return valid_rows(self.table.column(column))

    def values(self, column: str) -> pa.Array[Any]:
        """The column's values, place after place."""
        return self.values_of(column, self.rows)

    def values_of(self, column: str, rows: Positions) -> pa.Array[Any]:
        """The column's values in these rows of the table."""
        chunks = self.table.column(column).chunks
        whole = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
        return whole.take(pa.array(rows))

    def key_of(self, place: int) -> int:
        """The key that a place belongs to."""
        return int(np.searchsorted(self.starts, place, side="right")) - 1


def merged_rows(segments: KeySegments, *, passes_lone_rows: bool) -> KeyRows:
    """Rows of all keys, or of those that are not alone."""
    lone = segments.lone if passes_lone_rows else None
    if lone is None or not lone.any():
        return KeyRows(segments.rows, segments.order, segments.starts, None)
    counts = np.diff(segments.starts, append=len(segments.order))
    numbers = np.flatnonzero(~lone)
    lengths = counts[numbers]
    starts = np.cumsum(lengths) - lengths
    rows = segments.order[np.repeat(~lone, counts)]
    return KeyRows(segments.rows, rows, starts, numbers)


def valid_rows(column: pa.ChunkedArray[Any]) -> Flags | None:
    """True where there is a value; None if there is one everywhere."""
    if column.null_count == 0:
        return None
    flags: Flags = column.is_valid().to_numpy()
    return flags


def rows_at(rows: Positions, places: Positions) -> Positions:
    """The row at each place, -1 for place -1."""
    found = rows.take(places, mode="wrap")
    found[places < 0] = -1
    return found
