"""Messages of protocol buffers, as far as footers of ORC files need them: fields by their numbers."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TypeAlias

from freshet.storage.codec.varints import read_unsigned

Message: TypeAlias = Mapping[int, list[int | bytes]]
"""Values of each field, in the order of the message: a number, or the bytes of a text, a part or packed numbers."""


def parse(data: bytes) -> Message:
    """The fields of a message; `ValueError` or `IndexError` where the bytes are none."""
    message: dict[int, list[int | bytes]] = {}
    position = 0
    while position < len(data):
        tag, position = read_unsigned(data, position)
        value: int | bytes
        match tag & 7:
            case 0:
                value, position = read_unsigned(data, position)
            case 1:
                value, position = data[position : position + 8], position + 8
            case 2:
                length, position = read_unsigned(data, position)
                value, position = data[position : position + length], position + length
            case 5:
                value, position = data[position : position + 4], position + 4
            case kind:
                raise ValueError(f"wire type {kind}")
        if position > len(data):
            raise ValueError("the message is cut short")
        message.setdefault(tag >> 3, []).append(value)
    return message


def number(message: Message, field: int) -> int | None:
    """An unsigned number, where the message has it."""
    value = message.get(field, [None])[-1]
    return value if isinstance(value, int) else None


def signed(message: Message, field: int) -> int | None:
    """A number in zigzag encoding."""
    value = number(message, field)
    return None if value is None else (value >> 1) ^ -(value & 1)


def double(message: Message, field: int) -> float | None:
    """A 64-bit floating-point number."""
    value = message.get(field, [None])[-1]
    return struct.unpack("<d", value)[0] if isinstance(value, bytes) else None


def content(message: Message, field: int) -> bytes | None:
    """The bytes of a text or of a part."""
    value = message.get(field, [None])[-1]
    return value if isinstance(value, bytes) else None


def parts(message: Message, field: int) -> list[bytes]:
    """The bytes of all parts in a field."""
    return [value for value in message.get(field, ()) if isinstance(value, bytes)]


def numbers(message: Message, field: int) -> list[int]:
    """Unsigned numbers, packed or not."""
    found: list[int] = []
    for value in message.get(field, ()):
        if isinstance(value, int):
            found.append(value)
            continue
        position = 0
        while position < len(value):
            one, position = read_unsigned(value, position)
            found.append(one)
    return found
