"""The index of a dynamic bucket: the hashes of its keys, 4 bytes each, highest first, in no order and without a header.

Hashes are those of the primary key without the partition columns (`binary_row_arrays.row_hashes`). Keys whose hashes
are equal share an entry. Duplicates are harmless; we write none.

Source: FORMAT.md §8.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

HASH_BYTES: Final = 4

_STORED: Final = np.dtype(">i4")
_DIGEST_BYTES: Final = 16

Int32Array = npt.NDArray[np.int32]


def decode_hashes(data: bytes | memoryview) -> Int32Array:
    """The hashes of an index file, in its order."""
    return np.frombuffer(data, _STORED).astype(np.int32)


def encode_hashes(hashes: Int32Array) -> bytes:
    """The bytes of an index file, or of the end of one."""
    return hashes.astype(_STORED).tobytes()


def distinct(hashes: Int32Array) -> Int32Array:
    """The hashes in ascending order, each once. Many times as fast as `np.unique`, which builds a hash table."""
    ordered = np.sort(hashes)
    is_first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered if is_first.all() else ordered[is_first]


def index_state(file_names: Iterable[str]) -> str:
    """What distinguishes one set of index files from another: files never change under their name."""
    return blake2b("\n".join(sorted(file_names)).encode(), digest_size=_DIGEST_BYTES).hexdigest()
