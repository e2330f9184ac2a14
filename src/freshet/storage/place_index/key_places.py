"""Places of keys: a partition and a bucket, and when that was last written.

As one value in the index:

    bucket      UINT16 LE
    written     UINT32 LE, seconds since 1970: `cross-partition-upsert.index-ttl` counts from it
    partition   the row of partition values, as manifests have it
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.storage.model.manifest import BucketId

Numbers = npt.NDArray[np.int64]

NOWHERE: Final = -1
"""In place of a partition or a bucket: the key is not known."""

_HEAD: Final = struct.Struct("<HI")


class KeyPlaces(Frozen):
    """The places of so many keys."""

    partitions: tuple[bytes, ...]
    in_partition: Numbers
    """The position of the partition of each key, `NOWHERE` for a key that is not known."""
    at_bucket: Numbers
    """The bucket of each key, likewise."""

    @classmethod
    def unknown(cls, count: int) -> KeyPlaces:
        """The places of keys none of which is known."""
        nowhere = np.full(count, NOWHERE, np.int64)
        return cls((), nowhere, nowhere)


def place_value(bucket_id: BucketId, written_s: int) -> bytes:
    """The place as the index has it."""
    partition, bucket = bucket_id
    return _HEAD.pack(bucket, written_s) + partition


def decode_places(values: Sequence[bytes | None], *, since_s: int = 0) -> KeyPlaces:
    """What the index has for keys, None for one that is not there; what was written before `since_s` is not known."""
    encoded = pa.array(values, pa.large_binary()).dictionary_encode()
    codes = pc.fill_null(encoded.indices, NOWHERE).to_numpy(zero_copy_only=False).astype(np.int64)
    partitions: dict[bytes, int] = {}
    numbers = np.full(len(encoded.dictionary) + 1, NOWHERE, np.int64)  # the last one is that of code -1
    buckets = numbers.copy()
    for index, value in enumerate(encoded.dictionary.to_pylist()):
        bucket, written_s = _HEAD.unpack_from(value)
        if written_s >= since_s:
            numbers[index] = partitions.setdefault(value[_HEAD.size :], len(partitions))
            buckets[index] = bucket
    return KeyPlaces(tuple(partitions), numbers[codes], buckets[codes])


def bucket_of(value: bytes) -> BucketId:
    """The place in a value of the index."""
    return value[_HEAD.size :], _HEAD.unpack_from(value)[0]
