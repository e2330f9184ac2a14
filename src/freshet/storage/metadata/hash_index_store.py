"""The hash indexes of one table with dynamic buckets: one file for each bucket, named by the index manifest.

A file has the hashes of the keys of its bucket, 4 bytes each, highest byte first, in no order and without a header.
Hashes are those of the primary key without the partition columns (`binary_row_arrays.row_hashes`). Keys whose hashes
are equal share an entry. Duplicates are harmless; we write none.

Source: FORMAT.md §8.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

from freshet.storage.exceptions import CorruptDataError, MissingFileError, NotFoundError
from freshet.storage.io.env import Env
from freshet.storage.io.file_cache import CacheKind
from freshet.storage.io.file_io import create_or_ask
from freshet.storage.metadata.manifest_store import ManifestStore
from freshet.storage.model.manifest import HASH_INDEX, IndexFileMeta
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.paths import INDEX_FILE_PREFIX, TablePaths

REPAIR: Final = "build it again from the rows of the table: freshet repair hash-index WAREHOUSE TABLE"

HASH_BYTES: Final = 4

_STORED: Final = np.dtype(">i4")
_DIGEST_BYTES: Final = 16

Int32Array = npt.NDArray[np.int32]


class LostIndexError(NotFoundError, MissingFileError):
    """An index file is not there. A `NotFoundError` too: where its snapshot has expired, the latest has another one."""


BucketIndexes = Mapping[int, IndexFileMeta]
"""The index file of each bucket of one partition."""


class HashIndexStore:
    """Index files of one table. May be shared by threads."""

    def __init__(self, env: Env, paths: TablePaths, manifests: ManifestStore) -> None:
        self._env = env
        self._paths = paths
        self._manifests = manifests
        self._newest: tuple[str | None, dict[bytes, dict[int, IndexFileMeta]]] = (None, {})

    def files(self, snapshot: Snapshot | None) -> Mapping[bytes, BucketIndexes]:
        """The index files that are live at a snapshot, by partition."""
        name = None if snapshot is None else snapshot.index_manifest
        known, by_partition = self._newest
        if known == name:
            return by_partition
        by_partition = {}
        for entry in self._manifests.read_index_manifest(name):
            if entry.file.index_type != HASH_INDEX:
                continue
            other = by_partition.setdefault(entry.partition, {}).setdefault(entry.bucket, entry.file)
            if other is not entry.file:
                raise CorruptDataError(
                    f"bucket {entry.bucket} has two hash indexes, {other.file_name} and {entry.file.file_name}, and "
                    f"which of them counts is not known; {REPAIR}",
                    path=self._paths.manifest(str(name)),
                )
        self._newest = (name, by_partition)
        return by_partition

    def read(self, file: IndexFileMeta) -> bytes:
        """The bytes of an index file; raises where it is missing or not as long as it was written."""
        path = self._paths.index_file(file.file_name, file.external_path)
        try:
            data = self._env.immutable_bytes(path, CacheKind.BUCKET_INDEX)
        except NotFoundError as error:
            raise LostIndexError(
                "the hash index of a bucket is missing, without it rows of its keys would come into a second bucket; "
                f"{REPAIR}",
                path=path,
            ) from error
        if len(data) != file.file_size_bytes or len(data) % HASH_BYTES:
            self._env.forget_immutable(path, CacheKind.BUCKET_INDEX)
            raise CorruptDataError(
                f"the hash index has {len(data)} bytes, its manifest entry says {file.file_size_bytes}: it was cut "
                f"short or replaced; {REPAIR}",
                path=path,
            )
        return data

    def write(self, data: bytes) -> IndexFileMeta:
        """Writes a new index file."""
        name = f"{INDEX_FILE_PREFIX}{self._env.new_uuid()}-0"
        create_or_ask(self._env.file_io, self._paths.index_file(name), data)
        return IndexFileMeta(HASH_INDEX, name, len(data), len(data) // HASH_BYTES)


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
