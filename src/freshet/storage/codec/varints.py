"""Numbers of variable length, seven bits a byte, lowest first; signed ones in zigzag: 0, -1, 1, -2 as 0, 1, 2, 3."""

from __future__ import annotations


def read_unsigned(data: bytes, position: int) -> tuple[int, int]:
    """A number and the position behind it."""
    shift = number = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7


def read_signed(data: bytes, position: int) -> tuple[int, int]:
    """A signed number and the position behind it."""
    number, position = read_unsigned(data, position)
    return (number >> 1) ^ -(number & 1), position


def unsigned(number: int) -> bytes:
    """The bytes of a number that is not negative."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def signed(number: int) -> bytes:
    """The bytes of a number."""
    return unsigned(number << 1 if number >= 0 else (-number << 1) - 1)
