"""One Arrow column as its part of many binary rows: a slot in each, and the units of its piece of the variable area.

A slot or unit is eight bytes, as a number. Slots that point to a piece lack its offset, which the columns before this
one decide; units come one position after the other, each for all rows or for the rows that have it.

Source: FORMAT.md §5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.codec.binary_row import is_wide, ticks_per_second
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.model.data_type import DataType, ScalarType, TypeRoot

UInt64Array = npt.NDArray[np.uint64]
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_LENGTH_MASKS: Final = np.array([(1 << (8 * n)) - 1 for n in range(8)] + [0xFFFFFFFFFFFFFFFF], dtype=np.uint64)
_FIXED: Final = {
    TypeRoot.TINYINT: (pa.int8(), np.uint8),
    TypeRoot.SMALLINT: (pa.int16(), np.uint16),
    TypeRoot.INT: (pa.int32(), np.uint32),
    TypeRoot.BIGINT: (pa.int64(), np.uint64),
    TypeRoot.FLOAT: (pa.float32(), np.uint32),
    TypeRoot.DOUBLE: (pa.float64(), np.uint64),
    TypeRoot.DATE: (pa.date32(), np.uint32),
    TypeRoot.TIME: (pa.time32("ms"), np.uint32),
}
_TICKS_OF_UNIT: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class Unit:
    """Eight bytes at one position of the body: of every row, or of the rows listed."""

    rows: npt.NDArray[np.intp] | None
    values: UInt64Array | int


@dataclass(frozen=True, slots=True)
class Piece:
    """What one field has in the variable area. `unit_counts` is one number when all rows have as many."""

    unit_counts: Int64Array | int
    units: Iterator[Unit]


@dataclass(frozen=True, slots=True)
class RowColumn:
    """One field of all rows: `slots` lack the offset where `points` is set (None: every row)."""

    nulls: BoolArray | None
    slots: UInt64Array
    piece: Piece | None = None
    points: BoolArray | None = None


def single(array: Any) -> Any:
    """The column as one array."""
    if isinstance(array, pa.ChunkedArray):
        return array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    return array


def conformed(array: Any, data_type: DataType) -> Any:
    """The column as one array in the one Arrow type that is read here for its data type."""
    array = single(array)
    if not isinstance(data_type, ScalarType):
        raise UnsupportedFeatureError(f"{data_type} cannot be part of a key; keys are made of scalar columns")
    wanted = _key_arrow_type(array.type, data_type)
    if array.type == wanted:
        return array
    try:
        return array.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(f"a column of Arrow type {array.type} is not a valid {data_type}: {error}") from error


def _key_arrow_type(given: Any, data_type: ScalarType) -> Any:
    root = data_type.root
    if root in _FIXED:
        return _FIXED[root][0]
    match root:
        case TypeRoot.BOOLEAN:
            return pa.bool_()
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return pa.string()
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return pa.binary()
        case TypeRoot.DECIMAL:
            return pa.decimal128(data_type.precision or 10, data_type.scale or 0)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return given if pa.types.is_timestamp(given) else pa.timestamp("us")
    raise AssertionError(f"{root} is not in binary rows")


def row_column(array: Any, data_type: DataType) -> RowColumn:
    """The part of a column that is `conformed`."""
    assert isinstance(data_type, ScalarType)
    nulls = None if array.null_count == 0 else ~array.is_valid().to_numpy(zero_copy_only=False)
    root = data_type.root
    if root in _FIXED:
        return RowColumn(nulls, _zeroed(_values(array, _FIXED[root][1]).astype(np.uint64), nulls))
    match root:
        case TypeRoot.BOOLEAN:
            plain = array if nulls is None else pc.fill_null(array, False)
            return RowColumn(nulls, plain.to_numpy(zero_copy_only=False).astype(np.uint64))
        case TypeRoot.DECIMAL:
            return _decimal_column(array, nulls, is_wide(data_type))
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return _timestamp_column(array, nulls, data_type.precision or 0)
        case TypeRoot.CHAR | TypeRoot.VARCHAR | TypeRoot.BINARY | TypeRoot.VARBINARY:
            return _bytes_column(array, nulls)
    raise AssertionError(f"{root} is not in binary rows")


def _values(array: Any, dtype: Any, per_row: int = 1) -> npt.NDArray[Any]:
    """The value buffer of a fixed-width array; slots of nulls hold anything."""
    buffer = array.buffers()[1]
    start, end = array.offset * per_row, (array.offset + len(array)) * per_row
    return np.frombuffer(buffer, dtype=dtype, count=end)[start:] if buffer is not None else np.zeros(0, dtype=dtype)


def _zeroed(slots: UInt64Array, nulls: BoolArray | None) -> UInt64Array:
    if nulls is not None:
        slots[nulls] = 0
    return slots


def _decimal_column(array: Any, nulls: BoolArray | None, wide: bool) -> RowColumn:
    words = _values(array, np.uint64, per_row=2).reshape(-1, 2)
    low = _zeroed(words[:, 0].copy(), nulls)
    if not wide:
        return RowColumn(nulls, low)
    high = _zeroed(words[:, 1].copy(), nulls)
    lengths = _signed_byte_lengths(low, high)
    units = iter([Unit(None, unit) for unit in _left_aligned_big_endian(low, high, lengths)])
    slots = _zeroed(lengths.astype(np.uint64), nulls)
    return RowColumn(nulls, slots, Piece(2, units))


def _signed_byte_lengths(low: UInt64Array, high: UInt64Array) -> Int64Array:
    """Bytes of the shortest two's complement form of each 128-bit number, 1 to 16."""
    sign = (high.view(np.int64) >> np.int64(63)).view(np.uint64)
    low_bits, high_bits = low ^ sign, high ^ sign
    lengths = np.ones(len(low), dtype=np.int64)
    for size in range(1, 16):  # more than `size` bytes are needed when the magnitude has more than 8 * size - 1 bits
        bits = 8 * size - 1
        if bits < 64:
            lengths += (high_bits != 0) | (low_bits >> np.uint64(bits) != 0)
        else:
            lengths += high_bits >> np.uint64(bits - 64) != 0
    return lengths


def _left_aligned_big_endian(
    low: UInt64Array, high: UInt64Array, lengths: Int64Array
) -> tuple[UInt64Array, UInt64Array]:
    shift = ((16 - lengths) * 8).astype(np.uint64)
    inner = shift & np.uint64(63)
    carried = (low >> np.uint64(1)) >> (np.uint64(63) - inner)
    top = np.where(shift >= 64, low << inner, (high << inner) | carried)
    bottom = np.where(shift >= 64, np.uint64(0), low << inner)
    return top.byteswap(), bottom.byteswap()


def _timestamp_column(array: Any, nulls: BoolArray | None, precision: int) -> RowColumn:
    given = _TICKS_OF_UNIT[array.type.unit]
    ticks = _values(array, np.int64)
    if nulls is not None:
        ticks = np.where(nulls, 0, ticks)
    if given <= 1000:
        millis, nanos = ticks * (1000 // given), np.zeros(len(ticks), dtype=np.int64)
    else:
        per_milli = given // 1000
        millis = np.floor_divide(ticks, per_milli)
        nanos = (ticks - millis * per_milli) * (1_000_000_000 // given)
    step = 1_000_000_000 // ticks_per_second(precision)
    if precision <= 3:
        if precision == 0:
            millis = np.floor_divide(millis, 1000) * 1000
        return RowColumn(nulls, millis.view(np.uint64))
    if step > 1:
        nanos -= nanos % step
    piece = Piece(1, iter([Unit(None, millis.view(np.uint64))]))
    return RowColumn(nulls, nanos.view(np.uint64), piece)


def _bytes_column(array: Any, nulls: BoolArray | None) -> RowColumn:
    count = len(array)
    _, offset_buffer, data_buffer = array.buffers()
    ends = np.frombuffer(offset_buffer, dtype=np.int32, count=array.offset + count + 1)[array.offset :]
    first_byte, last_byte = int(ends[0]), int(ends[-1])
    padded = np.zeros(last_byte - first_byte + 8, dtype=np.uint8)
    if last_byte > first_byte:
        padded[:-8] = np.frombuffer(data_buffer, dtype=np.uint8, count=last_byte)[first_byte:]
    # Any eight neighbouring bytes as one number: reads behind a value's end are masked away.
    windows: UInt64Array = np.ndarray((len(padded) - 7,), dtype="<u8", buffer=padded.data, strides=(1,))
    starts = ends[:-1].astype(np.int64) - first_byte
    lengths = np.diff(ends).astype(np.int64)
    if nulls is not None:
        lengths[nulls] = 0
    first = windows[starts] & _LENGTH_MASKS[np.minimum(lengths, 8)]
    is_long = lengths > 7
    if not is_long.any():
        mark = (lengths.astype(np.uint64) + np.uint64(0x80)) << np.uint64(56)
        return RowColumn(nulls, _zeroed(first | mark, nulls))
    slots = np.where(is_long, lengths, 0).astype(np.uint64)
    if not is_long.all():
        mark = (lengths.astype(np.uint64) + np.uint64(0x80)) << np.uint64(56)
        slots = _zeroed(np.where(is_long, slots, first | mark), nulls)
    unit_counts = np.where(is_long, (lengths + 7) >> 3, 0)
    units = _bytes_units(windows, first, starts, lengths, unit_counts)
    return RowColumn(nulls, slots, Piece(unit_counts, units), is_long)


def _bytes_units(
    windows: UInt64Array, first: UInt64Array, starts: Int64Array, lengths: Int64Array, unit_counts: Int64Array
) -> Iterator[Unit]:
    rows: npt.NDArray[np.intp] | None = None
    for position in range(int(unit_counts.max())):
        if rows is None:
            kept = unit_counts > position
            rows = None if kept.all() else np.flatnonzero(kept)
        else:
            rows = rows[unit_counts[rows] > position]
        if position == 0:
            yield Unit(rows, first if rows is None else first[rows])
        else:
            left = (lengths if rows is None else lengths[rows]) - 8 * position
            where = (starts if rows is None else starts[rows]) + 8 * position
            yield Unit(rows, windows[where] & _LENGTH_MASKS[np.minimum(left, 8)])
