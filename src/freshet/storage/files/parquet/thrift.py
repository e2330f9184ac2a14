"""The compact encoding of Thrift, in which the footers of Parquet files are: values taken apart, changed, put together.

| value of a field | in Python |
|---|---|
| number of 8, 16, 32 or 64 bits | int |
| text, bytes | bytes |
| 64-bit floating-point number | its 8 bytes |
| struct | `Struct`: its fields by their numbers, in the order of the bytes |
| list, set | `List` |

`encoded` gives the bytes that `decoded` was given. Maps are in no footer.

Source: the Thrift compact protocol; parquet.thrift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from freshet.storage.codec.varints import read_signed, read_unsigned, signed, unsigned

_TRUE: Final = 1
_FALSE: Final = 2
_BYTE: Final = 3
_NUMBERS: Final = (4, 5, 6)
_DOUBLE: Final = 7
_BINARY: Final = 8
_LISTS: Final = (9, 10)
_STRUCT: Final = 12
_STOP: Final = 0
_LONG_LIST: Final = 15
"""Of a list this long and longer the length follows."""

Struct = dict[int, tuple[int, Any]]
"""Type and value of each field."""


@dataclass(slots=True)
class List:
    """Values of one type."""

    value_type: int
    values: list[Any]


def decoded(data: bytes) -> Struct:
    """The struct that the bytes begin with; `ValueError` or `IndexError` where they are none."""
    return _struct(data, 0)[0]


def encoded(struct: Struct) -> bytes:
    """The bytes of a struct."""
    out = bytearray()
    _put_struct(out, struct)
    return bytes(out)


def value(struct: Struct, field: int) -> Any:
    """The value of a field, None where the struct does not have it."""
    return struct[field][1] if field in struct else None


def change(struct: Struct, field: int, new: Any) -> None:
    """Gives a field that the struct has another value."""
    struct[field] = (struct[field][0], new)


def _struct(data: bytes, position: int) -> tuple[Struct, int]:
    fields: Struct = {}
    field = 0
    while True:
        head = data[position]
        position += 1
        if head == _STOP:
            return fields, position
        kind = head & 0x0F
        if head >> 4:
            field += head >> 4
        else:
            field, position = read_signed(data, position)
        if kind in (_TRUE, _FALSE):
            fields[field] = (kind, kind == _TRUE)
        else:
            content, position = _value(data, position, kind)
            fields[field] = (kind, content)


def _value(data: bytes, position: int, kind: int) -> tuple[Any, int]:
    if kind in _NUMBERS:
        return read_signed(data, position)
    if kind == _BINARY:
        length, position = read_unsigned(data, position)
        return data[position : position + length], position + length
    if kind == _STRUCT:
        return _struct(data, position)
    if kind in _LISTS:
        return _list(data, position)
    if kind in (_BYTE, _TRUE, _FALSE):  # truth values of a list take a byte each
        return data[position], position + 1
    if kind == _DOUBLE:
        return data[position : position + 8], position + 8
    raise ValueError(f"type {kind}")


def _list(data: bytes, position: int) -> tuple[List, int]:
    head = data[position]
    position += 1
    count, value_type = head >> 4, head & 0x0F
    if count == _LONG_LIST:
        count, position = read_unsigned(data, position)
    values = []
    for _ in range(count):
        content, position = _value(data, position, value_type)
        values.append(content)
    return List(value_type, values), position


def _put_struct(out: bytearray, struct: Struct) -> None:
    last = 0
    for field, (kind, content) in struct.items():
        if 0 < field - last <= 15:
            out.append((field - last) << 4 | kind)
        else:
            out.append(kind)
            out += signed(field)
        last = field
        if kind not in (_TRUE, _FALSE):
            _put_value(out, kind, content)
    out.append(_STOP)


def _put_value(out: bytearray, kind: int, content: Any) -> None:
    if kind in _NUMBERS:
        out += signed(content)
    elif kind == _BINARY:
        out += unsigned(len(content))
        out += content
    elif kind == _STRUCT:
        _put_struct(out, content)
    elif kind in _LISTS:
        _put_list(out, content)
    elif kind == _DOUBLE:
        out += content
    else:
        out.append(content)


def _put_list(out: bytearray, content: List) -> None:
    count = len(content.values)
    out.append(min(count, _LONG_LIST) << 4 | content.value_type)
    if count >= _LONG_LIST:
        out += unsigned(count)
    for each in content.values:
        _put_value(out, content.value_type, each)
