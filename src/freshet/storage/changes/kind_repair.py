"""Repairs row kinds after a filter or a projection, so that what comes out is a well-formed stream of changes.

| of a pair -U, +U | comes out |
|---|---|
| both kept, different | -U, +U |
| both kept, equal in the columns asked for | nothing |
| only the -U kept | -D |
| only the +U kept | +I |

A pair is two adjacent rows, as changelog files and the log have them. A -U or +U whose other half is not there (the
producer `input` logs what it is given) is left as it is.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.model.row_kind import RowKind

_DROPPED: Final = -1


def repaired_kinds(
    kinds: npt.NDArray[np.int8], kept: npt.NDArray[np.bool_], unchanged: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int8]:
    """The kind that each row comes out with, -1 for a row that does not.

    `unchanged[i]` says that row i equals row i + 1 in the columns asked for; it is asked of pairs only.
    """
    found = np.where(kept, kinds, np.int8(_DROPPED)).astype(np.int8)
    before = np.flatnonzero((kinds[:-1] == RowKind.UPDATE_BEFORE) & (kinds[1:] == RowKind.UPDATE_AFTER))
    old_kept, new_kept = kept[before], kept[before + 1]
    found[before[old_kept & ~new_kept]] = RowKind.DELETE
    found[before[~old_kept & new_kept] + 1] = RowKind.INSERT
    silent = before[old_kept & new_kept & unchanged[before]]
    found[silent] = _DROPPED
    found[silent + 1] = _DROPPED
    return found


def unchanged_pairs(kinds: npt.NDArray[np.int8], columns: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """True at each -U whose +U follows and is equal to it in these columns."""
    count = len(kinds)
    found = np.zeros(count, np.bool_)
    if count < 2:
        return found
    before = np.flatnonzero((kinds[:-1] == RowKind.UPDATE_BEFORE) & (kinds[1:] == RowKind.UPDATE_AFTER))
    if not len(before):
        return found
    same = np.ones(len(before), np.bool_)
    for column in columns.columns:
        same &= _equal(column.take(pa.array(before)), column.take(pa.array(before + 1)))
    found[before] = same
    return found


def _equal(left: pa.Array, right: pa.Array) -> npt.NDArray[np.bool_]:
    """Null equals null. Nested values count as different: a pair too many says nothing wrong."""
    codes = pa.concat_arrays([left, right])
    if pa.types.is_nested(codes.type):
        return np.zeros(len(left), np.bool_)
    encoded = codes.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
    return encoded[: len(left)] == encoded[len(left) :]  # type: ignore[no-any-return]
