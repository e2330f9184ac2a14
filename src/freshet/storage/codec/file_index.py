"""The container of the indexes of one data file: by column and type the bytes of an index.

    int64     1493475289347502            all integers are big endian
    int32     version, 1
    int32     length of all before the body
    int32     number of columns, and of each:
        text      its name: int16 length, modified UTF-8
        int32     number of indexes, and of each: type (text), int32 start, -1 for an index without values, int32 length
    int32     0, bytes that a later version may add, and these
    body

It is in the manifest entry of the file where it is small, else in a file next to it.

Source: FORMAT.md §11.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from freshet.storage.exceptions import CorruptDataError, UnsupportedFeatureError

BLOOM_FILTER: Final = "bloom-filter"
BITMAP: Final = "bitmap"
RANGE_BITMAP: Final = "range-bitmap"

INDEX_SUFFIX: Final = ".index"
"""The end of the name of the file next to a data file."""

_MAGIC: Final = 1493475289347502
_VERSION: Final = 1
_EMPTY: Final = -1

ColumnIndexes = Mapping[str, bytes | None]
"""By type of index its bytes; None where the column has no value that it would have."""


def decode_file_index(data: bytes | memoryview) -> dict[str, dict[str, bytes | None]]:
    """The indexes by column and type. Raises `CorruptDataError`, `UnsupportedFeatureError` for a later version."""
    reader = _Reader(memoryview(data))
    try:
        magic, version, _ = reader.unpack(">qii")
        if magic != _MAGIC:
            raise CorruptDataError("it does not begin as a file index does")
        if version != _VERSION:
            raise UnsupportedFeatureError(f"the file index has version {version}; {_VERSION} is supported")
        found: dict[str, dict[str, bytes | None]] = {}
        (column_count,) = reader.unpack(">i")
        for _ in range(column_count):
            indexes = found.setdefault(reader.text(), {})
            (index_count,) = reader.unpack(">i")
            for _ in range(index_count):
                kind = reader.text()
                start, length = reader.unpack(">ii")
                if start != _EMPTY and not 0 <= start <= start + length <= len(data):
                    raise CorruptDataError(f"the index {kind} is said to be at {start}, {length} bytes, of {len(data)}")
                indexes[kind] = None if start == _EMPTY else bytes(memoryview(data)[start : start + length])
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptDataError(f"it is cut short or damaged: {error}") from error
    return found


def encode_file_index(columns: Mapping[str, ColumnIndexes]) -> bytes:
    """The container."""
    heads = sum(_HEAD_BYTES.size + len(_text(name)) for name in columns)
    heads += sum(_ENTRY.size + len(_text(kind)) for indexes in columns.values() for kind in indexes)
    start = struct.calcsize(">qiii") + heads + 4
    head, body = [struct.pack(">qiii", _MAGIC, _VERSION, start, len(columns))], b""
    for name, indexes in columns.items():
        head.append(_text(name) + _HEAD_BYTES.pack(len(indexes)))
        for kind, data in indexes.items():
            place = (_EMPTY, 0) if data is None else (start + len(body), len(data))
            head.append(_text(kind) + _ENTRY.pack(*place))
            body += data or b""
    return b"".join(head) + struct.pack(">i", 0) + body


_HEAD_BYTES: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">ii")


def _text(text: str) -> bytes:
    """Modified UTF-8, as Java writes it."""
    data = b"".join(_character(unit) for unit in _utf16(text))
    return struct.pack(">H", len(data)) + data


def _utf16(text: str) -> list[int]:
    data = text.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[index : index + 2], "big") for index in range(0, len(data), 2)]


def _character(unit: int) -> bytes:
    if 0 < unit < 0x80:
        return bytes([unit])
    if unit < 0x800:
        return bytes([0xC0 | unit >> 6, 0x80 | unit & 0x3F])
    return bytes([0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F])


class _Reader:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def unpack(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(layout, self._data, self._position)
        self._position += struct.calcsize(layout)
        return values

    def text(self) -> str:
        (length,) = self.unpack(">H")
        data = bytes(self._data[self._position : self._position + length])
        if len(data) < length:
            raise CorruptDataError("it is cut short")
        self._position += length
        return (
            data.replace(b"\xc0\x80", b"\0")
            .decode("utf-8", "surrogatepass")
            .encode("utf-16-be", "surrogatepass")
            .decode("utf-16-be")
        )
