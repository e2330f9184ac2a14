"""The end of an ORC file: its stripes with their rows, its types, and the statistics of stripes.

    stripes … | statistics of stripes | footer | postscript | length of the postscript (one byte)

pyarrow reads stripes and types, but gives neither the rows of a stripe nor any statistics. Source: the specification of
ORC v1; only what is used is read.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

import cramjam
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.codec.varints import read_unsigned
from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.files.orc import protobuf as pb

_MAGIC: Final = b"ORC"
_POSTSCRIPT_BYTES_MAX: Final = 256
_CHUNK_HEAD_BYTES: Final = 3
_NO_COMPRESSION: Final = 0
_ZLIB: Final = 1

CHAR_KIND: Final = 17
TIMESTAMP_KINDS: Final = frozenset({9, 18})
"""TIMESTAMP and TIMESTAMP_INSTANT."""


class OrcType(Frozen):
    """A node of the tree of types, by its kind; `children` are the numbers of its parts."""

    kind: int
    children: Sequence[int]
    names: Sequence[str]


class Stripe(Frozen):
    """A chunk of the file; `statistics` are those of all nodes, or none."""

    offset: int
    length: int
    row_count: int
    statistics: Sequence[pb.Message]


class OrcFooter(Frozen):
    """What is known of a file before a stripe is read."""

    stripes: Sequence[Stripe]
    types: Sequence[OrcType]

    @property
    def columns(self) -> dict[str, int]:
        """The node of each top-level column."""
        root = self.types[0]
        return dict(zip(root.names, root.children, strict=True))

    def leaves(self, node: int) -> list[int]:
        """The node and all below it."""
        return [node, *(leaf for child in self.types[node].children for leaf in self.leaves(child))]


def footer_bytes(tail: pa.Buffer) -> int | None:
    """Length of what is at the end of the file that ends so; None where it is no end of an ORC file."""
    end = tail.slice(max(0, tail.size - _POSTSCRIPT_BYTES_MAX)).to_pybytes()
    if len(end) < 2 or end[-1] + 1 > len(end):
        return None
    try:
        postscript = pb.parse(end[-1 - end[-1] : -1])
    except (ValueError, IndexError):
        return None
    if pb.content(postscript, 8000) != _MAGIC:
        return None
    length: int = (pb.number(postscript, 1) or 0) + (pb.number(postscript, 5) or 0) + end[-1] + 1
    return length


def parse_footer(tail: pa.Buffer) -> OrcFooter:
    """Reads the end of a file, as long as `footer_bytes` says; `ValueError` or `IndexError` where it is broken."""
    data = tail.to_pybytes()
    postscript = pb.parse(data[-1 - data[-1] : -1])
    footer_end = len(data) - 1 - data[-1]
    footer_start = footer_end - (pb.number(postscript, 1) or 0)
    statistics_start = footer_start - (pb.number(postscript, 5) or 0)
    codec = pb.number(postscript, 2) or _NO_COMPRESSION
    block_bytes = pb.number(postscript, 3) or 256 * 1024
    footer = pb.parse(_expanded(data[footer_start:footer_end], codec, block_bytes))
    of_stripes = pb.parts(pb.parse(_expanded(data[statistics_start:footer_start], codec, block_bytes)), 1)
    stripes = [pb.parse(part) for part in pb.parts(footer, 3)]
    types = [pb.parse(part) for part in pb.parts(footer, 4)]
    return OrcFooter(
        [
            Stripe(
                offset=pb.number(stripe, 1) or 0,
                length=sum(pb.number(stripe, field) or 0 for field in (2, 3, 4)),
                row_count=pb.number(stripe, 5) or 0,
                statistics=_column_statistics(of_stripes[at]) if at < len(of_stripes) else (),
            )
            for at, stripe in enumerate(stripes)
        ],
        [
            OrcType(pb.number(one, 1) or 0, pb.numbers(one, 2), [name.decode() for name in pb.parts(one, 3)])
            for one in types
        ],
    )


def _column_statistics(stripe: bytes) -> list[pb.Message]:
    return [pb.parse(part) for part in pb.parts(pb.parse(stripe), 1)]


def _expanded(data: bytes, codec: int, block_bytes: int) -> bytes:
    """A stream without its compression: pieces with a head of three bytes, some stored as they are."""
    if codec == _NO_COMPRESSION:
        return data
    pieces, position = [], 0
    while position < len(data):
        head = int.from_bytes(data[position : position + _CHUNK_HEAD_BYTES], "little")
        start = position + _CHUNK_HEAD_BYTES
        position = start + (head >> 1)
        piece = data[start:position]
        pieces.append(piece if head & 1 else _piece(piece, codec, block_bytes))
    return b"".join(pieces)


def _piece(piece: bytes, codec: int, block_bytes: int) -> bytes:
    if codec == _ZLIB:
        return zlib.decompress(piece, -15)
    match codec:
        case 2:
            size, _ = read_unsigned(piece, 0)
            return bytes(pa.Codec("snappy").decompress(piece, size))
        case 4:
            expanded = bytearray(block_bytes)
            return bytes(expanded[: cramjam.lz4.decompress_block_into(piece, expanded)])
        case 5:
            return bytes(pa.CompressedInputStream(pa.BufferReader(piece), "zstd").read())
    raise UnsupportedFeatureError(
        f"an ORC file is compressed by codec {codec} (3 is LZO), which is not read; rewrite it with Apache Paimon and "
        "file.compression=zstd"
    )
