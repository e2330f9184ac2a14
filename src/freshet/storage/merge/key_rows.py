"""The rows of the keys that a function merges, key after key.

    row index   number of a row here: key k has the row indices starts[k] to ends[k], the newest last
    row         position in the table: `rows[row index]`
    key         number of a key among those here; `numbers[key]` is its number among all keys of the segments

Keys whose lone row passes are left out where they are most: then a merge costs what its repeated keys cost. Where they
are few it is cheaper to take them along as keys of one add, than to sort them out and put them back into each column
(sums and extremes in 8 columns, 16 % lone keys: a sixth of the time). `lone` marks them then.

`last_marked` and `first_marked` find the last or first marked row of each key, for many keys at once. Rows are numbered
from 1 on, those not marked become 0, and the running maximum says at each row which one was marked last. Of 2 M rows in
0.8 M keys that takes 8 ms: a number takes 32 bits, and multiplying by the mark is eight times faster than choosing by
it; a segment maximum takes 20 ms, and steps from row to row of a key 30 ms.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.merge.gather import contiguous, gathered
from freshet.storage.merge.key_order import Flags, KeySegments, ends_of
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import VALUE_KIND_COLUMN
from freshet.storage.model.value_bits import valid_flags

LONE_SHARE_MAX: Final = 0.5
"""With more lone keys than this they are left out."""


class KeyRows(Frozen, dict=True):
    """Rows of the keys that are merged, and maybe of some that are not."""

    table: pa.Table
    rows: Positions
    starts: Positions
    numbers: Positions | None
    """None if every key of the segments is here."""
    lone: Flags | None
    """True for keys that pass as they are; None if there is none here."""

    @property
    def key_count(self) -> int:
        """Number of keys here."""
        return len(self.starts)

    @property
    def merged_count(self) -> int:
        """Number of keys merged."""
        return len(self.starts) - (0 if self.lone is None else int(self.lone.sum()))

    @cached_property
    def ends(self) -> Positions:
        """One past the last row index of each key."""
        return ends_of(self.starts, len(self.rows))

    @cached_property
    def kinds(self) -> npt.NDArray[np.int8]:
        """Row kind by row index; +I for lone rows, to which no rule for kinds applies."""
        kinds: npt.NDArray[np.int8] = self.table.column(VALUE_KIND_COLUMN).to_numpy()[self.rows]
        if self.lone is not None:
            kinds[self.starts[self.lone]] = RowKind.INSERT
        return kinds

    @cached_property
    def retracts(self) -> Flags:
        """By row index: True for -U and -D."""
        result: Flags = (self.kinds == RowKind.UPDATE_BEFORE) | (self.kinds == RowKind.DELETE)
        return result

    @cached_property
    def has_retracts(self) -> bool:
        """False if every row is an add."""
        return bool(self.retracts.any())

    def valid(self, column: str, rows: Positions | None = None) -> Flags | None:
        """By row index, or for these rows of the table: True where there is a value; None if there is everywhere."""
        stored = self.table.column(column)
        if stored.null_count == 0:
            return None
        return np.concatenate([valid_flags(chunk) for chunk in stored.chunks]).take(self.rows if rows is None else rows)

    def values(self, column: str, rows: Positions | None = None) -> pa.Array[Any]:
        """The column's values, by row index or in these rows of the table."""
        return gathered(contiguous(self.table.column(column)), self.rows if rows is None else rows, may_miss=False)


def merged_rows(segments: KeySegments, *, passes_lone_rows: bool) -> KeyRows:
    """Rows of all keys, or of those that are not alone."""
    lone = segments.lone if passes_lone_rows else None
    lone_count = 0 if lone is None else int(lone.sum())
    if lone is None or lone_count == 0:
        return KeyRows(segments.rows, segments.order, segments.starts, None, None)
    if lone_count <= LONE_SHARE_MAX * len(lone):
        return KeyRows(segments.rows, segments.order, segments.starts, None, lone)
    counts = np.diff(segments.starts, append=len(segments.order))
    numbers = np.flatnonzero(~lone)
    lengths = counts[numbers]
    starts = np.cumsum(lengths) - lengths
    rows = segments.order[np.repeat(~lone, counts)]
    return KeyRows(segments.rows, rows, starts, numbers, None)


def rows_at(rows: Positions, indices: Positions) -> Positions:
    """The row at each row index, -1 for -1."""
    found = rows.take(indices, mode="wrap")
    found[indices < 0] = -1
    return found


_INT32_MAX: Final = (1 << 31) - 2


def last_marked(marks: Flags, first: Positions, ends: Positions) -> Positions:
    """The index of the last marked row in [first, end) of each key, or -1."""
    if not len(marks):
        return np.full(len(ends), -1, np.int64)
    width: type[Any] = np.int32 if len(marks) <= _INT32_MAX else np.int64
    numbers: npt.NDArray[Any] = np.arange(1, len(marks) + 1, dtype=width)
    np.multiply(numbers, marks, out=numbers)
    np.maximum.accumulate(numbers, out=numbers)
    # An empty range may end at 0; it begins there too, so what is found lies before it.
    found = numbers.take(np.maximum(ends - 1, 0)).astype(np.int64)
    found -= 1
    found[(found < first) | (ends <= first)] = -1
    return found


def first_marked(marks: Flags, first: Positions, ends: Positions) -> Positions:
    """The index of the first marked row in [first, end) of each key, or -1."""
    count = len(marks)
    found = last_marked(marks[::-1], count - ends, count - first)
    return np.where(found < 0, -1, count - 1 - found)
