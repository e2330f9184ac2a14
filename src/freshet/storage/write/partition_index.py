"""The hash indexes of one partition in memory: of the commit that they were read at, and of one that may follow.

    keys, files      what is committed: hash → bucket, and the index file of each bucket that it was read from
    pending          what was added for a commit whose end is not known yet, with the index files written for it

`sync` compares the files with those of a snapshot. Where the commit was made, its additions are taken over; what
another writer has added is read from the end of its files, where ours are the beginning of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from freshet.storage.codec.hash_index import HASH_BYTES, decode_hashes, index_state
from freshet.storage.io.sized_cache import SizedCache
from freshet.storage.metadata.hash_index_store import BucketIndexes
from freshet.storage.model.manifest import IndexFileMeta
from freshet.storage.write.bucket_assignment import AssignerShare
from freshet.storage.write.key_index import UNKNOWN, Int16Array, Int32Array, KeyIndex

ReadIndex = Callable[[IndexFileMeta], bytes]


@dataclass(frozen=True, slots=True)
class KnownFile:
    """An index file, and the checksum of its bytes."""

    meta: IndexFileMeta
    checksum: int

    @classmethod
    def of(cls, meta: IndexFileMeta, data: bytes, checksum: int = 0) -> KnownFile:
        """A file with these bytes, after others of this checksum."""
        return cls(meta, zlib.crc32(data, checksum))

    def begins(self, data: bytes) -> bool:
        """Whether the bytes begin with those of this file."""
        size = self.meta.file_size_bytes
        return len(data) >= size and zlib.crc32(memoryview(data)[:size]) == self.checksum


@dataclass(slots=True)
class _Layer:
    keys: KeyIndex = field(default_factory=KeyIndex)
    files: dict[int, KnownFile] = field(default_factory=dict)


class PartitionIndex:
    """The keys of one assigner (`share`) in one partition; used by one thread at a time."""

    def __init__(self, share: AssignerShare) -> None:
        self._share = share
        self._committed = _Layer()
        self._pending = _Layer()

    @property
    def size_bytes(self) -> int:
        """Memory of the indexes."""
        files = 256 * (len(self._committed.files) + len(self._pending.files))
        return self._committed.keys.size_bytes + self._pending.keys.size_bytes + files

    @property
    def files(self) -> dict[int, KnownFile]:
        """The index file of each bucket, as if the pending commit were made."""
        return {**self._committed.files, **self._pending.files}

    @property
    def state(self) -> str:
        """What distinguishes these files from others (`index_state`)."""
        return index_state(file.meta.file_name for file in self.files.values())

    def find(self, hashes: Int32Array) -> Int16Array:
        """The bucket of each hash, `UNKNOWN` for new ones."""
        buckets = self._committed.keys.find(hashes)
        if len(self._pending.keys):
            missing = np.flatnonzero(buckets == UNKNOWN)
            buckets[missing] = self._pending.keys.find(hashes[missing])
        return buckets

    def hashes_of(self, bucket: int) -> Int32Array:
        """The hashes of a bucket, as far as they are of this share."""
        return np.concatenate([self._committed.keys.hashes_of(bucket), self._pending.keys.hashes_of(bucket)])

    def settle(self) -> None:
        """Does what makes the next look-ups faster, when there is time."""
        self._committed.keys.settle()

    def expect(self, keys: KeyIndex, files: Mapping[int, KnownFile]) -> None:
        """Keys that were added for a commit, in these files."""
        self._pending.keys.merge(keys)
        self._pending.files.update(files)

    def sync(self, files: BucketIndexes, read: ReadIndex) -> None:
        """Goes on with the files of a snapshot."""
        pending, self._pending = self._pending, _Layer()
        if pending.files and all(_names(files, bucket, each) for bucket, each in pending.files.items()):
            self._committed.keys.merge(pending.keys)
            self._committed.files.update(pending.files)
        for bucket in self._committed.files.keys() - files.keys():
            self._forget(bucket)
        changed = {bucket: meta for bucket, meta in sorted(files.items()) if self._is_new(bucket, meta)}
        replaced = {bucket: read(changed[bucket]) for bucket in changed.keys() & self._committed.files.keys()}
        # Before any key is added: where a partition was dropped and filled again, one of theirs may be in another
        # bucket now, and `add` would leave it in the one that is forgotten.
        for bucket, data in replaced.items():
            if not self._committed.files[bucket].begins(data):
                self._forget(bucket)
        for bucket, meta in changed.items():
            self._load(bucket, meta, replaced.pop(bucket) if bucket in replaced else read(meta))

    def _is_new(self, bucket: int, meta: IndexFileMeta) -> bool:
        known = self._committed.files.get(bucket)
        return known is None or known.meta.file_name != meta.file_name

    def _load(self, bucket: int, meta: IndexFileMeta, data: bytes) -> None:
        """Adds what a file has after the one that is known, which is its beginning."""
        known = self._committed.files.get(bucket)
        hashes = decode_hashes(data if known is None else data[known.meta.file_size_bytes :])
        if self._share.count > 1:
            hashes = hashes[self._share.has(hashes)]
        self._committed.keys.add(hashes, np.full(len(hashes), bucket, np.int16))
        self._committed.files[bucket] = KnownFile.of(meta, data)

    def _forget(self, bucket: int) -> None:
        self._committed.keys.remove(bucket)
        del self._committed.files[bucket]


def _names(files: BucketIndexes, bucket: int, known: KnownFile) -> bool:
    return bucket in files and files[bucket].file_name == known.meta.file_name


def key_counts(files: Mapping[int, KnownFile]) -> dict[int, int]:
    """Keys of each bucket, by the sizes of the files: also those of other shares."""
    return {bucket: file.meta.file_size_bytes // HASH_BYTES for bucket, file in files.items()}


WarmIndexes = SizedCache[tuple[bytes, AssignerShare], PartitionIndex]
"""Indexes of one table that a process keeps, by partition and share."""

INDEX_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of one table."""


def warm_indexes() -> WarmIndexes:
    """None yet."""
    return SizedCache(INDEX_BYTES_MAX, lambda index: index.size_bytes)
