"""Sets of integers as roaring bitmaps, in the two formats that columns hold.

A bitmap is cut into containers of 2^16 numbers each, that lie as 16-bit numbers, as 65,536 bits, or as runs. pyroaring
reads and writes the *portable* format, which is what 32-bit bitmaps are stored in. 64-bit bitmaps are stored in the
format of Java's Roaring64Bitmap (little endian):

    u8   0: the set is empty, nothing follows; 1: it is not
    i64  number of leaves
    tree, each node before its children, which stand in the order of their bytes:
        u8 kind, i16 number of children, u8 length of the prefix, the prefix, then by kind
        0  up to 4 children      4 bytes: the children's bytes, the first one last
        1  up to 16              2 x 8 bytes, likewise
        2  up to 48              32 x 8 bytes: the child's number for each byte, 0xFF for none, each eight reversed
        3  up to 256             256 bits
        4  leaf, no children     6 bytes: the high 48 bits, big endian; i64 number of its container
    i32  1, the number of arrays of containers
        u8 0xFE, i32 length of the array, and for each container
            u8 0: there is none; 1, then u8 kind (0 runs, 1 bits, 2 numbers), i32 cardinality, content as in the
            portable format
    i64  number of containers, i32 last array, i32 last index in it

The containers have the same content in both formats, so that reading and writing move bytes and look at no number.

Source: the RoaringBitmap format specification; org.roaringbitmap 1.2.1 (Art, Node4 to Node256, Containers).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

import numpy as np
from pyroaring import BitMap, BitMap64

from storage.exceptions import InvalidRequestError

_RUNS: Final = 0
_BITS: Final = 1
_NUMBERS: Final = 2
_NUMBERS_MAX: Final = 4096
"""Containers with more numbers than this are bits in the portable format, the others numbers, unless they are runs."""
_BITS_SIZE_BYTES: Final = 8192

_LEAF: Final = 4
_NODE_BODY_BYTES: Final = (4, 16, 256, 32)
_NODE_CAPACITY: Final = (4, 16, 48, 256)

_COOKIE: Final = 12346
_COOKIE_WITH_RUNS: Final = 12347
_OFFSETS_FROM: Final = 4
"""Portable bitmaps with runs hold offsets of their containers from this many containers on; those without, always."""


@dataclass(frozen=True, slots=True)
class _Container:
    kind: int
    cardinality: int
    content: bytes


def read_bitmap32(data: bytes) -> BitMap:
    """The set in a 32-bit bitmap. Raises `InvalidRequestError` for bytes that are none."""
    try:
        _check_portable32(data)
        return BitMap.deserialize(data)
    except (ValueError, struct.error, LookupError) as error:
        raise InvalidRequestError(f"the value ({len(data)} bytes) is no 32-bit roaring bitmap: {error}") from error


def unite_bitmaps32(first: BitMap, second: BitMap) -> BitMap:
    """`first` with the numbers of `second` put into it."""
    first |= second
    return first


def write_bitmap32(bitmap: BitMap) -> bytes:
    """The bytes of a 32-bit bitmap; runs are used where they are smaller."""
    bitmap.run_optimize()
    data: bytes = bitmap.serialize()
    return data


def read_bitmap64(data: bytes) -> BitMap64:
    """The set in a 64-bit bitmap. Raises `InvalidRequestError` for bytes that are none."""
    try:
        return BitMap64.deserialize(_portable64(_read_tree(data)))
    except (ValueError, struct.error, LookupError) as error:
        raise InvalidRequestError(f"the value ({len(data)} bytes) is no 64-bit roaring bitmap: {error}") from error


def unite_bitmaps64(first: BitMap64, second: BitMap64) -> BitMap64:
    """`first` with the numbers of `second` put into it."""
    first |= second
    return first


def write_bitmap64(bitmap: BitMap64) -> bytes:
    """The bytes of a 64-bit bitmap; runs are used where they are smaller."""
    bitmap.run_optimize()
    return _write_tree(list(_read_portable64(bitmap.serialize())))


def _read_tree(data: bytes) -> list[tuple[int, _Container]]:
    """(high 48 bits, container), in ascending order."""
    if data == b"\0":
        return []
    if data[0] != 1:
        raise ValueError(f"it begins with {data[0]}")
    position, expected, leaves = 9, 1, []
    while expected:
        kind, children, prefix = struct.unpack_from("<BhB", data, position)
        position += 4 + prefix
        if kind == _LEAF:
            leaves.append(
                (int.from_bytes(data[position : position + 6]), *struct.unpack_from("<q", data, position + 6))
            )
            position += 14
            expected -= 1
        else:
            position += _NODE_BODY_BYTES[kind]
            if not 0 < children <= _NODE_CAPACITY[kind]:
                raise ValueError(f"a node of kind {kind} has {children} children")
            expected += children - 1
    containers, end = _read_containers(data, position)
    if end != len(data):
        raise ValueError(f"it should end at byte {end}")
    if any(later[0] <= earlier[0] for earlier, later in pairwise(leaves)):
        raise ValueError("its leaves are out of order")
    return [(high, containers[index]) for high, index in leaves]


def _read_containers(data: bytes, position: int) -> tuple[dict[int, _Container], int]:
    """Containers by number (array and index in it), and where they end."""
    containers = {}
    (arrays,) = struct.unpack_from("<i", data, position)
    position += 4
    for array in range(arrays):
        (count,) = struct.unpack_from("<i", data, position + 1)
        position += 5
        for index in range(count):
            position += 1
            if data[position - 1]:
                kind, cardinality = struct.unpack_from("<Bi", data, position)
                size = _content_bytes(kind, cardinality, data, position + 5)
                content = data[position + 5 : position + 5 + size]
                position += 5 + size
                if position > len(data):
                    raise ValueError("it is cut off")
                containers[array << 32 | index] = _normal(kind, cardinality, content)
    return containers, position + 16


def _content_bytes(kind: int, cardinality: int, data: bytes, position: int) -> int:
    if not 0 < cardinality <= 1 << 16:
        raise ValueError(f"a container has {cardinality} numbers")
    if kind == _RUNS:
        return 2 + 4 * int(struct.unpack_from("<H", data, position)[0])
    return _BITS_SIZE_BYTES if kind == _BITS else 2 * cardinality


def _normal(kind: int, cardinality: int, content: bytes) -> _Container:
    """A container of the kind that the portable format expects for its cardinality."""
    if kind == _BITS and cardinality <= _NUMBERS_MAX:
        bits = np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little")
        return _Container(_NUMBERS, cardinality, np.flatnonzero(bits).astype("<u2").tobytes())
    if kind == _NUMBERS and cardinality > _NUMBERS_MAX:
        bits = np.zeros(1 << 16, np.uint8)
        bits[np.frombuffer(content, "<u2")] = 1
        return _Container(_BITS, cardinality, np.packbits(bits, bitorder="little").tobytes())
    if kind not in (_RUNS, _BITS, _NUMBERS):
        raise ValueError(f"a container is of kind {kind}")
    return _Container(kind, cardinality, content)


def _write_tree(entries: Sequence[tuple[int, _Container]]) -> bytes:
    if not entries:
        return b"\0"
    keys = [high.to_bytes(6) for high, _ in entries]
    pieces = [b"\1", struct.pack("<q", len(entries)), *_node(keys, 0, len(keys), 0)]
    pieces.append(struct.pack("<iBi", 1, 0xFE, len(entries)))
    for _, container in entries:
        pieces += [struct.pack("<BBi", 1, container.kind, container.cardinality), container.content]
    pieces.append(struct.pack("<qii", len(entries), 0, len(entries) - 1))
    return b"".join(pieces)


def _node(keys: Sequence[bytes], first: int, end: int, depth: int) -> Iterator[bytes]:
    """The node of the keys `first` to `end`, which agree in their first `depth` bytes, and its children."""
    if end - first == 1:
        yield struct.pack("<BhB", _LEAF, 0, 0) + keys[first] + struct.pack("<q", first)
        return
    split = depth
    while keys[first][split] == keys[end - 1][split]:
        split += 1
    children = [(byte, [*members]) for byte, members in groupby(range(first, end), key=lambda at: keys[at][split])]
    kind = next(kind for kind, capacity in enumerate(_NODE_CAPACITY) if len(children) <= capacity)
    yield struct.pack("<BhB", kind, len(children), split - depth) + keys[first][depth:split]
    yield _node_body(kind, [byte for byte, _ in children])
    for _, members in children:
        yield from _node(keys, members[0], members[-1] + 1, split + 1)


def _node_body(kind: int, children: Sequence[int]) -> bytes:
    if kind == 3:
        bits = np.zeros(256, np.uint8)
        bits[list(children)] = 1
        return np.packbits(bits, bitorder="little").tobytes()
    if kind == 2:
        numbers = np.full(256, 0xFF, np.uint8)
        numbers[list(children)] = np.arange(len(children))
        return numbers.reshape(-1, 8)[:, ::-1].tobytes()
    padded = bytes(children).ljust(_NODE_BODY_BYTES[kind], b"\0")
    word = min(8, len(padded))
    return b"".join(padded[at : at + word][::-1] for at in range(0, len(padded), word))


def _portable64(entries: Sequence[tuple[int, _Container]]) -> bytes:
    """u64 number of 32-bit bitmaps, then for each its high 32 bits and itself."""
    buckets = [(high, list(members)) for high, members in groupby(entries, key=lambda entry: entry[0] >> 16)]
    pieces = [struct.pack("<Q", len(buckets))]
    for high, members in buckets:
        containers = [(key & 0xFFFF, container) for key, container in members]
        pieces += [struct.pack("<I", high), _portable32(containers)]
    return b"".join(pieces)


def _portable32(containers: Sequence[tuple[int, _Container]]) -> bytes:
    count = len(containers)
    runs = [container.kind == _RUNS for _, container in containers]
    if any(runs):
        head = struct.pack("<I", _COOKIE_WITH_RUNS | (count - 1) << 16)
        head += np.packbits(np.array(runs), bitorder="little").tobytes()
    else:
        head = struct.pack("<II", _COOKIE, count)
    head += b"".join(struct.pack("<HH", low, container.cardinality - 1) for low, container in containers)
    contents = [container.content for _, container in containers]
    if not any(runs) or count >= _OFFSETS_FROM:
        sizes = np.array([len(content) for content in contents])
        head += (len(head) + 4 * count + np.cumsum(sizes) - sizes).astype("<u4").tobytes()
    return head + b"".join(contents)


def _read_portable64(data: bytes) -> Iterator[tuple[int, _Container]]:
    (buckets,) = struct.unpack_from("<Q", data)
    position = 8
    for _ in range(buckets):
        (high,) = struct.unpack_from("<I", data, position)
        containers, position = _read_portable32(data, position + 4)
        yield from ((high << 16 | low, container) for low, container in containers)


def _read_portable32(data: bytes, position: int) -> tuple[list[tuple[int, _Container]], int]:
    """(high 16 bits, container) of each container, and where the bitmap ends."""
    (cookie,) = struct.unpack_from("<I", data, position)
    if cookie & 0xFFFF == _COOKIE_WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = np.frombuffer(data, np.uint8, (count + 7) // 8, position + 4)
        runs = np.unpackbits(flags, bitorder="little")[:count].tolist()
        position += 4 + len(flags)
    elif cookie == _COOKIE:
        (count,) = struct.unpack_from("<I", data, position + 4)
        if count > 1 << 16:
            raise ValueError(f"it has {count} containers")
        runs = [0] * count
        position += 8
    else:
        raise ValueError(f"its cookie is {cookie}")
    heads = np.frombuffer(data, "<u2", 2 * count, position).reshape(-1, 2).tolist()
    position += 4 * count
    if cookie == _COOKIE or count >= _OFFSETS_FROM:
        position += 4 * count
    containers = []
    for (low, cardinality), run in zip(heads, runs, strict=True):
        kind = _RUNS if run else _NUMBERS if cardinality < _NUMBERS_MAX else _BITS
        size = _content_bytes(kind, cardinality + 1, data, position)
        containers.append((low, _Container(kind, cardinality + 1, data[position : position + size])))
        position += size
    if position > len(data):
        raise ValueError("it is cut off")
    return containers, position


def _check_portable32(data: bytes) -> None:
    """The library reads beyond the end of what is cut off, and trusts the order of containers."""
    containers, _ = _read_portable32(data, 0)
    if any(later[0] <= earlier[0] for earlier, later in pairwise(containers)):
        raise ValueError("its containers are out of order")
