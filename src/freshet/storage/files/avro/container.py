"""Object container files of Avro: a header, then blocks of records, each with its count, its size and a sync mark.

Obj 1 | map of properties | sync | count, size, compressed records, sync | …
"""

from __future__ import annotations

import bz2
import json
import zlib
from typing import Any, Final

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.codec.avro_file import sized, zstd_frame
from freshet.storage.codec.varints import read_signed, signed
from freshet.storage.exceptions import UnsupportedFeatureError

MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
BLOCK_BYTES: Final = 64_000
"""Records of a block before compression: what Paimon's writer gathers."""

_CRC_BYTES: Final = 4


class Header(Frozen):
    """What a file begins with; `length` is where its first block begins."""

    schema: Any
    codec: str
    sync: bytes
    length: int


class Block(Frozen):
    """Records of a file: the bytes from `offset` on, `length` with the head and the sync mark."""

    offset: int
    length: int
    row_count: int


def header(schema: Any, codec: str, sync: bytes) -> bytes:
    """The beginning of a file."""
    properties = {"avro.schema": json.dumps(schema, separators=(",", ":")).encode(), "avro.codec": codec.encode()}
    entries = b"".join(sized(key.encode()) + sized(value) for key, value in properties.items())
    return MAGIC + signed(len(properties)) + entries + b"\x00" + sync


def read_header(data: bytes) -> Header:
    """Reads the beginning of a file; `ValueError` where it is none, `IndexError` where it is cut short."""
    if data[: len(MAGIC)] != MAGIC:
        raise ValueError("it does not begin as an Avro file does")
    properties: dict[str, bytes] = {}
    position = len(MAGIC)
    while True:
        count, position = read_signed(data, position)
        if count == 0:
            break
        if count < 0:
            count, (_, position) = -count, read_signed(data, position)
        for _ in range(count):
            key, position = _bytes(data, position)
            value, position = _bytes(data, position)
            properties[key.decode()] = value
    sync = data[position : position + SYNC_BYTES]
    if len(sync) < SYNC_BYTES:
        raise IndexError("the header is cut short")
    schema = json.loads(properties["avro.schema"])
    return Header(schema, properties.get("avro.codec", b"null").decode(), sync, position + SYNC_BYTES)


def block(records: pa.Buffer, row_count: int, codec: str, zstd_level: int, sync: bytes) -> bytes:
    """A block of records."""
    content = _compressed(records, codec, zstd_level)
    return b"".join((signed(row_count), signed(len(content)), content, sync))


def _bytes(data: bytes, position: int) -> tuple[bytes, int]:
    length, position = read_signed(data, position)
    if length < 0 or position + length > len(data):
        raise IndexError("the header is cut short")
    return data[position : position + length], position + length


def _compressed(records: pa.Buffer, codec: str, zstd_level: int) -> bytes:
    match codec:
        case "null":
            return bytes(records)
        case "zstandard":
            return zstd_frame(records, zstd_level)
        case "deflate":
            compress = zlib.compressobj(wbits=-15)
            return compress.compress(records) + compress.flush()
        case "snappy":
            return bytes(pa.Codec("snappy").compress(records)) + zlib.crc32(records).to_bytes(_CRC_BYTES, "big")
        case "bzip2":
            return bz2.compress(records)
    raise UnsupportedFeatureError(f"codec {codec!r} cannot be written to Avro files")
