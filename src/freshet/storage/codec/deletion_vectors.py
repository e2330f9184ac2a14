"""Deletion vectors: which rows of data files are deleted, and the index files that hold them.

    file     u8 version = 1, then a vector for each data file, back to back
    vector   u32 length, big endian: of magic and bitmap
             magic, bitmap (below)
             u32 CRC-32 of magic and bitmap, big endian

| | 32 bits | 64 bits |
|---|---|---|
| magic | 5E 43 F2 D0 | D1 D3 39 64 |
| bitmap | portable 32-bit bitmap | i64 count, then for each high word, from 0 on: i32 high word, portable bitmap |
| `length` of its range in the index manifest | magic and bitmap | everything: length and CRC as well |

Bitmaps hold positions of rows in the data file, from 0, retracts counted. `offset` of a range is where its length field
is. The magic says which of the two a vector is, whatever the options of the table say; one file may have both.
A file without vectors is its version byte alone. No data file has 2^32 rows, so in memory all are 32-bit bitmaps.

Source: FORMAT.md §10.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final
from zlib import crc32

from freshet.storage.codec.roaring_bitmaps import (
    Bitmap32,
    read_bitmap32,
    read_portable64,
    write_bitmap32,
    write_portable64,
)
from freshet.storage.exceptions import CorruptDataError, InvalidRequestError
from freshet.storage.model.manifest import DeletionVectorRange

VERSION: Final = b"\1"
"""First byte of an index file. Part of the format, do not change."""
_MAGIC_32: Final = bytes.fromhex("5e43f2d0")
_MAGIC_64: Final = bytes.fromhex("d1d33964")
_U32: Final = struct.Struct(">I")
_FRAME_BYTES: Final = 2 * _U32.size
"""Length field and CRC."""


def write_vectors(vectors: Mapping[str, Bitmap32], *, is_64_bit: bool) -> tuple[bytes, tuple[DeletionVectorRange, ...]]:
    """An index file with the vectors of data files, by name, and where each is in it."""
    pieces, ranges, offset = [VERSION], [], len(VERSION)
    for name, rows in vectors.items():
        vector = _encoded(rows, is_64_bit=is_64_bit)
        length = len(vector) if is_64_bit else len(vector) - _FRAME_BYTES
        ranges.append(DeletionVectorRange(name, offset, length, len(rows)))
        pieces.append(vector)
        offset += len(vector)
    return b"".join(pieces), tuple(ranges)


def read_vector(data: bytes, vector: DeletionVectorRange, path: str) -> Bitmap32:
    """Deleted rows of one data file, out of the bytes of the index file at `path`.

    Raises `CorruptDataError` for bytes that are no vector of this length.
    """
    if data[:1] != VERSION:
        raise CorruptDataError(f"it begins with {data[:1].hex() or 'nothing'}, not with version 1", path=path)

    def damaged(reason: str) -> CorruptDataError:
        return CorruptDataError(
            f"the deletion vector of {vector.data_file_name} is damaged: {reason}; restore the index file from a copy",
            path=path,
            byte_offset=vector.offset,
        )

    body_start = vector.offset + _U32.size
    if not len(VERSION) <= vector.offset <= len(data) - _FRAME_BYTES - len(_MAGIC_32):
        raise damaged(f"the file ends at byte {len(data)}")
    (length,) = _U32.unpack_from(data, vector.offset)
    body = data[body_start : body_start + length]
    checksum = data[body_start + length : body_start + length + _U32.size]
    magic, bitmap = body[: len(_MAGIC_32)], body[len(_MAGIC_32) :]
    if magic not in (_MAGIC_32, _MAGIC_64):
        raise damaged(f"its magic number is {magic.hex()}")
    expected = vector.length if magic == _MAGIC_32 else vector.length - _FRAME_BYTES
    if length != expected:
        raise damaged(f"it has {length} bytes where the index manifest says {expected}")
    if len(checksum) < _U32.size:
        raise damaged(f"the file ends at byte {len(data)}")
    if checksum != _U32.pack(crc32(body)):
        raise damaged("its checksum does not match")
    try:
        rows = read_bitmap32(bitmap) if magic == _MAGIC_32 else read_portable64(bitmap)
    except InvalidRequestError as error:
        raise damaged(str(error)) from error
    if vector.cardinality is not None and len(rows) != vector.cardinality:
        raise damaged(f"it has {len(rows)} rows where the index manifest says {vector.cardinality}")
    return rows


def _encoded(rows: Bitmap32, *, is_64_bit: bool) -> bytes:
    body = _MAGIC_64 + write_portable64(rows) if is_64_bit else _MAGIC_32 + write_bitmap32(rows)
    return _U32.pack(len(body)) + body + _U32.pack(crc32(body))
