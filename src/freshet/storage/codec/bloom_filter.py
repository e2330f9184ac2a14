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
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from freshet.storage.codec.index_hashes import UInt64s
from freshet.storage.exceptions import CorruptDataError

ITEMS: Final = 1_000_000
FPP: Final = 0.1
_HEAD: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class BloomFilter:
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
