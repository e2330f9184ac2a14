"""Many binary rows at a time: Arrow columns to serialized rows, bucket hashes and distinct rows.

A row's body is a sequence of 8-byte units: the null area, one slot per field, then the pieces of the variable area in
field order. `_units` yields them one position after the other, each for all rows or for the rows that have it:

    null area | slot 0 | slot 1 | … | piece of field 0: unit 0, unit 1, … | piece of field 1 …

The hash folds the units as they come, so no body is ever built; the encoder stores them. Columns go through in chunks
that fit the processor's cache.

Measured on one core of the reference machine: hashes of 100 M rows/s for one INT or BIGINT key, 50 M for TIMESTAMP(6),
20 M for DECIMAL(38, 0), 13 to 25 M for strings of 10 to 20 bytes, 18 M for a BIGINT and a string; encoding 2 to 5 M
rows/s.

Source: FORMAT.md §5, §8.1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.storage.codec.binary_row import is_wide, null_area_bytes, ticks_per_second
from freshet.storage.codec.murmur import SEED, finish_words, mix_word, mix_words
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.model.data_type import DataType, ScalarType, TypeRoot

CHUNK_ROWS: Final = 16384
"""Rows per chunk: the dozen temporaries of a hash round stay in the second-level cache."""

Int32Array = npt.NDArray[np.int32]

_UInt64Array = npt.NDArray[np.uint64]
Int64Array = npt.NDArray[np.int64]
_BoolArray = npt.NDArray[np.bool_]

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


def row_hashes(arrays: Sequence[pa.Array[Any] | pa.ChunkedArray[Any]], types: Sequence[DataType]) -> Int32Array:
    """Hash of the body of each row, signed; columns in bucket-key order, each with the type of its column."""
    parts = [_hash_chunk(chunk) for chunk in _chunks(arrays, types)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)


def encode_rows(arrays: Sequence[pa.Array[Any] | pa.ChunkedArray[Any]], types: Sequence[DataType]) -> list[bytes]:
    """Serialized form of each row, arity prefix included, equal to `encode_row` on its values."""
    prefix = struct.pack(">i", len(types))
    return [prefix + body for chunk in _chunks(arrays, types) for body in _bodies(chunk)]


def distinct_rows(
    arrays: Sequence[pa.Array[Any] | pa.ChunkedArray[Any]], types: Sequence[DataType]
) -> tuple[list[bytes], npt.NDArray[np.int64]]:
    """The distinct rows, serialized, and for each row the position of its own among them.

    Rows are distinguished by their bytes: two nulls are the same row, -0.0 and 0.0 are not.
    """
    if not arrays:
        raise InvalidRequestError("distinct_rows needs at least one column")
    columns = [single(array) for array in arrays]
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    count = 1
    for column, data_type in zip(columns, types, strict=True):
        column_codes, column_count = _column_codes(conformed(column, data_type))
        codes, count = _compacted(codes * column_count + column_codes, count * column_count)
    first = np.zeros(count if len(codes) else 0, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    rows: Any = pa.array(first)
    encoded = encode_rows([column.take(rows) for column in columns], types)
    numbers = {row: number for number, row in enumerate(dict.fromkeys(encoded))}
    if len(numbers) < len(encoded):  # timestamps finer than their type are distinguished by Arrow, not by the row
        codes = np.array([numbers[row] for row in encoded], dtype=np.int64)[codes]
    return list(numbers), codes


def _compacted(codes: Int64Array, bound: int) -> tuple[Int64Array, int]:
    """Codes below `bound` renumbered without gaps, and how many there are."""
    if bound > max(4 * len(codes), 65_536):
        distinct, dense = np.unique(codes, return_inverse=True)
        return dense, len(distinct)
    present = np.zeros(bound, dtype=np.bool_)
    present[codes] = True
    numbers = present.cumsum() - 1
    return numbers[codes], int(present.sum())


def _column_codes(column: Any) -> tuple[Int64Array, int]:
    # Floats are compared by their bits, so that NaN, -0.0 and 0.0 stay what they are.
    if pa.types.is_floating(column.type):
        column = column.view(pa.int32() if column.type == pa.float32() else pa.int64())
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), max(1, len(encoded.dictionary))


def _chunks(
    arrays: Sequence[pa.Array[Any] | pa.ChunkedArray[Any]], types: Sequence[DataType]
) -> Iterator[list[_RowColumn]]:
    columns = [conformed(array, data_type) for array, data_type in zip(arrays, types, strict=True)]
    if not columns:
        raise InvalidRequestError("at least one column is needed to encode rows")
    if any(len(column) != len(columns[0]) for column in columns):
        raise InvalidRequestError("the columns of one row set differ in length")
    for start in range(0, len(columns[0]), CHUNK_ROWS):
        parts = (column.slice(start, CHUNK_ROWS) for column in columns)
        yield [_row_column(part, data_type) for part, data_type in zip(parts, types, strict=True)]


def _units(columns: list[_RowColumn]) -> Iterator[Unit]:
    null_bytes = null_area_bytes(len(columns))
    yield from _null_units(columns, null_bytes // 8)
    offset: Int64Array | int = null_bytes + 8 * len(columns)
    for column in columns:
        if column.piece is None:
            yield Unit(None, column.slots)
            continue
        shifted = np.asarray(offset, dtype=np.uint64) << np.uint64(32)
        if column.points is None or column.points.all():
            yield Unit(None, column.slots | shifted)
        else:
            yield Unit(None, np.where(column.points, column.slots | shifted, column.slots))
        offset = offset + column.piece.unit_counts * 8
    for column in columns:
        if column.piece is not None:
            yield from column.piece.units


def _null_units(columns: list[_RowColumn], unit_count: int) -> Iterator[Unit]:
    for position in range(unit_count):
        values: Any = 0
        for index, column in enumerate(columns):
            unit, bit = divmod(8 + index, 64)
            if unit == position and column.nulls is not None:
                values = values | (column.nulls.astype(np.uint64) << np.uint64(bit))
        yield Unit(None, values)


def _body_units(columns: list[_RowColumn]) -> Int64Array | int:
    fixed = null_area_bytes(len(columns)) // 8 + len(columns)
    return fixed + sum((column.piece.unit_counts for column in columns if column.piece is not None), start=0)


def _hash_chunk(columns: list[_RowColumn]) -> Int32Array:
    count = len(columns[0].slots)
    lengths = np.asarray(_body_units(columns) * 8).astype(np.uint32)
    constant = SEED  # the state while all rows have seen the same words
    state: npt.NDArray[np.uint32] | None = None
    for unit in _units(columns):
        if isinstance(unit.values, int):
            if state is None:
                constant = mix_word(mix_word(constant, unit.values & 0xFFFFFFFF), unit.values >> 32)
                continue
            values = np.full(count, unit.values, dtype=np.uint64)
        else:
            values = unit.values
        if state is None:
            state = np.full(count, constant, dtype=np.uint32)
        low = values.astype(np.uint32)
        high = (values >> np.uint64(32)).astype(np.uint32)
        if unit.rows is None:
            state = mix_words(mix_words(state, low), high)
        else:
            state[unit.rows] = mix_words(mix_words(state[unit.rows], low), high)
    assert state is not None
    return finish_words(state, lengths if lengths.ndim else np.uint32(lengths))


def _bodies(columns: list[_RowColumn]) -> list[bytes]:
    count = len(columns[0].slots)
    unit_counts = np.broadcast_to(np.asarray(_body_units(columns), dtype=np.int64), (count,))
    ends = unit_counts.cumsum()
    body = np.zeros(int(ends[-1]), dtype=np.uint64)
    cursor = ends - unit_counts
    for unit in _units(columns):
        if unit.rows is None:
            body[cursor] = np.uint64(unit.values) if isinstance(unit.values, int) else unit.values
            cursor += 1
        else:
            body[cursor[unit.rows]] = unit.values
            cursor[unit.rows] += 1
    whole, end_bytes = body.tobytes(), [0, *(8 * ends).tolist()]
    return [whole[start:end] for start, end in pairwise(end_bytes)]


class Unit(Frozen):
    """Eight bytes at one position of the body: of every row, or of the rows listed."""

    rows: npt.NDArray[np.intp] | None
    values: _UInt64Array | int


class FieldPiece(Frozen):
    """What one field has in the variable area. `unit_counts` is one number when all rows have as many."""

    unit_counts: Int64Array | int
    units: Iterator[Unit]


class _RowColumn(Frozen):
    """One Arrow column as its part of many binary rows: a slot in each, and the units of its piece of the variable
    area; `slots` lack the offset where `points` is set (None: every row).

    A slot or unit is eight bytes, as a number. Slots that point to a piece lack its offset, which the columns before
    this one decide; units come one position after the other, each for all rows or for the rows that have it.

    Source: FORMAT.md §5.
    """

    nulls: _BoolArray | None
    slots: _UInt64Array
    piece: FieldPiece | None = None
    points: _BoolArray | None = None


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


def _row_column(array: Any, data_type: DataType) -> _RowColumn:
    """The part of a column that is `conformed`."""
    assert isinstance(data_type, ScalarType)
    nulls = None if array.null_count == 0 else ~array.is_valid().to_numpy(zero_copy_only=False)
    root = data_type.root
    if root in _FIXED:
        return _RowColumn(nulls, _zeroed(_values(array, _FIXED[root][1]).astype(np.uint64), nulls))
    match root:
        case TypeRoot.BOOLEAN:
            plain = array if nulls is None else pc.fill_null(array, False)
            return _RowColumn(nulls, plain.to_numpy(zero_copy_only=False).astype(np.uint64))
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


def _zeroed(slots: _UInt64Array, nulls: _BoolArray | None) -> _UInt64Array:
    if nulls is not None:
        slots[nulls] = 0
    return slots


def _decimal_column(array: Any, nulls: _BoolArray | None, wide: bool) -> _RowColumn:
    words = _values(array, np.uint64, per_row=2).reshape(-1, 2)
    low = _zeroed(words[:, 0].copy(), nulls)
    if not wide:
        return _RowColumn(nulls, low)
    high = _zeroed(words[:, 1].copy(), nulls)
    lengths = _signed_byte_lengths(low, high)
    units = iter([Unit(None, unit) for unit in _left_aligned_big_endian(low, high, lengths)])
    slots = _zeroed(lengths.astype(np.uint64), nulls)
    return _RowColumn(nulls, slots, FieldPiece(2, units))


def _signed_byte_lengths(low: _UInt64Array, high: _UInt64Array) -> Int64Array:
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
    low: _UInt64Array, high: _UInt64Array, lengths: Int64Array
) -> tuple[_UInt64Array, _UInt64Array]:
    shift = ((16 - lengths) * 8).astype(np.uint64)
    inner = shift & np.uint64(63)
    carried = (low >> np.uint64(1)) >> (np.uint64(63) - inner)
    top = np.where(shift >= 64, low << inner, (high << inner) | carried)
    bottom = np.where(shift >= 64, np.uint64(0), low << inner)
    return top.byteswap(), bottom.byteswap()


def _timestamp_column(array: Any, nulls: _BoolArray | None, precision: int) -> _RowColumn:
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
        return _RowColumn(nulls, millis.view(np.uint64))
    if step > 1:
        nanos -= nanos % step
    piece = FieldPiece(1, iter([Unit(None, millis.view(np.uint64))]))
    return _RowColumn(nulls, nanos.view(np.uint64), piece)


def _bytes_column(array: Any, nulls: _BoolArray | None) -> _RowColumn:
    count = len(array)
    _, offset_buffer, data_buffer = array.buffers()
    ends = np.frombuffer(offset_buffer, dtype=np.int32, count=array.offset + count + 1)[array.offset :]
    first_byte, last_byte = int(ends[0]), int(ends[-1])
    padded = np.zeros(last_byte - first_byte + 8, dtype=np.uint8)
    if last_byte > first_byte:
        padded[:-8] = np.frombuffer(data_buffer, dtype=np.uint8, count=last_byte)[first_byte:]
    # Any eight neighbouring bytes as one number: reads behind a value's end are masked away.
    windows: _UInt64Array = np.ndarray((len(padded) - 7,), dtype="<u8", buffer=padded.data, strides=(1,))
    starts = ends[:-1].astype(np.int64) - first_byte
    lengths = np.diff(ends).astype(np.int64)
    if nulls is not None:
        lengths[nulls] = 0
    first = windows[starts] & _LENGTH_MASKS[np.minimum(lengths, 8)]
    is_long = lengths > 7
    if not is_long.any():
        mark = (lengths.astype(np.uint64) + np.uint64(0x80)) << np.uint64(56)
        return _RowColumn(nulls, _zeroed(first | mark, nulls))
    slots = np.where(is_long, lengths, 0).astype(np.uint64)
    if not is_long.all():
        mark = (lengths.astype(np.uint64) + np.uint64(0x80)) << np.uint64(56)
        slots = _zeroed(np.where(is_long, slots, first | mark), nulls)
    unit_counts = np.where(is_long, (lengths + 7) >> 3, 0)
    units = _bytes_units(windows, first, starts, lengths, unit_counts)
    return _RowColumn(nulls, slots, FieldPiece(unit_counts, units), is_long)


def _bytes_units(
    windows: _UInt64Array, first: _UInt64Array, starts: Int64Array, lengths: Int64Array, unit_counts: Int64Array
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
