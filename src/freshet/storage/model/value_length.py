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

from freshet.storage.model.data_type import (
    BYTES_ROOTS,
    LENGTH_MAX,
    TEXT_ROOTS,
    ArrayType,
    DataType,
    MapType,
    RowType,
    ScalarType,
)

RowMask = npt.NDArray[np.bool_]


def limits_length(data_type: DataType) -> bool:
    """True when the type or a part of it has a limit; STRING and BYTES have none that a value could exceed."""
    match data_type:
        case ArrayType(element=element):
            return limits_length(element)
        case MapType(key=key, value=value):
            return limits_length(key) or limits_length(value)
        case RowType(fields=fields):
            return any(limits_length(field.type) for field in fields)
    return data_type.root in (*TEXT_ROOTS, *BYTES_ROOTS) and data_type.length != LENGTH_MAX


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
    mask = np.zeros(len(array), np.bool_)
    match data_type:
        case ScalarType():
            return _scalar_mask(array, data_type)
        case RowType(fields=fields):
            for index, field in enumerate(fields):
                _mark(mask, None, pc.struct_field(array, [index]), field.type)
        case ArrayType(element=element):
            _mark(mask, pc.list_parent_indices(array).to_numpy(), pc.list_flatten(array), element)
        case MapType(key=key, value=value):
            # The parts of a sliced map are those of the whole buffer; gathering its rows again drops the rest.
            whole: Any = array.take(pa.array(np.arange(len(array))))
            parents = np.repeat(np.arange(len(whole)), np.diff(whole.offsets.to_numpy()))
            _mark(mask, parents, whole.keys, key)
            _mark(mask, parents, whole.items, value)
    return mask


def _mark(mask: RowMask, parents: npt.NDArray[Any] | None, part: pa.Array[Any], data_type: DataType) -> None:
    """Marks the rows of which a part is too long; `parents` says the row of each value, None: one value a row."""
    found = longer_than_type(part, data_type)
    if found is not None:
        mask[found if parents is None else parents[found]] = True


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
