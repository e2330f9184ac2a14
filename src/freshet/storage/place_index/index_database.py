"""The index of one share of the keys, in RocksDB: the bytes of a key → its place; the empty key → what it stands for.

    load      sorted keys, in a table file that RocksDB takes over as it is: for an index that is built
    settle    says what the index stands for; without that it is not one, and is built again
    apply     what a few commits changed, and what the index stands for then, in one atomic write

It is open once at a time (`LockedIndexError`). Nothing is synced: after a crash of the machine the writes of
`apply` may be missing from some point on, and the index stands for an older snapshot.

Of equal keys the bytes are equal. The place of a key is a partition and a bucket, and when that was last written, as
one value:

    bucket      UINT16 LE
    written     UINT32 LE, seconds since 1970: `cross-partition-upsert.index-ttl` counts from it
    partition   the row of partition values, as manifests have it
"""

from __future__ import annotations

import logging
import os.path
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen, field
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


VERSION: Final = 1
"""Another number for every change of what keys and values mean."""

_STATE_KEY: Final = b""
_BLOOM_BITS: Final = 10
_BLOCK_CACHE_BYTES: Final = 32 * 1024 * 1024
_WRITE_BUFFER_BYTES: Final = 8 * 1024 * 1024
_LOCK_FILE: Final = "/LOCK: "

_LOG: Final = logging.getLogger(__name__)


class BrokenIndexError(Exception):
    """The index cannot be used, whatever the reason: build another one."""


class LockedIndexError(Exception):
    """It is open already, in this process or another."""


class IndexState(Frozen):
    """What an index stands for: the keys of one table at one snapshot, and how many are in each bucket."""

    table: str
    created_ms: int
    """When the first schema of the table was made: a table that was dropped and created again has another time."""
    share: tuple[int, int]
    """Number of this share of the keys, and how many there are."""
    ttl_ms: int | None
    snapshot_id: int
    """0 for the table before its first snapshot."""
    snapshot_uuid: str | None
    counts: Mapping[BucketId, int] = field(default_factory=dict)

    @property
    def key_count(self) -> int:
        """All keys of the share."""
        return sum(self.counts.values())


def is_rocksdb_installed() -> bool:
    """Whether the extra `rocksdb` is there."""
    return find_spec("rocksdict") is not None


class IndexDatabase:
    """An open index; `close` it whatever happens. Used by one thread."""

    def __init__(self, folder: str) -> None:
        """Opens the one in a folder, or makes an empty one there. Raises `LockedIndexError`, `BrokenIndexError`."""
        self.folder = folder
        self._options = _options()
        self._table_files = 0
        self._database: Any = None
        try:
            # Without this the options of the file OPTIONS hold, which name no cache.
            import rocksdict as _rocksdict

            self._database = _rocksdict.Rdict(folder, self._options, column_families={"default": self._options})
        except Exception as error:  # RocksDB has no other
            if _LOCK_FILE in str(error):  # the word alone is in `block checksum mismatch` as well
                raise LockedIndexError(f"{folder}: {error}") from error
            raise BrokenIndexError(f"RocksDB cannot open {folder}: {error}") from error

    def state(self) -> IndexState | None:
        """What it stands for; None where it was not settled."""
        value = self._get([_STATE_KEY])[0]
        return None if value is None else _decode_state(value)

    def find(self, keys: list[bytes]) -> list[bytes | None]:
        """The values of keys."""
        return self._get(keys) if keys else []

    def load(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Adds keys in ascending order, none of them twice. Later ones replace those loaded before."""
        if not keys:
            return
        try:
            import rocksdict as _rocksdict

            path = os.path.join(self.folder, f"loaded-{self._table_files}.sst")
            self._table_files += 1
            writer = _rocksdict.SstFileWriter(self._options)
            writer.open(path)
            # There is no call for many: 6 M keys of 8 bytes a second; with reading and sorting them 4.2 M.
            deque(map(writer.__setitem__, keys, values), maxlen=0)
            writer.finish()
            moved = _rocksdict.IngestExternalFileOptions()
            moved.set_move_files(True)
            self._database.ingest_external_file([path], moved)
        except Exception as error:
            raise BrokenIndexError(f"RocksDB cannot write {self.folder}: {error}") from error

    def settle(self, state: IndexState) -> None:
        """The index stands for this now."""
        self.apply([], [], [], state)

    def apply(self, keys: Sequence[bytes], values: Sequence[bytes], gone: Sequence[bytes], state: IndexState) -> None:
        """Adds or moves keys, removes those that are gone, and stands for the state, in one step."""
        try:
            import rocksdict as _rocksdict

            batch = _rocksdict.WriteBatch(raw_mode=True)
            deque(map(batch.put, keys, values), maxlen=0)
            deque(map(batch.delete, gone), maxlen=0)
            batch.put(_STATE_KEY, _encode_state(state))
            self._database.write(batch)
        except Exception as error:
            raise BrokenIndexError(f"RocksDB cannot write {self.folder}: {error}") from error

    def close(self) -> None:
        """Lets others open it, also where the disk is full: what is missing of it then is known when it is opened. May
        be called twice."""
        try:
            self._close()
        except BrokenIndexError as error:
            _LOG.warning("%s", error)

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is None:
            return
        try:
            database.close()
        except Exception as error:  # it is closed all the same when the object goes, with this error
            raise BrokenIndexError(f"RocksDB has not written all that it had for {self.folder}: {error}") from error

    def _get(self, keys: list[bytes]) -> list[bytes | None]:
        try:
            found: Any = self._database.get(list[Any](keys))
        except Exception as error:
            raise BrokenIndexError(f"RocksDB cannot read {self.folder}: {error}") from error
        values: list[bytes | None] = found
        return values


def _options() -> Any:
    # Indexes and filters stay in memory, about 2 bytes a key: in the block cache, in parts, 1000 keys take 4.8 ms, so
    # 3.6 ms (10 M keys).
    import rocksdict as _rocksdict

    table = _rocksdict.BlockBasedOptions()
    table.set_block_cache(_rocksdict.Cache(_BLOCK_CACHE_BYTES))
    table.set_bloom_filter(_BLOOM_BITS, False)
    options = _rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(_rocksdict.DBCompressionType.lz4())
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_keep_log_file_num(1)
    return options


def _encode_state(state: IndexState) -> bytes:
    return orjson.dumps(
        {
            "version": VERSION,
            "table": state.table,
            "created": state.created_ms,
            "share": state.share,
            "ttl": state.ttl_ms,
            "snapshot": state.snapshot_id,
            "uuid": state.snapshot_uuid,
            "counts": [[partition.hex(), bucket, count] for (partition, bucket), count in state.counts.items()],
        }
    )


def _decode_state(value: bytes) -> IndexState | None:
    found = orjson.loads(value)
    if found["version"] != VERSION:
        return None
    share, count = found["share"]
    counts = {(bytes.fromhex(partition), bucket): number for partition, bucket, number in found["counts"]}
    return IndexState(
        found["table"], found["created"], (share, count), found["ttl"], found["snapshot"], found["uuid"], counts
    )
