"""Values of a column as numpy arrays of their bits, in place where they are, and back.

Floats have bits that are equal where the format says so (every NaN is one NaN, -0.0 is not 0.0), and integers that
order as they do (-0.0 < 0.0, NaN above Infinity).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

_WIDTHS: Final = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_NAN_BITS: Final = {32: 0x7FC00000, 64: 0x7FF8000000000000}


def has_fixed_width(arrow_type: pa.DataType) -> bool:
    """True for types of which `fixed_width` gives the bits."""
    if pt.is_decimal128(arrow_type):
        return True
    return pt.is_primitive(arrow_type) and not pt.is_boolean(arrow_type) and arrow_type.bit_width in _WIDTHS


def fixed_width(column: pa.Array[Any]) -> npt.NDArray[Any]:
    """The bits of the values as integers, for decimals a low and a high half; anything where there is NULL."""
    is_decimal = pt.is_decimal128(column.type)
    buffer = column.buffers()[1]
    width = np.int64 if is_decimal else _WIDTHS[column.type.bit_width]
    per_value = 2 if is_decimal else 1
    if buffer is None or not len(column):
        numbers: npt.NDArray[Any] = np.zeros(per_value * len(column), width)
    else:
        numbers = np.frombuffer(buffer, width)[per_value * column.offset : per_value * (column.offset + len(column))]
    return numbers.reshape(-1, 2) if is_decimal else numbers


def from_fixed_width(
    data: npt.NDArray[Any], arrow_type: pa.DataType, valid: npt.NDArray[np.bool_] | None
) -> pa.Array[Any]:
    """An array of these bits, NULL where not valid."""
    buffers = [None if valid is None else bitmap(valid), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(arrow_type, len(data), buffers)


def valid_flags(column: pa.Array[Any]) -> npt.NDArray[np.bool_]:
    """True where there is a value."""
    buffer = column.buffers()[0]
    if buffer is None:
        return np.full(len(column), column.null_count == 0)
    first = column.offset // 8
    last = (column.offset + len(column) + 7) // 8
    bits = np.unpackbits(np.frombuffer(buffer, np.uint8)[first:last], bitorder="little")
    start = column.offset - 8 * first
    return bits[start : start + len(column)].view(np.bool_)


def bitmap(flags: npt.NDArray[np.bool_]) -> pa.Buffer:
    """The flags as Arrow has them, eight to a byte."""
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def text_parts(column: pa.Array[Any]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Where the texts or bytes begin, with the end of the last one, and the bytes of all."""
    _, offsets, data = column.buffers()
    if offsets is None or not len(column):
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    at = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return at, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def float_bits(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The bits of floats as integers, with one NaN."""
    width = 8 * values.dtype.itemsize
    bits = values.view(_WIDTHS[width])
    is_nan = np.isnan(values)
    return np.where(is_nan, bits.dtype.type(_NAN_BITS[width]), bits) if is_nan.any() else bits


def ordered_bits(bits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Between the bits of floats and integers of the same order; its own inverse."""
    # Negative numbers grow towards minus infinity: all their bits but the sign are flipped.
    flips = bits >> (8 * bits.dtype.itemsize - 1)
    flips &= np.iinfo(bits.dtype).max
    flips ^= bits
    return flips
