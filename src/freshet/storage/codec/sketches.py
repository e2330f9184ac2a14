"""HLL and theta sketches of Apache DataSketches, as columns hold them: reading, uniting, writing.

The library's C++ and Java forms share their formats. What is added here:

* Java also reads theta sketches that were stored while they could still be updated (a hash table, families ALPHA and
  QUICKSELECT); the library does not, so their table is turned into a compact sketch first.
* Java says so where a theta sketch has a single item, writes the sampling rate p where C++ leaves zeros, and leaves out
  the hash of the seed in empty sketches; the bytes written here are Java's.
* the union of two HLL sketches has the precision lg_k of the second one, or the smaller one of a first that already
  counts in registers; theta unions have a nominal size of 4096. Results are HLL_4 and ordered compact sketches.

    theta, 24 bytes: u8 longs before the hashes (low 6 bits), u8 version 3, u8 family (1 ALPHA, 2 QUICKSELECT,
        3 COMPACT), u8 lg of the nominal size, u8 lg of the table, u8 flags (4 empty, 8 compact, 16 ordered,
        32 single item), u16 hash of the seed, u32 count, f32 p, u64 theta; then u64 hashes, 0 where a table has none

Source: the DataSketches format descriptions (theta PreambleUtil, hll PreambleUtil); MERGING.md §2.6.1.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
from datasketches import compact_theta_sketch, hll_sketch, hll_union, tgt_hll_type, theta_union

from freshet.storage.exceptions import InvalidRequestError

_THETA_LG_K: Final = 12
_ALPHA: Final = 1
_QUICKSELECT: Final = 2
_COMPACT: Final = 3
_EMPTY: Final = 4
_COMPACT_ORDERED_READ_ONLY: Final = 2 | 8 | 16
_SINGLE_ITEM: Final = 32
_P_OF_ONE: Final = struct.pack("<f", 1)
_EMPTY_THETA: Final = bytes([1, 3, 3, 0, 0, 0x1E, 0, 0])
"""What Java writes for every empty sketch, without a hash of the seed."""
_PREAMBLE: Final = "<BBBBBBHIfQ"


def read_hll(data: bytes) -> hll_sketch:
    """An HLL sketch. Raises `InvalidRequestError` for bytes that are none."""
    try:
        return hll_sketch.deserialize(data)
    except (ValueError, RuntimeError, IndexError) as error:
        raise InvalidRequestError(f"the value ({len(data)} bytes) is not an HLL sketch: {error}") from error


def unite_hll(first: hll_sketch, second: hll_sketch) -> hll_sketch:
    """A sketch of what both have seen."""
    union = hll_union(second.lg_config_k)
    union.update(second)
    union.update(first)
    return union.get_result(tgt_hll_type.HLL_4)


def write_hll(sketch: hll_sketch) -> bytes:
    """The compact bytes of an HLL sketch."""
    data: bytes = sketch.serialize_compact()
    return data


def read_theta(data: bytes) -> compact_theta_sketch:
    """A theta sketch, compact or not. Raises `InvalidRequestError` for bytes that are none."""
    try:
        return compact_theta_sketch.deserialize(_compacted(data))
    except (ValueError, RuntimeError, IndexError, struct.error) as error:
        raise InvalidRequestError(f"the value ({len(data)} bytes) is not a theta sketch: {error}") from error


def unite_theta(first: compact_theta_sketch, second: compact_theta_sketch) -> compact_theta_sketch:
    """A sketch of what both have seen."""
    union = theta_union(_THETA_LG_K)
    union.update(first)
    union.update(second)
    return union.get_result(ordered=True)


def write_theta(sketch: compact_theta_sketch) -> bytes:
    """The bytes of a theta sketch."""
    data = bytearray(sketch.serialize())
    if data[5] & _EMPTY:
        return _EMPTY_THETA
    if data[0] == 1:
        data[5] |= _SINGLE_ITEM
    else:
        data[12:16] = _P_OF_ONE
    return bytes(data)


def _compacted(data: bytes) -> bytes:
    if len(data) < 24 or data[2] not in (_ALPHA, _QUICKSELECT):
        return data
    longs, version, _, _, lg_table, flags, seed_hash, _, p, theta = struct.unpack_from(_PREAMBLE, data)
    if flags & _EMPTY:
        return struct.pack("<BBBBBBH", 1, version, _COMPACT, 0, 0, _COMPACT_ORDERED_READ_ONLY | _EMPTY, seed_hash)
    table = np.frombuffer(data, "<u8", 1 << lg_table, 8 * (longs & 0x3F))
    hashes = np.sort(table[(table > 0) & (table < theta)])
    head = (3, version, _COMPACT, 0, 0, _COMPACT_ORDERED_READ_ONLY, seed_hash, len(hashes), p, theta)
    return struct.pack(_PREAMBLE, *head) + hashes.tobytes()
