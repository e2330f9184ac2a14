"""One binary row at a time: Python values to bytes and back.

    serialized row = arity (int32, BIG endian) + body (little endian)
    body           = null area + one 8-byte slot per field + variable area
    null area      = ((arity + 63 + 8) // 64) * 8 bytes; byte 0 is the row kind (0), field i is bit 8 + i, LSB first
    variable area  = pieces in field order, each zero-padded to 8 bytes; offsets count from the start of the body

| type | Python value (given and returned) | slot |
|---|---|---|
| BOOLEAN | bool | 1 byte |
| TINYINT … BIGINT | int | natural width |
| FLOAT, DOUBLE | float | IEEE bits |
| CHAR, VARCHAR / BINARY, VARBINARY | str / bytes | 7 bytes or fewer inline, else (offset << 32) + length |
| DECIMAL | decimal.Decimal at the type's scale | p <= 18 unscaled, else 16 variable bytes |
| DATE | datetime.date; an int (epoch day) is taken too, and returned outside the years 1..9999 | int32 |
| TIME | int, milliseconds of the day; datetime.time is taken too | int32 |
| TIMESTAMP, TIMESTAMP_LTZ | int in the Arrow unit: s (p 0), ms (1-3), us (4-6), ns (7-9), or datetime | below |
| ARRAY, MAP, ROW | list, dict (or list of pairs), tuple (or dict by name) | nested bytes in the variable area |

A timestamp is epoch milliseconds (floored) in the slot for p <= 3; for p > 3 they are in the variable area and the
slot holds (offset << 32) + nanoseconds within the millisecond. A null leaves a zero slot, except that a null DECIMAL
with p > 18 or TIMESTAMP with p > 3 keeps its 16 or 8 zero bytes in the variable area and the offset in the slot:
other encodings of such a null decode as well, but hash to another bucket.

Source: FORMAT.md §5.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_type import (
    BYTES_ROOTS,
    TEXT_ROOTS,
    TIMESTAMP_ROOTS,
    ArrayType,
    DataType,
    MapType,
    RowType,
    ScalarType,
    TypeRoot,
)

EPOCH_DAY_ORDINAL: Final = datetime.date(1970, 1, 1).toordinal()

_INLINE_MAX: Final = 7
_INT_FORMATS: Final = {
    TypeRoot.BOOLEAN: ("<?", 1),
    TypeRoot.TINYINT: ("<b", 1),
    TypeRoot.SMALLINT: ("<h", 2),
    TypeRoot.INT: ("<i", 4),
    TypeRoot.DATE: ("<i", 4),
    TypeRoot.TIME: ("<i", 4),
    TypeRoot.BIGINT: ("<q", 8),
    TypeRoot.FLOAT: ("<f", 4),
    TypeRoot.DOUBLE: ("<d", 8),
}


def encode_row(values: Sequence[object], types: Sequence[DataType]) -> bytes:
    """Serialized form of one row, with the arity prefix."""
    return struct.pack(">i", len(types)) + encode_body(values, types)


def decode_row(data: bytes, types: Sequence[DataType]) -> tuple[Any, ...]:
    """Values of a serialized row.

    Raises `InvalidRequestError` when the arity is not that of `types` or the bytes are too short; callers that read
    files turn it into `CorruptDataError` with the path.
    """
    if len(data) < 4 or int.from_bytes(data[:4], "big") != len(types):
        raise InvalidRequestError(f"binary row of arity {data[:4].hex()} where {len(types)} fields are expected")
    try:
        return _decode_body(memoryview(data)[4:], types)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"binary row of {len(data)} bytes is broken: {error}") from error


def encode_body(values: Sequence[object], types: Sequence[DataType]) -> bytes:
    """Body of a row, without the arity prefix; also the form of a nested ROW."""
    if len(values) != len(types):
        raise InvalidRequestError(f"{len(values)} values for {len(types)} fields")
    null_width = null_area_bytes(len(types))
    body = bytearray(null_width + 8 * len(types))
    for index, (value, data_type) in enumerate(zip(values, types, strict=True)):
        if value is None:
            bit = 8 + index
            body[bit >> 3] |= 1 << (bit & 7)
        _put(body, null_width + 8 * index, value, data_type, keeps_wide_null=True)
    return bytes(body)


def null_area_bytes(arity: int) -> int:
    """Bytes before the first slot."""
    return (arity + 63 + 8) // 64 * 8


def is_wide(data_type: DataType) -> bool:
    """True for the types whose value, null or not, always has bytes in the variable area."""
    if not isinstance(data_type, ScalarType) or data_type.precision is None:
        return False
    if data_type.root is TypeRoot.DECIMAL:
        return data_type.precision > 18
    return data_type.root in TIMESTAMP_ROOTS and data_type.precision > 3


def ticks_per_second(precision: int) -> int:
    """Ticks of the Arrow unit of TIMESTAMP(precision)."""
    if precision == 0:
        return 1
    return 1_000 if precision <= 3 else 1_000_000 if precision <= 6 else 1_000_000_000


def unscaled(value: Decimal, data_type: ScalarType) -> int:
    """Digits of a decimal at the scale of its type; a value that needs more digits is refused.

    Up to DECIMAL(18) whatever has 64 bits is taken: sums may outgrow the type, and are kept (MERGING.md §2.6.1).
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise InvalidRequestError(f"{value} is not a valid {data_type}")
    number = int("".join(map(str, digits)) or "0")
    shift: int = exponent + (data_type.scale or 0)
    if shift < 0:
        number, rest = divmod(number, 10**-shift)
        if rest:
            raise InvalidRequestError(f"{value} has more fraction digits than {data_type}")
    else:
        number *= int(10**shift)
    precision = data_type.precision or 0
    if number >= (_power_of_ten(precision) if precision > 18 else 1 << 63):
        raise InvalidRequestError(f"{value} does not fit {data_type}")
    return -number if sign else number


@lru_cache(maxsize=64)
def _power_of_ten(exponent: int) -> int:
    return int(10**exponent)


def _put(body: bytearray, slot: int, value: Any, data_type: DataType, *, keeps_wide_null: bool) -> None:
    if value is None:
        if keeps_wide_null and is_wide(data_type):
            struct.pack_into("<q", body, slot, len(body) << 32)
            body += bytes(16 if data_type.root is TypeRoot.DECIMAL else 8)
        return
    match data_type:
        case ArrayType(element=element):
            _put_piece(body, slot, _encode_array(value, element))
        case MapType():
            _put_piece(body, slot, _encode_map(value, data_type))
        case RowType(fields=fields):
            values = [value.get(field.name) for field in fields] if isinstance(value, Mapping) else value
            _put_piece(body, slot, encode_body(values, [field.type for field in fields]))
        case ScalarType():
            _put_scalar(body, slot, value, data_type)


def _put_scalar(body: bytearray, slot: int, value: Any, data_type: ScalarType) -> None:
    root = data_type.root
    if root in TEXT_ROOTS or root in BYTES_ROOTS:
        piece = value.encode() if isinstance(value, str) else bytes(value)
        if len(piece) <= _INLINE_MAX:
            body[slot : slot + len(piece)] = piece
            body[slot + 7] = 0x80 + len(piece)
        else:
            _put_piece(body, slot, piece)
    elif root is TypeRoot.DECIMAL:
        number = unscaled(value, data_type)
        if (data_type.precision or 0) <= 18:
            struct.pack_into("<q", body, slot, number)
        else:
            magnitude = number if number >= 0 else ~number
            length = magnitude.bit_length() // 8 + 1
            struct.pack_into("<q", body, slot, (len(body) << 32) + length)
            body += number.to_bytes(length, "big", signed=True).ljust(16, b"\0")
    elif root in TIMESTAMP_ROOTS:
        _put_timestamp(body, slot, value, data_type.precision or 0)
    else:
        try:
            struct.pack_into(_INT_FORMATS[root][0], body, slot, _small_value(value, root))
        except (struct.error, TypeError) as error:
            raise InvalidRequestError(f"{value!r} does not fit {data_type}") from error


def _small_value(value: Any, root: TypeRoot) -> Any:
    if root is TypeRoot.DATE and isinstance(value, datetime.date):
        return value.toordinal() - EPOCH_DAY_ORDINAL
    if root is TypeRoot.TIME and isinstance(value, datetime.time):
        return (value.hour * 3600 + value.minute * 60 + value.second) * 1000 + value.microsecond // 1000
    return value


def _put_timestamp(body: bytearray, slot: int, value: Any, precision: int) -> None:
    per_second = ticks_per_second(precision)
    ticks = timestamp_ticks(value, per_second)
    if per_second <= 1000:
        struct.pack_into("<q", body, slot, ticks * (1000 // per_second))
    else:
        millis, rest = divmod(ticks, per_second // 1000)
        struct.pack_into("<q", body, slot, (len(body) << 32) + rest * (1_000_000_000 // per_second))
        if precision > 3:
            body += struct.pack("<q", millis)


def timestamp_ticks(value: Any, per_second: int) -> int:
    """Ticks since the epoch; a datetime without zone counts as UTC."""
    if not isinstance(value, datetime.datetime):
        return int(value)
    naive = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo is not None else value
    delta = naive - datetime.datetime(1970, 1, 1)
    micros = (delta.days * 86400 + delta.seconds) * 1_000_000 + delta.microseconds
    nanos = micros * 1000 + int(getattr(value, "nanosecond", 0))
    return nanos // (1_000_000_000 // per_second)


def _put_piece(body: bytearray, slot: int, piece: bytes) -> None:
    struct.pack_into("<q", body, slot, (len(body) << 32) + len(piece))
    body += piece
    body += bytes(-len(piece) % 8)


def _element_width(data_type: DataType) -> int:
    return _INT_FORMATS.get(data_type.root, ("", 8))[1]


def _encode_array(values: Sequence[object], element: DataType) -> bytes:
    width = _element_width(element)
    header = 4 + (len(values) + 31) // 32 * 4
    size = header + width * len(values)
    body = bytearray(size + -size % 8)
    struct.pack_into("<i", body, 0, len(values))
    for index, value in enumerate(values):
        if value is None:
            body[4 + (index >> 3)] |= 1 << (index & 7)
        _put(body, header + width * index, value, element, keeps_wide_null=False)
    return bytes(body)


def _encode_map(value: Any, data_type: MapType) -> bytes:
    pairs = list(value.items()) if isinstance(value, Mapping) else list(value)
    keys = _encode_array([pair[0] for pair in pairs], data_type.key)
    values = _encode_array([pair[1] for pair in pairs], data_type.value)
    return struct.pack("<i", len(keys)) + keys + values


def _decode_body(body: memoryview, types: Sequence[DataType]) -> tuple[Any, ...]:
    null_width = null_area_bytes(len(types))
    values: list[Any] = []
    for index, data_type in enumerate(types):
        bit = 8 + index
        if body[bit >> 3] >> (bit & 7) & 1:
            values.append(None)
        else:
            values.append(_take(body, null_width + 8 * index, data_type))
    return tuple(values)


def _take(body: memoryview, slot: int, data_type: DataType) -> Any:
    match data_type:
        case ArrayType(element=element):
            return _decode_array(_piece(body, slot), element)
        case MapType():
            piece = _piece(body, slot)
            key_bytes = struct.unpack_from("<i", piece)[0]
            keys = _decode_array(piece[4 : 4 + key_bytes], data_type.key)
            return dict(zip(keys, _decode_array(piece[4 + key_bytes :], data_type.value), strict=True))
        case RowType(fields=fields):
            return _decode_body(_piece(body, slot), [field.type for field in fields])
        case ScalarType():
            return _take_scalar(body, slot, data_type)


def _take_scalar(body: memoryview, slot: int, data_type: ScalarType) -> Any:
    root = data_type.root
    if root in TEXT_ROOTS:
        return str(_inline_or_piece(body, slot), "utf-8")
    if root in BYTES_ROOTS:
        return bytes(_inline_or_piece(body, slot))
    if root is TypeRoot.DECIMAL:
        if (data_type.precision or 0) <= 18:
            number = struct.unpack_from("<q", body, slot)[0]
        else:
            number = int.from_bytes(_piece(body, slot), "big", signed=True)
        return _scaled(number, data_type.scale or 0)
    if root in TIMESTAMP_ROOTS:
        return _take_timestamp(body, slot, data_type.precision or 0)
    value = struct.unpack_from(_INT_FORMATS[root][0], body, slot)[0]
    if root is TypeRoot.DATE and 1 <= value + EPOCH_DAY_ORDINAL <= datetime.date.max.toordinal():
        return datetime.date.fromordinal(value + EPOCH_DAY_ORDINAL)
    return value


def _scaled(number: int, scale: int) -> Decimal:
    # Built from digits: arithmetic would round to the 28 digits of the default context.
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def _take_timestamp(body: memoryview, slot: int, precision: int) -> int:
    per_second = ticks_per_second(precision)
    word: int = struct.unpack_from("<q", body, slot)[0]
    if precision <= 3:
        return word // (1000 // per_second)
    millis: int = struct.unpack_from("<q", body, word >> 32)[0]
    return millis * (per_second // 1000) + (word & 0xFFFFFFFF) // (1_000_000_000 // per_second)


def _inline_or_piece(body: memoryview, slot: int) -> memoryview:
    mark = body[slot + 7]
    return body[slot : slot + (mark & 0x7F)] if mark & 0x80 else _piece(body, slot)


def _piece(body: memoryview, slot: int) -> memoryview:
    word = struct.unpack_from("<Q", body, slot)[0]
    offset, length = word >> 32, word & 0xFFFFFFFF
    if offset + length > len(body):
        raise IndexError(f"piece of {length} bytes at {offset} ends behind the row")
    return body[offset : offset + length]


def _decode_array(body: memoryview, element: DataType) -> list[Any]:
    count = struct.unpack_from("<i", body)[0]
    header = 4 + (count + 31) // 32 * 4
    width = _element_width(element)
    result: list[Any] = []
    for index in range(count):
        is_null = body[4 + (index >> 3)] >> (index & 7) & 1
        result.append(None if is_null else _take(body, header + width * index, element))
    return result
