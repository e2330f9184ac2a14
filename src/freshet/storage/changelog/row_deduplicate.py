"""`changelog-producer.row-deduplicate`: which updates change nothing.

| values | same when |
|---|---|
| numbers, dates, times, text, binary | they are equal |
| FLOAT, DOUBLE | bits are equal; every NaN is one NaN, -0.0 is not 0.0 |
| NULL | both are NULL |
| ROW | all fields are the same, NULL fields too |
| ARRAY | lengths and all elements are the same, and no element is NULL |
| MAP | the same keys have the same values, in whatever order, and no value is NULL |

Apache Paimon 2.0.0 takes a NULL element of an array and a NULL value of a map for different from everything, itself
included; so such an update is emitted although nothing changed. Columns named by
`changelog-producer.row-deduplicate-ignore-fields` are not looked at, nor are key columns, which cannot differ.

Source: MERGING.md §4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from freshet._frozen import Frozen
from freshet.storage.merge.aggregate.equality import equality_codes
from freshet.storage.merge.gather import contiguous
from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.nested_arrays import Nested
from freshet.storage.model.value_bits import fixed_width, has_fixed_width, valid_flags


class SameValues(Frozen):
    """An `Unchanged` that compares these columns."""

    columns: tuple[str, ...]

    def pairs(self, old: pa.Table, old_rows: Positions, new: pa.Table, new_rows: Positions) -> Flags:
        result = np.ones(len(old_rows), np.bool_)
        left = np.arange(len(old_rows))
        for name in self.columns:
            if not len(left):
                break
            same = same_values(_taken(old, name, old_rows[left]), _taken(new, name, new_rows[left]))
            result[left[~same]] = False
            left = left[same]
        return result


def same_values(left: pa.Array[Any], right: pa.Array[Any]) -> Flags:
    """True where both values are the same by the table above; the arrays have one type and length."""
    if pt.is_nested(left.type):
        codes = equality_codes(pa.concat_arrays([left, right]))
        same: Flags = codes[: len(left)] == codes[len(left) :]
        return same & ~_has_null_part(left)
    left_valid, right_valid = valid_flags(left), valid_flags(right)
    if has_fixed_width(left.type):
        left_bits, right_bits = fixed_width(left), fixed_width(right)
        equal: Flags = np.equal(left_bits, right_bits).reshape(len(left), -1 if len(left) else 1).all(axis=1)
        if pt.is_floating(left.type):
            equal |= np.isnan(_floats(left_bits)) & np.isnan(_floats(right_bits))
    else:
        equal = pc.equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)
    return np.where(left_valid & right_valid, equal, left_valid == right_valid)


def _floats(bits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return bits.view({2: np.float16, 4: np.float32, 8: np.float64}[bits.itemsize])


def _has_null_part(values: pa.Array[Any]) -> Flags:
    """True where an array element or a map value is NULL, at any depth."""
    whole = Nested.of(values)
    last = whole.children[-1]
    broken = np.zeros(len(last), np.bool_) if whole.offsets is None else ~valid_flags(last)
    for child in whole.children:
        if pt.is_nested(child.type):
            broken |= _has_null_part(child)
    if whole.offsets is None:
        return broken
    before = np.append(0, np.cumsum(broken))
    holds: Flags = before[whole.offsets[1:]] > before[whole.offsets[:-1]]
    return holds


def _taken(rows: pa.Table, name: str, positions: Positions) -> pa.Array[Any]:
    return contiguous(rows.column(name)).take(pa.array(positions))
