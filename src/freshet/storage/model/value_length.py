"""Which values are longer than their type: characters of CHAR(n) and VARCHAR(n), bytes of BINARY(n) and VARBINARY(n);
and which are texts that are no UTF-8.

Shorter values are all right, also for CHAR and BINARY: files of the format do not pad. Parts of ARRAY, MAP and ROW
count for the row that holds them. Source: FORMAT.md §2.1, §2.3.

Arrow takes any octets for a text unless it is asked: a file with others can be read by nobody.
"""

from __future__ import annotations

from collections.abc import Callable
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
    return _rows_with(values, data_type, limits_length, _too_long)


def holds_text(data_type: DataType) -> bool:
    """True when the type or a part of it is text."""
    if isinstance(data_type, ScalarType):
        return data_type.root in TEXT_ROOTS
    return any(holds_text(part) for part in child_types(data_type))


def no_utf8(values: pa.Array[Any] | pa.ChunkedArray[Any], data_type: DataType) -> RowMask | None:
    """True for the rows with a text that is no UTF-8; None where there is no such row."""
    return _rows_with(values, data_type, holds_text, _no_text)


_Concerns = Callable[[DataType], bool]
_ScalarMask = Callable[[Any, ScalarType], RowMask]


def _rows_with(
    values: pa.Array[Any] | pa.ChunkedArray[Any], data_type: DataType, concerns: _Concerns, scalar_mask: _ScalarMask
) -> RowMask | None:
    if not concerns(data_type) or not len(values):
        return None
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if isinstance(array, pa.ChunkedArray):  # more text than one array can hold
        parts = [_rows_with(chunk, data_type, concerns, scalar_mask) for chunk in array.chunks]
        masks = [np.zeros(len(c), np.bool_) if p is None else p for p, c in zip(parts, array.chunks, strict=True)]
        mask = np.concatenate(masks)
    elif isinstance(data_type, ScalarType):
        mask = scalar_mask(array, data_type)
    else:
        mask = np.zeros(len(array), np.bool_)
        whole = Nested.of(array)
        for child, part in zip(whole.children, child_types(data_type), strict=True):
            found = _rows_with(child, part, concerns, scalar_mask)
            if found is not None:
                mask[found if whole.offsets is None else whole.parents[found]] = True
    return mask if mask.any() else None


def _too_long(array: pa.Array[Any], scalar: ScalarType) -> RowMask:
    lengths = pc.binary_length(array)
    longest = pc.max(lengths).as_py()
    limit = scalar.length or 0
    if longest is None or longest <= limit:  # a character takes a byte at least
        return np.zeros(len(array), np.bool_)
    if scalar.root in TEXT_ROOTS:
        lengths = pc.utf8_length(array)
    mask: RowMask = pc.fill_null(pc.greater(lengths, limit), False).to_numpy(zero_copy_only=False)
    return mask


def _no_text(array: pa.Array[Any], _: ScalarType) -> RowMask:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        octets = array.view(pa.binary()).to_pylist()
        return np.array([each is not None and not _is_utf8(each) for each in octets], np.bool_)
    return np.zeros(len(array), np.bool_)


def _is_utf8(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True
