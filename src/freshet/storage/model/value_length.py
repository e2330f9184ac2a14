"""Which values are longer than their type: characters of CHAR(n) and VARCHAR(n), bytes of BINARY(n) and VARBINARY(n).

Shorter values are all right, also for CHAR and BINARY: files of the format do not pad. Parts of ARRAY, MAP and ROW
count for the row that holds them. Source: FORMAT.md §2.1, §2.3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.model.data_type import BYTES_ROOTS, LENGTH_MAX, TEXT_ROOTS, DataType, ScalarType, child_types
from freshet.storage.model.nested_arrays import Nested

RowMask = npt.NDArray[np.bool_]


def limits_length(data_type: DataType) -> bool:
    """True when the type or a part of it has a limit; STRING and BYTES have none that a value could exceed."""
    if isinstance(data_type, ScalarType):
        return data_type.root in (*TEXT_ROOTS, *BYTES_ROOTS) and data_type.length != LENGTH_MAX
    return any(limits_length(part) for part in child_types(data_type))


def longer_than_type(values: pa.Array[Any] | pa.ChunkedArray[Any], data_type: DataType) -> RowMask | None:
    """True for the rows with a value that is too long; None where there is no such row.

    `values` have the Arrow type of `data_type` (`arrow_types.arrow_type`).
    """
    if not limits_length(data_type) or not len(values):
        return None
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if isinstance(array, pa.ChunkedArray):  # more text than one array can hold
        parts = [longer_than_type(chunk, data_type) for chunk in array.chunks]
        masks = [np.zeros(len(c), np.bool_) if p is None else p for p, c in zip(parts, array.chunks, strict=True)]
        mask = np.concatenate(masks)
    else:
        mask = _mask(array, data_type)
    return mask if mask.any() else None


def _mask(array: pa.Array[Any], data_type: DataType) -> RowMask:
    if isinstance(data_type, ScalarType):
        return _scalar_mask(array, data_type)
    mask = np.zeros(len(array), np.bool_)
    whole = Nested.of(array)
    for child, part in zip(whole.children, child_types(data_type), strict=True):
        found = longer_than_type(child, part)
        if found is not None:
            mask[found if whole.offsets is None else whole.parents[found]] = True
    return mask


def _scalar_mask(array: pa.Array[Any], scalar: ScalarType) -> RowMask:
    lengths = pc.binary_length(array)
    longest = pc.max(lengths).as_py()
    limit = scalar.length or 0
    if longest is None or longest <= limit:  # a character takes a byte at least
        return np.zeros(len(array), np.bool_)
    if scalar.root in TEXT_ROOTS:
        lengths = pc.utf8_length(array)
    mask: RowMask = pc.fill_null(pc.greater(lengths, limit), False).to_numpy(zero_copy_only=False)
    return mask
