"""The keys of one partition with dynamic buckets in memory: which bucket each is in, and which a new one gets.

    KeyIndex          hash of the key → bucket, 6 bytes a key
    AssignmentRule    the bucket of a new key. Pure
    PartitionIndex    the hash indexes of a partition: of the commit that they were read at, and of one that may follow

A `KeyIndex` is two sorted arrays of equal length. New hashes gather in a second, small pair, which is merged into the
large one where it has grown to a sixteenth of it: by `settle`, when there is time, at the latest when more are added.
While they are merged a key takes less than 12 bytes: the array of the hashes is replaced before that of the buckets is
made.

A new key gets

    1. the lowest own bucket that has fewer keys than `dynamic-bucket.target-row-num`
    2. else the lowest own number that is not in use, below `dynamic-bucket.max-buckets`, which counts for each
       partition by itself
    3. where there is none, an own bucket by the hash: they grow beyond the target

Several assigners share the keys of a partition by their hash: assigner r of n has the keys with |hash % n| = r, and
owns the buckets with bucket % n = r. So one assigner alone adds keys to a bucket, and it alone writes the bucket's
index file, wherever its task runs.

New keys are taken in the order of their hashes, not as they come: whoever gets the same keys upon the same index
assigns the same, so a task that runs twice gives no key to two buckets.

Paimon 2.0.0 counts `max-buckets` over all partitions of an assigner, and an assigner that owns no number below it
fails; MERGING.md §8.2.

`PartitionIndex.sync` compares the index files with those of a snapshot. Where the pending commit was made, its
additions are taken over; what another writer has added is read from the end of its files, where ours are the beginning
of them. All of it is used by one thread at a time.

Source: FORMAT.md §8.3.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from freshet._frozen import Frozen
from freshet.storage.io.sized_cache import SizedCache
from freshet.storage.metadata.hash_index_store import HASH_BYTES, BucketIndexes, decode_hashes, index_state
from freshet.storage.model.manifest import IndexFileMeta

Int16Array = npt.NDArray[np.int16]
Int32Array = npt.NDArray[np.int32]

N = TypeVar("N", bound=np.generic)

UNKNOWN: Final = -1
"""Bucket of a key that is not there."""

RECENT_MIN: Final = 65_536
RECENT_SHARE: Final = 16

PIECE: Final = 262_144


def members_of(groups: npt.NDArray[np.integer]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Each group number with the positions that have it, in their order; there is at least one."""
    order = np.argsort(groups, kind="stable")
    in_order = groups[order]
    starts = np.flatnonzero(in_order[1:] != in_order[:-1]) + 1
    parts = np.split(order, starts)
    return zip(in_order[[0, *starts]].tolist(), parts, strict=True)


class KeyIndex:
    """The hashes that were added, each with one bucket."""

    def __init__(self) -> None:
        self._large = _Sorted.empty()
        self._recent = _Sorted.empty()

    def __len__(self) -> int:
        return len(self._large.hashes) + len(self._recent.hashes)

    @property
    def size_bytes(self) -> int:
        """Memory of the arrays."""
        return self._large.size_bytes + self._recent.size_bytes

    def find(self, hashes: Int32Array) -> Int16Array:
        """The bucket of each hash, `UNKNOWN` where it has none. Hashes in ascending order are found six times as fast:
        neighbours are in the same part of memory."""
        buckets = self._large.find(hashes)
        if len(self._recent.hashes):
            missing = np.flatnonzero(buckets == UNKNOWN)
            buckets[missing] = self._recent.find(hashes[missing])
        return buckets

    def add(self, hashes: Int32Array, buckets: Int16Array) -> None:
        """Adds hashes; one that is there keeps its bucket, of two equal ones the first counts."""
        if not (hashes[1:] > hashes[:-1]).all():
            hashes, first = np.unique(hashes, return_index=True)
            buckets = buckets[first]
        is_new = self.find(hashes) == UNKNOWN
        if not is_new.all():
            hashes, buckets = hashes[is_new], buckets[is_new]
        self.extend(hashes, buckets)

    def extend(self, hashes: Int32Array, buckets: Int16Array) -> None:
        """Adds distinct hashes in ascending order, none of which is there. Who knows that need not have them looked up:
        2 M keys in ten commits take 0.15 s of processor time, not 0.20."""
        if not len(hashes):
            return
        self.settle()
        self._recent.merge(hashes, buckets)

    def settle(self) -> None:
        """Merges the recent hashes into the others where they are many; what is found does not change."""
        if len(self._recent.hashes) > max(RECENT_MIN, len(self._large.hashes) // RECENT_SHARE):
            recent, self._recent = self._recent, _Sorted.empty()
            self._large.merge(recent.hashes, recent.buckets)

    def merge(self, other: KeyIndex) -> None:
        """Adds all that another one has, none of which is there; the other is not used any more."""
        if not len(self):
            self._large, self._recent = other._large, other._recent
            return
        for each in (other._large, other._recent):
            self.extend(each.hashes, each.buckets)

    def hashes_of(self, bucket: int) -> Int32Array:
        """The hashes of one bucket."""
        return np.concatenate([each.hashes[each.buckets == bucket] for each in (self._large, self._recent)])

    def by_bucket(self) -> Iterator[tuple[int, Int32Array]]:
        """The hashes of each bucket, in ascending order of the buckets."""
        if not len(self):
            return iter(())
        hashes = np.concatenate([self._large.hashes, self._recent.hashes])
        buckets = np.concatenate([self._large.buckets, self._recent.buckets])
        return ((bucket, hashes[members]) for bucket, members in members_of(buckets))

    def remove(self, bucket: int) -> None:
        """Forgets the hashes of a bucket."""
        for each in (self._large, self._recent):
            each.keep(each.buckets != bucket)


class _Sorted:
    """Distinct hashes in ascending order, with their buckets."""

    def __init__(self, hashes: Int32Array, buckets: Int16Array) -> None:
        self.hashes = hashes
        self.buckets = buckets

    @classmethod
    def empty(cls) -> _Sorted:
        return cls(np.zeros(0, np.int32), np.zeros(0, np.int16))

    @property
    def size_bytes(self) -> int:
        return self.hashes.nbytes + self.buckets.nbytes

    def find(self, hashes: Int32Array) -> Int16Array:
        if not len(self.hashes):
            return np.full(len(hashes), UNKNOWN, np.int16)
        places = np.searchsorted(self.hashes, hashes)
        places[places == len(self.hashes)] = 0
        return np.where(self.hashes[places] == hashes, self.buckets[places], np.int16(UNKNOWN))

    def merge(self, hashes: Int32Array, buckets: Int16Array) -> None:
        """Adds sorted hashes, none of which is there."""
        if not len(self.hashes):
            self.hashes, self.buckets = hashes, buckets
            return
        if self.buckets[0] == buckets[0] and _is_uniform(self.buckets) and _is_uniform(buckets):
            # A partition of one bucket, as most are: the sort merges two sorted runs, 3 ms for 2 M and not 13.
            self.hashes = np.concatenate([self.hashes, hashes])
            self.hashes.sort(kind="stable")
            self.buckets = np.full(len(self.hashes), buckets[0])
            return
        places = np.searchsorted(self.hashes, hashes)
        self.hashes = _woven(self.hashes, hashes, places)
        self.buckets = _woven(self.buckets, buckets, places)

    def keep(self, chosen: npt.NDArray[np.bool_]) -> None:
        if not chosen.all():
            self.hashes, self.buckets = self.hashes[chosen], self.buckets[chosen]


def _is_uniform(buckets: Int16Array) -> bool:
    return bool(buckets.min() == buckets.max())


def _woven(old: npt.NDArray[N], new: npt.NDArray[N], places: npt.NDArray[np.int64]) -> npt.NDArray[N]:
    """Both arrays as one: each new value lies before the old one at its place. Made piece by piece, so that nothing but
    the result takes memory."""
    both = np.empty(len(old) + len(new), old.dtype)
    for start in range(0, len(old) + 1, PIECE):
        end = min(start + PIECE, len(old))
        first, last = np.searchsorted(places, [start, end + (end == len(old))])
        piece = both[start + first : end + last]
        at = places[first:last] - start + np.arange(last - first)
        is_old = np.ones(len(piece), np.bool_)
        is_old[at] = False
        piece[is_old] = old[start:end]
        piece[at] = new[first:last]
    return both


BUCKETS_MAX: Final = 32_767
"""Bucket numbers are 16-bit integers, and the largest is not used."""


class AssignerShare(Frozen):
    """One of so many assigners of a partition."""

    number: int = 0
    count: int = 1

    def has(self, hashes: Int32Array) -> npt.NDArray[np.bool_]:
        """Which of the hashes are those of its keys."""
        if self.count == 1:
            return np.ones(len(hashes), np.bool_)
        is_own: npt.NDArray[np.bool_] = np.abs(np.fmod(hashes, np.int32(self.count))) == self.number
        return is_own

    def owns(self, bucket: int) -> bool:
        """Whether it may add keys to the bucket."""
        return bucket % self.count == self.number


SOLE_ASSIGNER: Final = AssignerShare()


class AssignmentRule(Frozen):
    """What the options say; `max_buckets` is None where there is no limit but that of the format."""

    target_row_num: int
    max_buckets: int | None = None
    share: AssignerShare = SOLE_ASSIGNER

    def assign(self, new: Int32Array, counts: Mapping[int, int]) -> Int16Array:
        """Buckets for new hashes, which are distinct and in ascending order; `counts` are the keys of each bucket of
        the partition."""
        buckets = np.empty(len(new), np.int16)
        start = 0
        for bucket, room in self._rooms(counts):
            if start == len(new):
                return buckets
            end = min(len(new), start + room)
            buckets[start:end] = bucket
            start = end
        if start < len(new):
            own = np.array([number for number in range(self._limit) if self.share.owns(number)], np.int16)
            buckets[start:] = own[np.abs(new[start:].astype(np.int64)) // self.share.count % len(own)]
        return buckets

    @property
    def _limit(self) -> int:
        return BUCKETS_MAX if self.max_buckets is None else min(self.max_buckets, BUCKETS_MAX)

    def _rooms(self, counts: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        for bucket in sorted(counts):
            if self.share.owns(bucket) and counts[bucket] < self.target_row_num:
                yield bucket, self.target_row_num - counts[bucket]
        for bucket in range(self.share.number, self._limit, self.share.count):
            if bucket not in counts:
                yield bucket, self.target_row_num


ReadIndex = Callable[[IndexFileMeta], bytes]


class KnownFile(Frozen):
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
