"""Sets of integers as roaring bitmaps, in the two formats that columns hold.

A bitmap is cut into containers of 2^16 numbers each, stored as 16-bit numbers, as 65,536 bits, or as runs. pyroaring
reads and writes the *portable* format, which is what 32-bit bitmaps are stored in. 64-bit bitmaps are stored in the
format of Java's Roaring64Bitmap (little endian):

    u8   0: the set is empty, nothing follows; 1: it is not
    i64  number of leaves
    tree, each node before its children, which are in the order of their bytes:
        u8 kind, i16 number of children, u8 length of the prefix, the prefix, then by kind
        0  up to 4 children      4 bytes: the children's bytes, the first one last
        1  up to 16              2 x 8 bytes, likewise
        2  up to 48              32 x 8 bytes: the child's number for each byte, 0xFF for none, each eight reversed
        3  up to 256             256 bits
        4  leaf, no children     6 bytes: the high 48 bits, big endian; i64 number of its container
    i32  1, the number of arrays of containers
        u8 0xFE, i32 length of the array, and for each container
            u8 0: there is none; 1, then u8 kind (0 runs, 1 bits, 2 numbers), i32 cardinality, content: u16 number of
            runs and their first number and length less 1 each, or 65,536 bits, or numbers; all u16
    i64  number of containers, i32 last array, i32 last index in it

Containers that only one of two sets has are moved as bytes; numbers are looked at where both have one.

Source: the RoaringBitmap format specification; org.roaringbitmap 1.2.1 (Art, Node4 to Node256, Containers).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, BitMap64

from freshet.storage.exceptions import InvalidRequestError

UInt64s = npt.NDArray[np.uint64]
Bitmap32 = BitMap
"""A set of unsigned 32-bit numbers."""

ONE_HIGH_WORD: Final = struct.pack("<qi", 1, 0)
"""How portable 64-bit bitmaps begin all of whose numbers have 32 bits."""

_RUNS: Final = 0
_BITS: Final = 1
_NUMBERS: Final = 2
_NUMBERS_MAX: Final = 4096
"""Containers with more numbers than this are bits, unless they are runs."""
_CONTAINER_SIZE: Final = 1 << 16

_LEAF: Final = 4
_NODE_BODY_BYTES: Final = (4, 16, 256, 32)
_NODE_CAPACITY: Final = (4, 16, 48, 256)
_NODE_HEAD: Final = struct.Struct("<BhB")
_LEAF_HEAD: Final = _NODE_HEAD.pack(_LEAF, 0, 0)
_CONTAINER_HEAD: Final = struct.Struct("<Bi")
_INDEX: Final = struct.Struct("<q")


class Container(NamedTuple):
    """Numbers with the same high 48 bits. `is_new` asks for a look whether runs are smaller."""

    kind: int
    cardinality: int
    content: bytes
    is_new: bool = False


class Bitmap64:
    """A set of unsigned 64-bit numbers: containers by their high 48 bits."""

    __slots__ = ("_containers",)

    def __init__(self, containers: dict[int, Container]) -> None:
        self._containers = containers

    @classmethod
    def of(cls, numbers: UInt64s) -> Bitmap64:
        """The set of these numbers."""
        ordered = np.unique(numbers)
        starts = np.flatnonzero(np.diff(ordered >> np.uint64(16), prepend=np.uint64((1 << 64) - 1)))
        pieces = np.split(ordered, starts[1:]) if len(ordered) else []
        return cls({int(piece[0]) >> 16: _container(piece.astype(np.uint16)) for piece in pieces})

    @classmethod
    def read(cls, data: bytes) -> Bitmap64:
        """The set in a 64-bit bitmap. Raises `InvalidRequestError` for bytes that are none."""
        try:
            return cls(_read_tree(data))
        except (ValueError, struct.error, LookupError) as error:
            raise InvalidRequestError(
                f"the value ({len(data)} bytes) is not a 64-bit roaring bitmap: {error}"
            ) from error

    def write(self) -> bytes:
        """The bytes of the bitmap; runs are used where they are smaller."""
        return _write_tree([(high, _smallest(self._containers[high])) for high in sorted(self._containers)])

    def __ior__(self, other: Bitmap64) -> Bitmap64:
        """Puts the numbers of another set into this one."""
        for high, container in other._containers.items():
            mine = self._containers.get(high)
            self._containers[high] = container if mine is None else _united(mine, container)
        return self

    def numbers(self) -> UInt64s:
        """The numbers in ascending order."""
        pieces = [np.uint64(high << 16) | _low_numbers(self._containers[high]) for high in sorted(self._containers)]
        return np.concatenate([np.zeros(0, np.uint64), *pieces])


def read_bitmap32(data: bytes) -> BitMap:
    """The set in a 32-bit bitmap. Raises `InvalidRequestError` for bytes that are none."""
    try:
        return BitMap.deserialize(data)
    except (ValueError, IndexError) as error:
        raise InvalidRequestError(f"the value ({len(data)} bytes) is not a 32-bit roaring bitmap: {error}") from error


def read_portable64(data: bytes) -> BitMap:
    """The set in a 64-bit bitmap of the *portable* format: i64 count, then for each high word, i32 high word and a
    portable 32-bit bitmap. Raises `InvalidRequestError` for bytes that are none, and for numbers of more than 32 bits.
    """
    if data.startswith(ONE_HIGH_WORD):
        return read_bitmap32(data[len(ONE_HIGH_WORD) :])
    try:
        wide = BitMap64.deserialize(data)
    except (ValueError, IndexError) as error:
        raise InvalidRequestError(f"the value ({len(data)} bytes) is not a 64-bit bitmap: {error}") from error
    if wide and wide.max() >= 1 << 32:
        raise InvalidRequestError(f"it holds {wide.max()}, which has more than 32 bits")
    return BitMap(np.array(wide.to_array(), np.uint64).astype(np.uint32))


def write_portable64(bitmap: BitMap) -> bytes:
    """The same set as a 64-bit bitmap of the portable format."""
    return ONE_HIGH_WORD + write_bitmap32(bitmap) if bitmap else bytes(8)


def write_bitmap32(bitmap: BitMap) -> bytes:
    """The bytes of a 32-bit bitmap; runs are used where they are smaller."""
    bitmap.run_optimize()
    data: bytes = bitmap.serialize()
    return data


def _container(numbers: npt.NDArray[np.uint16]) -> Container:
    """A container of ascending numbers."""
    if len(numbers) <= _NUMBERS_MAX:
        return Container(_NUMBERS, len(numbers), numbers.astype("<u2").tobytes(), is_new=True)
    bits = np.zeros(_CONTAINER_SIZE, np.uint8)
    bits[numbers] = 1
    return Container(_BITS, len(numbers), np.packbits(bits, bitorder="little").tobytes(), is_new=True)


def _united(first: Container, second: Container) -> Container:
    if first.kind == _BITS or second.kind == _BITS:
        bits = _bits(first) | _bits(second)
        return Container(_BITS, int(np.bitwise_count(bits).sum()), bits.tobytes(), is_new=True)
    return _container(np.union1d(_low_numbers(first), _low_numbers(second)).astype(np.uint16))


def _bits(container: Container) -> npt.NDArray[np.uint8]:
    if container.kind == _BITS:
        return np.frombuffer(container.content, np.uint8)
    bits = np.zeros(_CONTAINER_SIZE, np.uint8)
    bits[_low_numbers(container)] = 1
    return np.packbits(bits, bitorder="little")


def _low_numbers(container: Container) -> UInt64s:
    if container.kind == _BITS:
        bits = np.frombuffer(container.content, np.uint8)
        return np.flatnonzero(np.unpackbits(bits, bitorder="little")).astype(np.uint64)
    numbers = np.frombuffer(container.content, "<u2")
    if container.kind == _NUMBERS:
        return numbers.astype(np.uint64)
    firsts, lengths = numbers[1::2].astype(np.int64), numbers[2::2].astype(np.int64) + 1
    ends = np.cumsum(lengths)
    return (np.repeat(firsts - ends + lengths, lengths) + np.arange(ends[-1])).astype(np.uint64)


def _smallest(container: Container) -> Container:
    if not container.is_new:
        return container
    numbers = _low_numbers(container).astype(np.uint16)
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    run_count = len(breaks) + 1
    if 2 + 4 * run_count >= len(container.content):
        return container
    firsts, lasts = numbers[np.append(0, breaks + 1)], numbers[np.append(breaks, len(numbers) - 1)]
    runs = np.column_stack([firsts, lasts - firsts]).astype("<u2")
    return Container(_RUNS, container.cardinality, struct.pack("<H", run_count) + runs.tobytes())


def _read_tree(data: bytes) -> dict[int, Container]:
    if data == b"\0":
        return {}
    if data[0] != 1:
        raise ValueError(f"it begins with {data[0]}")
    position, expected = 9, 1
    leaves: list[tuple[int, int]] = []
    while expected:
        kind, children, prefix = _NODE_HEAD.unpack_from(data, position)
        position += 4 + prefix
        if kind == _LEAF:
            (index,) = _INDEX.unpack_from(data, position + 6)
            leaves.append((int.from_bytes(data[position : position + 6]), index))
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
    return {high: containers[index] for high, index in leaves}


def _read_containers(data: bytes, position: int) -> tuple[dict[int, Container], int]:
    """Containers by number (array and index in it), and where what follows them ends."""
    containers = {}
    (arrays,) = struct.unpack_from("<i", data, position)
    position += 4
    for array in range(arrays):
        (count,) = struct.unpack_from("<i", data, position + 1)
        position += 5
        for index in range(count):
            position += 1
            if data[position - 1]:
                kind, cardinality = _CONTAINER_HEAD.unpack_from(data, position)
                position += 5
                size = _content_bytes(kind, cardinality, data, position)
                content = data[position : position + size]
                containers[array << 32 | index] = Container(kind, cardinality, content)
                position += size
    return containers, position + 16


def _content_bytes(kind: int, cardinality: int, data: bytes, position: int) -> int:
    if not 0 < cardinality <= _CONTAINER_SIZE or kind > _NUMBERS:
        raise ValueError(f"a container of kind {kind} has {cardinality} numbers")
    if kind == _RUNS:
        (run_count,) = struct.unpack_from("<H", data, position)
        return 2 + 4 * int(run_count)
    return _CONTAINER_SIZE // 8 if kind == _BITS else 2 * cardinality


def _write_tree(entries: Sequence[tuple[int, Container]]) -> bytes:
    if not entries:
        return b"\0"
    keys = [high.to_bytes(6) for high, _ in entries]
    pieces = [b"\1", struct.pack("<q", len(entries)), *_node(keys, 0, len(keys), 0)]
    pieces.append(struct.pack("<iBi", 1, 0xFE, len(entries)))
    for _, container in entries:
        pieces += [b"\1", _CONTAINER_HEAD.pack(container.kind, container.cardinality), container.content]
    pieces.append(struct.pack("<qii", len(entries), 0, len(entries) - 1))
    return b"".join(pieces)


def _node(keys: Sequence[bytes], first: int, end: int, depth: int) -> Iterator[bytes]:
    """The node of the keys `first` to `end`, which agree in their first `depth` bytes, and its children."""
    if end - first == 1:
        yield _LEAF_HEAD + keys[first] + _INDEX.pack(first)
        return
    split = depth
    while keys[first][split] == keys[end - 1][split]:
        split += 1
    children = [(byte, [*members]) for byte, members in groupby(range(first, end), key=lambda at: keys[at][split])]
    kind = next(kind for kind, capacity in enumerate(_NODE_CAPACITY) if len(children) <= capacity)
    yield _NODE_HEAD.pack(kind, len(children), split - depth) + keys[first][depth:split]
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
