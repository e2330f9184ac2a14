"""Spark's `hash` of some columns, in Arrow: Murmur3 with 32 bits, from column to column with the hash so far as seed.

The task in whose files rows wait for their bucket (`bucket=-2`) is a part of the names of these files, and Apache
Paimon keeps the order of one task alone. So it is the same number whoever computes it, in earlier versions too.

| column | hashed |
|---|---|
| BOOLEAN, whole numbers up to 32 bits, DATE, FLOAT | 4 bytes |
| 64 bits: BIGINT, times, DOUBLE, DECIMAL of up to 18 digits (unscaled) | 8 bytes |
| text, binary, larger DECIMAL (two's complement, big-endian) | words of 4 bytes, then each byte left, with its sign |
| NULL | nothing: the hash so far stays |
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

Int64Array = npt.NDArray[np.int64]

_SEED: Final = 42
_MASK: Final = 0xFFFFFFFF
_SLOT_DIGITS: Final = 18


def spark_hashes(columns: Sequence[Any]) -> Int64Array:
    """The hash of each row over its columns, which have the types of carriers; few of their values are distinct."""
    count = len(columns[0])
    hashes = np.full(count, _SEED, np.int64)
    for column in columns:
        encoded = column.dictionary_encode()
        hashed = _hashing(column.type)
        values = [*map(hashed, encoded.dictionary.to_pylist()), None]
        codes = encoded.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False).astype(np.int64)
        pairs, places = np.unique(np.stack((hashes, codes)), axis=1, return_inverse=True)
        mixed = [_mixed(values[code], seed) for seed, code in pairs.T.tolist()]
        hashes = np.array(mixed, np.int64)[places.reshape(-1)]
    return np.where(hashes > _MASK >> 1, hashes - _MASK - 1, hashes)


def _hashing(kind: pa.DataType) -> Callable[[Any], bytes]:
    """The bytes of a value that are hashed."""
    if pt.is_boolean(kind) or pt.is_integer(kind):
        width = 8 if kind == pa.int64() else 4
        return lambda value: int(value).to_bytes(width, "little", signed=True)
    if pt.is_date32(kind):
        return lambda value: pa.scalar(value, kind).value.to_bytes(4, "little", signed=True)
    if pt.is_timestamp(kind):
        return lambda value: pa.scalar(value, kind).value.to_bytes(8, "little", signed=True)
    if pt.is_floating(kind):
        # Adding 0.0 makes 0.0 of -0.0; there is one NaN.
        form = "<f" if kind == pa.float32() else "<d"
        return lambda value: struct.pack(form, float("nan") if value != value else value + 0.0)
    if pt.is_decimal(kind):
        return lambda value: _decimal_bytes(value, kind)
    return lambda value: value.encode() if isinstance(value, str) else bytes(value)


def _decimal_bytes(value: Decimal, kind: Any) -> bytes:
    unscaled = int(f"{value:f}".replace(".", ""))
    if kind.precision <= _SLOT_DIGITS:
        return unscaled.to_bytes(8, "little", signed=True)
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return unscaled.to_bytes(size, "big", signed=True)


def _mixed(octets: bytes | None, seed: int) -> int:
    """The hash that follows another one."""
    if octets is None:
        return seed
    whole = len(octets) & -4
    words = [
        *struct.unpack(f"<{whole // 4}I", octets[:whole]),
        *struct.unpack(f"{len(octets) - whole}b", octets[whole:]),
    ]
    for word in words:
        part = _rotated(word * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
        seed = (_rotated(seed ^ part, 13) * 5 + 0xE6546B64) & _MASK
    seed ^= len(octets)
    seed = (seed ^ seed >> 16) * 0x85EBCA6B & _MASK
    seed = (seed ^ seed >> 13) * 0xC2B2AE35 & _MASK
    return seed ^ seed >> 16


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 32 - by) & _MASK
