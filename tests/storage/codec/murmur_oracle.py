"""The hash of one body, word by word: the oracle for hashes of many rows at once."""

from __future__ import annotations

import struct

from freshet.storage.codec.murmur import SEED, mix_word

_MASK = 0xFFFFFFFF


def murmur_hash(body: bytes) -> int:
    """Hash of one body as a signed 32-bit number; the length must be a multiple of 4."""
    state = SEED
    for word in struct.unpack(f"<{len(body) // 4}I", body):
        state = mix_word(state, word)
    return _finished(state, len(body))


def row_body(data: bytes) -> bytes:
    """The body of a serialized row: what is hashed."""
    return data[4:]


def _finished(state: int, length_bytes: int) -> int:
    state ^= length_bytes
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & _MASK
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & _MASK
    state ^= state >> 16
    return state - (1 << 32) if state & 0x80000000 else state
