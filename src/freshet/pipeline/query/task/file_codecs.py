"""Compressed files as the bytes that were compressed: what their extension says, as Hadoop's codecs read it.

| extension | a file is |
|---|---|
| .gz, .bz2, .zst, .zstd | one stream after the other |
| .deflate | a stream of zlib's |
| .snappy, .lz4 | blocks of Hadoop's: length, then chunks (length, bytes) until they make so many |

An empty file is one of no bytes. Source: Hadoop's codecs, as Spark 4.2.1 has them; tried.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

Read = Callable[[int], bytes]
"""At most so many of the next bytes; none at the end."""

_ARROW: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd"}
_DEFLATE: Final = ".deflate"
_BLOCKS: Final = {".snappy": "snappy", ".lz4": "lz4_raw"}

_READ_BYTES: Final = 1 << 20


def is_compressed(name: str) -> bool:
    """Whether the extension of a file says so."""
    return _extension(name) in {*_ARROW, _DEFLATE, *_BLOCKS}


def uncompressed(file: pa.NativeFile, name: str) -> Read:
    """What reads a file as it was before it was compressed. Raises `OSError`, `ArrowInvalid` or `zlib.error` where
    it is damaged, or ends before its end."""
    extension = _extension(name)
    if extension in _ARROW:
        stream: Any = pa.CompressedInputStream(file, _ARROW[extension])
        return stream.read  # type: ignore[no-any-return]
    if extension == _DEFLATE:
        return _pieces(_inflated(file))
    if extension in _BLOCKS:
        return _pieces(_blocks(file, pa.Codec(_BLOCKS[extension])))
    return file.read  # type: ignore[no-any-return]


def _extension(name: str) -> str:
    return name[name.rfind(".") :].lower() if "." in name else ""


def _pieces(parts: Iterator[bytes]) -> Read:
    return lambda _: next(parts, b"")


def _inflated(file: pa.NativeFile) -> Iterator[bytes]:
    inflating = zlib.decompressobj()
    while data := file.read(_READ_BYTES):
        while data and not inflating.eof:
            if part := inflating.decompress(data, _READ_BYTES):
                yield part
            data = inflating.unconsumed_tail
    if part := inflating.flush():
        yield part
    if not inflating.eof and file.tell():
        raise OSError("it ends in the middle")


def _blocks(file: pa.NativeFile, codec: pa.Codec) -> Iterator[bytes]:
    while header := file.read(4):
        left = int.from_bytes(header)
        while left > 0:
            chunk = file.read(_size(file))
            part = _chunk(codec, chunk, left)
            left -= len(part)
            if part:
                yield part


def _size(file: pa.NativeFile) -> int:
    header = file.read(4)
    if len(header) < 4:
        raise OSError("it ends in the middle")
    return int.from_bytes(header)


def _chunk(codec: pa.Codec, chunk: bytes, left: int) -> bytes:
    """The bytes of a chunk of a block, `left` of which are to come. A chunk of LZ4 does not say how many it makes, and
    Arrow does not say how many it has made."""
    size = left
    if _fits(codec, chunk, left - 1):  # others of the block follow
        size = bisect_left(range(left), True, key=lambda each: _fits(codec, chunk, each))
    part: bytes = codec.decompress(chunk, size, asbytes=True)
    return part


def _fits(codec: pa.Codec, chunk: bytes, size: int) -> bool:
    try:
        codec.decompress(chunk, size)
    except (OSError, pa.ArrowInvalid):
        return False
    return True
