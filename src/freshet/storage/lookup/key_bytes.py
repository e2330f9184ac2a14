"""Keys as bytes that compare as the keys do: what RocksDB sorts and finds.

| column | bytes |
|---|---|
| a number, by `key_search` one or two words | big-endian, the sign bit of signed words flipped |
| a string or bytes | 00 is written as 00 FF; ends with 00 01, so that no key is the beginning of another |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.lookup.key_search import Numbers, StringColumn, key_column

_ESCAPED: Final = b"\0\xff"
_END: Final = pa.scalar(b"\0\1", pa.large_binary())


def key_bytes(arrays: Sequence[pa.Array[Any]]) -> list[bytes]:
    """The keys whose columns are these arrays, none of them NULL."""
    keys: list[bytes] = key_array(arrays).to_numpy(zero_copy_only=False).tolist()
    return keys


def key_array(arrays: Sequence[pa.Array[Any]]) -> pa.Array[Any]:
    """The same as one LARGE_BINARY array."""
    parts: list[Any] = []
    for array in arrays:
        column = key_column(array)
        if isinstance(column, StringColumn):
            raw = array.cast(pa.binary()).cast(pa.large_binary())
            parts += [pc.replace_substring(raw, pattern=b"\0", replacement=_ESCAPED), _END]
        else:
            rows = np.arange(len(array))
            parts += [_fixed(_big_endian(column.word(index, rows))) for index in range(column.words(column))]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary())) if len(parts) > 1 else parts[0]


def _big_endian(words: Numbers) -> npt.NDArray[np.uint8]:
    width = words.dtype.itemsize
    bits = np.ascontiguousarray(words).view(f"u{width}")
    if words.dtype.kind == "i":
        bits = bits ^ np.array(1 << (8 * width - 1), bits.dtype)
    return bits.byteswap().view(np.uint8).reshape(len(words), width)


def _fixed(rows: npt.NDArray[np.uint8]) -> pa.Array[Any]:
    """One value for each row of bytes."""
    offsets = np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))]
    return pa.Array.from_buffers(pa.large_binary(), len(rows), buffers)
