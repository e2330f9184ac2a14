"""Keys as indexes store them: numbers in their width, bytes behind their length; all big endian."""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.codec.index_keys import Int64Array, Key, KeyForm, bytes_of
from freshet.storage.exceptions import InvalidRequestError

I32: Final = struct.Struct(">i")

UNREADABLE: Final = (struct.error, ValueError, LookupError, OverflowError, InvalidRequestError)
"""What reading bytes that are no index raises."""


class StoredKeys:
    """Keys of one form, in order, as one string of bytes, and where each begins in it."""

    def __init__(self, data: npt.NDArray[np.uint8], offsets: Int64Array) -> None:
        """`offsets` are those of the keys and the end of the last one."""
        self._data = data
        self.offsets = offsets

    @classmethod
    def of(cls, form: KeyForm, keys: Int64Array | pa.Array[Any]) -> StoredKeys:
        """These keys."""
        if isinstance(keys, np.ndarray):
            data = form.encode(keys).view(np.uint8)
            return cls(data, np.arange(len(keys) + 1, dtype=np.int64) * form.stored.itemsize)
        content, places = bytes_of(keys)
        offsets = places + np.arange(len(keys) + 1) * I32.size
        data = np.empty(len(content) + len(keys) * I32.size, np.uint8)
        is_length = np.zeros(len(data), np.bool_)
        for byte in range(I32.size):
            is_length[offsets[:-1] + byte] = True
        data[is_length] = np.diff(places).astype(">i4").view(np.uint8)
        data[~is_length] = content
        return cls(data, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def with_tails(self, tails: npt.NDArray[np.uint8]) -> StoredKeys:
        """The same, each key with its row of `tails` behind it."""
        count, width = tails.shape
        offsets = self.offsets + np.arange(count + 1) * width
        data = np.empty(len(self._data) + tails.size, np.uint8)
        is_tail = np.zeros(len(data), np.bool_)
        for byte in range(width):
            is_tail[offsets[1:] - width + byte] = True
        data[is_tail] = tails.reshape(-1)
        data[~is_tail] = self._data
        return StoredKeys(data, offsets)

    def between(self, start: int, end: int) -> bytes:
        """The bytes of the keys from `start` on, before `end`."""
        return self._data[self.offsets[start] : self.offsets[end]].tobytes()


def read_key(form: KeyForm, data: bytes, position: int) -> tuple[Key, int]:
    """The key that begins there, and where it ends. `ValueError` and `struct.error` for a key that is not whole."""
    if not form.is_bytes:
        end = position + form.stored.itemsize
        return int(form.decode(np.frombuffer(data, form.stored, 1, position))[0]), end
    (length,) = I32.unpack_from(data, position)
    start = position + I32.size
    if length < 0 or start + length > len(data):
        raise ValueError(f"{length} bytes of a key at {start}, of {len(data)}")
    return data[start : start + length], start + length
