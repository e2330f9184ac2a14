"""Bloom filters of file indexes: a set of hashes, of which "it is not there" is certain.

    int32 BE    number of hash functions k
    bits        bit p is in byte p >> 3, mask 1 << (p & 7)

A value with the 64-bit hash (h2, h1) of two signed 32-bit halves sets, for i = 1 … k, the bit c mod size with
c = h1 + i * h2 in 32 bits, inverted where it is negative.

Source: FORMAT.md §11.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.exceptions import CorruptDataError
from freshet.storage.model.data_type import DataType, ScalarType, TypeRoot

ITEMS: Final = 1_000_000
FPP: Final = 0.1
_HEAD: Final = struct.Struct(">i")

UInt64s = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]

TEXTS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY})
_TIMESTAMPS: Final = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
NUMBERS: Final = frozenset(
    {TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.DATE, TypeRoot.TIME}
)
FLOATS: Final = frozenset({TypeRoot.FLOAT, TypeRoot.DOUBLE})

_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_P3: Final = np.uint64(0x165667B19E3779F9)
_P4: Final = np.uint64(0x85EBCA77C2B2AE63)
_P5: Final = np.uint64(0x27D4EB2F165667C5)


class BloomFilter(Frozen):
    """A filter that is read; `bits` has a byte for each eight."""

    hash_count: int
    bits: npt.NDArray[np.uint8]

    @classmethod
    def decode(cls, data: bytes | memoryview) -> BloomFilter:
        """The filter in these bytes; raises `CorruptDataError`."""
        if len(data) <= _HEAD.size or (hash_count := _HEAD.unpack_from(data)[0]) < 1:
            raise CorruptDataError("it is no bloom filter")
        return cls(hash_count, np.frombuffer(data, np.uint8, offset=_HEAD.size))

    def may_have(self, hashes: UInt64s) -> npt.NDArray[np.bool_]:
        """False for hashes that were not added."""
        found = np.ones(len(hashes), np.bool_)
        for positions in _positions(hashes, self.hash_count, 8 * len(self.bits)):
            found &= (self.bits[positions >> 3] >> (positions & 7).astype(np.uint8)) & 1 == 1
        return found


class BloomFilterBuilder:
    """A filter that hashes are added to."""

    def __init__(self, items: int = ITEMS, fpp: float = FPP) -> None:
        """For so many distinct values, of which this share of others is not told apart."""
        size = int(-items * math.log(fpp) / (math.log(2) ** 2))
        self._bit_count = size + 8 - size % 8
        self._hash_count = max(1, math.floor(self._bit_count / items * math.log(2) + 0.5))
        # A byte for each bit: setting them needs no reading of what is there.
        self._bits = np.zeros(self._bit_count, np.bool_)

    def add(self, hashes: UInt64s) -> None:
        """Adds values."""
        for positions in _positions(hashes, self._hash_count, self._bit_count):
            self._bits[positions] = True

    def encode(self) -> bytes:
        """The bytes of the filter."""
        return _HEAD.pack(self._hash_count) + np.packbits(self._bits, bitorder="little").tobytes()


def _positions(hashes: UInt64s, hash_count: int, bit_count: int) -> list[npt.NDArray[np.int64]]:
    low = hashes.astype(np.uint32).view(np.int32)
    high = (hashes >> np.uint64(32)).astype(np.uint32).view(np.int32)
    positions = []
    with np.errstate(over="ignore"):
        combined = low.copy()
        for _ in range(hash_count):
            combined = combined + high
            positions.append(np.where(combined < 0, ~combined, combined).astype(np.int64) % bit_count)
    return positions


def can_be_hashed(data_type: DataType) -> bool:
    """Whether the format has a hash for values of the type."""
    return isinstance(data_type, ScalarType) and data_type.root in (TEXTS | _TIMESTAMPS | NUMBERS | FLOATS)


def value_hashes(values: pa.Array[Any], data_type: DataType) -> UInt64s:
    """64-bit hashes of values without NULL, in the Arrow type of the data type, as bloom filters of file indexes have
    them.

    | type | hash |
    |---|---|
    | text, bytes | XXH64, seed 0, of the bytes |
    | integers, DATE, TIME, FLOAT and DOUBLE, TIMESTAMP | Thomas Wang's mix of the number in 64 bits |

    Of FLOAT and DOUBLE the bits count, of TIMESTAMP milliseconds up to precision 3, else microseconds. Text of equal
    length is hashed together, 8 bytes of all of them at a time: 1 M texts of 20 bytes take 0.2 s, of mixed lengths 1 s.

    Source: FORMAT.md §11; the XXH64 specification.
    """
    assert isinstance(data_type, ScalarType)
    if data_type.root in TEXTS:
        return _text_hashes(values)
    return mixed(numbers_of(values, data_type))


def numbers_of(values: pa.Array[Any], data_type: ScalarType) -> Int64s:
    """Values of a type that is no text, as the numbers that stand for them in file indexes."""
    if data_type.root in FLOATS:
        floats = values.to_numpy(zero_copy_only=False)
        floats = np.where(np.isnan(floats), floats.dtype.type(np.nan), floats)  # the sign of NaN is not hashed
        width = floats.dtype.itemsize
        return np.ascontiguousarray(floats).view(f"i{width}").astype(np.int64)
    storage: Any = values
    if pa.types.is_timestamp(values.type):
        numbers: Int64s = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return _in_index_unit(numbers, values.type.unit, data_type)
    if pa.types.is_date32(values.type) or pa.types.is_time32(values.type):
        storage = values.cast(pa.int32())
    elif pa.types.is_time64(values.type):
        storage = values.cast(pa.int64())
    plain: Int64s = storage.to_numpy(zero_copy_only=False).astype(np.int64)
    return plain


def _in_index_unit(numbers: Int64s, unit: str, data_type: ScalarType) -> Int64s:
    """Instants of this unit in milliseconds up to precision 3, else in microseconds."""
    per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    wanted = 1_000 if (data_type.precision or 0) <= 3 else 1_000_000
    if per_second <= wanted:
        return numbers * np.int64(wanted // per_second)
    return np.floor_divide(numbers, np.int64(per_second // wanted))


def mixed(numbers: Int64s) -> UInt64s:
    """Thomas Wang's mix of 64-bit integers; its right shifts keep the sign."""
    with np.errstate(over="ignore"):
        key = numbers.astype(np.int64)
        key = ~key + (key << 21)
        key = key ^ (key >> 24)
        key = key + (key << 3) + (key << 8)
        key = key ^ (key >> 14)
        key = key + (key << 2) + (key << 4)
        key = key ^ (key >> 28)
        key = key + (key << 31)
    unsigned: UInt64s = key.view(np.uint64)
    return unsigned


def _text_hashes(values: pa.Array[Any]) -> UInt64s:
    binary = (
        values.cast(pa.large_binary())
        if not pa.types.is_fixed_size_binary(values.type)
        else values.cast(pa.binary()).cast(pa.large_binary())
    )
    count = len(binary)
    offsets = np.frombuffer(binary.buffers()[1], np.int64)[binary.offset : binary.offset + count + 1]
    data = np.frombuffer(binary.buffers()[2] or b"", np.uint8)
    hashes = np.empty(count, np.uint64)
    if not count:
        return hashes
    lengths = np.diff(offsets)
    order = np.argsort(lengths, kind="stable")
    distinct, starts = np.unique(lengths[order], return_index=True)
    for length, members in zip(distinct.tolist(), np.split(order, starts[1:]), strict=True):
        if len(distinct) == 1:
            rows = data[offsets[0] : offsets[-1]].reshape(count, length)
        else:
            rows = data[offsets[members][:, None] + np.arange(length)]
        hashes[members] = xxh64(rows)
    return hashes


def xxh64(rows: npt.NDArray[np.uint8]) -> UInt64s:
    """XXH64 with seed 0 of byte strings of one length, a row each."""
    count, length = rows.shape
    with np.errstate(over="ignore"):
        position = 0
        if length >= 32:
            lanes = [_P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1]
            states = [np.full(count, lane, np.uint64) for lane in lanes]
            while position + 32 <= length:
                for index in range(4):
                    states[index] = _round(states[index], _words(rows, position + 8 * index, 8))
                position += 32
            total = _rotated(states[0], 1) + _rotated(states[1], 7) + _rotated(states[2], 12) + _rotated(states[3], 18)
            for state in states:
                total = (total ^ _round(np.zeros(count, np.uint64), state)) * _P1 + _P4
        else:
            total = np.full(count, _P5, np.uint64)
        total = total + np.uint64(length)
        while position + 8 <= length:
            mixed_in = _round(np.zeros(count, np.uint64), _words(rows, position, 8))
            total = _rotated(total ^ mixed_in, 27) * _P1 + _P4
            position += 8
        if position + 4 <= length:
            total = _rotated(total ^ (_words(rows, position, 4) * _P1), 23) * _P2 + _P3
            position += 4
        while position < length:
            total = _rotated(total ^ (rows[:, position].astype(np.uint64) * _P5), 11) * _P1
            position += 1
        total = (total ^ (total >> np.uint64(33))) * _P2
        total = (total ^ (total >> np.uint64(29))) * _P3
        return total ^ (total >> np.uint64(32))


def _round(state: UInt64s, words: UInt64s) -> UInt64s:
    return _rotated(state + words * _P2, 31) * _P1


def _rotated(values: UInt64s, bits: int) -> UInt64s:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _words(rows: npt.NDArray[np.uint8], start: int, width: int) -> UInt64s:
    """The little-endian words at a position of each row."""
    words: UInt64s = np.ascontiguousarray(rows[:, start : start + width]).view(f"<u{width}")[:, 0].astype(np.uint64)
    return words
