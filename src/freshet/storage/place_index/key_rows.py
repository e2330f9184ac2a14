"""The keys of rows, as bytes in which equal keys are equal, and the shares in which they are indexed.

Places of keys: a partition and a bucket, and when that was last written.

As one value in the index:

    bucket      UINT16 LE
    written     UINT32 LE, seconds since 1970: `cross-partition-upsert.index-ttl` counts from it
    partition   the row of partition values, as manifests have it
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.storage.codec.binary_row_arrays import row_hashes
from freshet.storage.lookup.key_search import key_array
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.schema import TableSchema

_Numbers = npt.NDArray[np.int64]

NOWHERE: Final = -1
"""In place of a partition or a bucket: the key is not known."""

_HEAD: Final = struct.Struct("<HI")


class KeyShare(Frozen):
    """One of so many parts of the keys of a table, by the hash of the full key."""

    number: int = 0
    count: int = 1

    def has(self, rows: pa.Table | pa.RecordBatch, schema: TableSchema) -> npt.NDArray[np.bool_] | None:
        """Which of the rows have keys of it; None for all."""
        if self.count == 1:
            return None
        columns = [rows.column(name) for name in schema.primary_keys]
        hashes = row_hashes(columns, schema.types_of(schema.primary_keys))
        is_own: npt.NDArray[np.bool_] = np.abs(np.fmod(hashes, np.int32(self.count))) == self.number
        return is_own


ALL_KEYS: Final = KeyShare()


def keys_of(rows: pa.Table | pa.RecordBatch, schema: TableSchema) -> pa.Array[Any]:
    """The full keys of rows, LARGE_BINARY."""
    columns = [rows.column(name) for name in schema.primary_keys]
    return key_array([_whole(column) for column in columns])


def _whole(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> pa.Array[Any]:
    if isinstance(column, pa.ChunkedArray):
        whole: pa.Array[Any] = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [])
        return whole
    return column


class KeyPlaces(Frozen):
    """The places of so many keys."""

    partitions: tuple[bytes, ...]
    in_partition: _Numbers
    """The position of the partition of each key, `NOWHERE` for a key that is not known."""
    at_bucket: _Numbers
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
