"""Compressed files, by their extension."""

from __future__ import annotations

import bz2
import gzip
import zlib

import pyarrow as pa
import pytest

from freshet.pipeline.query.task.file_lines import is_compressed, uncompressed

TEXT = b"abc\n" * 1000 + b"\0\0"
ZSTD = pa.Codec("zstd").compress(TEXT, asbytes=True)


def hadoop_blocks(codec: str, *blocks: list[bytes]) -> bytes:
    """Blocks of chunks, as Hadoop's codecs write them."""
    out = b""
    for chunks in blocks:
        out += sum(map(len, chunks)).to_bytes(4)
        for chunk in chunks:
            packed = pa.Codec(codec).compress(chunk, asbytes=True)
            out += len(packed).to_bytes(4) + packed
    return out


COMPRESSED = {
    "a.gz": gzip.compress(TEXT),
    "A.GZ": gzip.compress(TEXT[:7]) + gzip.compress(TEXT[7:]),
    "a.bz2": bz2.compress(TEXT[:7]) + bz2.compress(TEXT[7:]),
    "a.zst": ZSTD,
    "a.zstd": ZSTD,
    "a.deflate": zlib.compress(TEXT),
    "a.snappy": hadoop_blocks("snappy", [TEXT[:9]], [TEXT[9:99], TEXT[99:]]),
    "a.lz4": hadoop_blocks("lz4_raw", [TEXT[:9]], [TEXT[9:99], b"", TEXT[99:]]),
}


@pytest.mark.parametrize("name", COMPRESSED)
def test_compressed_files_are_read_as_they_were(name: str) -> None:
    content = COMPRESSED[name]
    assert is_compressed(name)
    assert _content(name, content) == TEXT
    assert _content(name, b"") == b""
    with pytest.raises((OSError, pa.ArrowInvalid, zlib.error)):
        _content(name, content[:-3])


@pytest.mark.parametrize("name", ["a.json", "a.gz2", "a.Z", "a.xz", "gz", ".gz.txt"])
def test_other_files_are_plain(name: str) -> None:
    assert not is_compressed(name)
    assert _content(name, TEXT) == TEXT


def _content(name: str, content: bytes) -> bytes:
    read, found = uncompressed(pa.BufferReader(content), name), b""
    while part := read(1000):
        found += part
    return found
