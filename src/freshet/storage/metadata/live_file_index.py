"""Live files by bucket, for a process that looks at one snapshot of a table after the other.

| the snapshot asked for                    | what happens |
|-------------------------------------------|--------------|
| the one known                             | known buckets as they are |
| later, at most `STEPS_MAX` commits        | the deltas of these commits are applied |
| earlier                                   | buckets changed since, and unknown ones, are read for the caller alone |
| anything else: far away, after a rollback | all is forgotten |

A step is taken only from a snapshot that is still there unchanged, or that has expired and whose successor was built
on it. What is not known is read from the manifests that may hold it; of a table with few files everything is read at
once, because each look into the manifests costs as much. Commits of others need not be reported to it. Buckets that
were not asked for longest are dropped when all together have more than `FILES_MAX` files.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from freshet.storage.exceptions import NotFoundError
from freshet.storage.metadata.live_files import (
    NO_FILES,
    BucketFiles,
    LiveFiles,
    base_manifests,
    data_manifests,
    data_manifests_at_once,
    delta_entries,
    deltas_at_once,
    files_after,
    files_by_bucket,
    grouped_by_bucket,
    live_entries,
)
from freshet.storage.metadata.manifest_store import ManifestStore
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.model.manifest import BucketId, ManifestEntry
from freshet.storage.model.snapshot import Snapshot

STEPS_MAX: Final = 64
"""Snapshots further apart than this are scanned in full: each step reads one manifest list and one manifest or more."""

FILES_MAX: Final = 100_000
"""Files of all known buckets. The entries themselves are shared with the manifests in memory."""

SMALL_ENTRIES_MAX: Final = 20_000
"""Manifest entries of a table that is read whole: some 20 ms."""

_EMPTY: Final[BucketFiles] = MappingProxyType({})


class LiveFileIndex:
    """The buckets of one table, all at one snapshot. May be shared by threads."""

    def __init__(self, snapshots: SnapshotStore, manifests: ManifestStore, files_max: int = FILES_MAX) -> None:
        self._snapshots = snapshots
        self._manifests = manifests
        self._files_max = files_max
        self._forget(None)
        self._process_id = os.getpid()
        self._lock = threading.Lock()

    def at(self, snapshot: Snapshot | None) -> LiveFiles:
        """All live files of a snapshot."""
        if snapshot is None:
            return NO_FILES
        with self._locked():
            is_brought = self._bring_to(snapshot)
            if is_brought and self._is_complete:
                return _live_files(snapshot, self._known)
        found = files_by_bucket(live_entries(self._manifests, snapshot))
        with self._locked():
            if is_brought and self._snapshot == snapshot:
                self._adopt(found)
        return _live_files(snapshot, found)

    def of_buckets(self, snapshot: Snapshot | None, bucket_ids: Collection[BucketId]) -> LiveFiles:
        """Live files of these buckets at a snapshot; `NotFoundError` when it has expired and is not known."""
        if snapshot is None or not bucket_ids:
            return NO_FILES
        with self._locked():
            is_brought = self._bring_to(snapshot)
            if is_brought:
                self._learn(snapshot, bucket_ids)
                found = self._held(bucket_ids)
                self._drop_oldest()
            else:
                found = self._held(set(bucket_ids) - self._changed_since(snapshot))
        missing = () if is_brought else set(bucket_ids) - found.keys()
        if missing:
            found |= files_by_bucket(live_entries(self._manifests, snapshot, bucket_ids=missing))
        return _live_files(snapshot, found)

    def follow(self, snapshot: Snapshot) -> None:
        """Reads what changed up to a snapshot, before it is asked for."""
        with self._locked():
            self._bring_to(snapshot)

    def advance(self, parent: Snapshot | None, snapshot: Snapshot, delta: Iterable[ManifestEntry]) -> None:
        """Called by the committer of `snapshot` on top of `parent`, so that its delta need not be read back."""
        with self._locked():
            if self._snapshot is not None and self._snapshot == parent:
                self._apply(snapshot, [grouped_by_bucket(delta)])

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """A forked process starts with nothing known: the lock may be held by a thread that it does not have."""
        if self._process_id != os.getpid():
            self._forget(None)
            self._process_id, self._lock = os.getpid(), threading.Lock()
        with self._lock:
            yield

    def _forget(self, snapshot: Snapshot | None) -> None:
        self._snapshot = snapshot
        self._known: OrderedDict[BucketId, BucketFiles] = OrderedDict()
        self._is_complete = False
        """Whether a bucket that is not among the known ones has no files."""
        self._size = 0

    def _bring_to(self, snapshot: Snapshot) -> bool:
        """Brings what is known to the snapshot; False when it is earlier than what is known, which stays."""
        start = self._snapshot
        if start == snapshot:
            return True
        if start is not None and (self._known or self._is_complete):
            if snapshot.id < start.id and self._is_there(start):
                return False
            if start.id < snapshot.id <= start.id + STEPS_MAX and (
                self._step_by_manifests(start, snapshot) or self._step(start, snapshot)
            ):
                return True
        self._forget(snapshot)
        return True

    def _step(self, start: Snapshot, snapshot: Snapshot) -> bool:
        """Applies the deltas after `start` up to `snapshot`; False, and nothing changed, when that cannot be done."""
        try:
            is_seen = self._snapshots.follows(start, snapshot)
            read = self._snapshots.snapshot if is_seen else self._snapshots.fresh
            ids = range(start.id + 1, snapshot.id + 1)
            steps = [snapshot if snapshot_id == snapshot.id else read(snapshot_id) for snapshot_id in ids]
            if not (is_seen or self._is_there(start) or self._is_built_on(start, steps[0])):
                return False  # the table was rolled back and has gone on since
            deltas = [grouped_by_bucket(delta) for delta in deltas_at_once(self._manifests, steps)]
        except NotFoundError:
            return False  # a snapshot between has expired
        self._apply(snapshot, deltas)
        return True

    def _step_by_manifests(self, start: Snapshot, snapshot: Snapshot) -> bool:
        """Applies the manifests that are new since `start`; False, and nothing changed, when some were merged.

        At a store this takes two lists at the same time, where the deltas of several commits take one each, and a look
        whether `start` is still there. That the manifests begin with those of `start` shows that the snapshot was built
        on it: their names are random.
        """
        is_known = snapshot.id == start.id + 1 and self._snapshots.follows(start, snapshot)
        if is_known or not self._manifests.is_remote:
            return False
        try:
            before = data_manifests(self._manifests, start)
            after = data_manifests_at_once(self._manifests, snapshot)
            following = after[len(before) :]
            if after[: len(before)] != before:
                return False
            with self._manifests.ahead(following):
                deltas = [grouped_by_bucket(self._manifests.read_manifest(meta)) for meta in following]
        except NotFoundError:
            return False
        self._apply(snapshot, deltas)
        return True

    def _is_there(self, snapshot: Snapshot) -> bool:
        """False when the snapshot has expired, or is another one by now: the table was rolled back or made anew."""
        try:
            return self._snapshots.fresh(snapshot.id) == snapshot
        except NotFoundError:
            return False

    def _is_built_on(self, start: Snapshot, successor: Snapshot) -> bool:
        """For a start that has expired, as it always has where few snapshots are retained: its successor's base is what
        base and delta of the start were, unless manifests were merged.
        """
        if self._snapshots.exists(start.id):
            return False
        return list(base_manifests(self._manifests, successor)) == data_manifests(self._manifests, start)

    def _apply(self, snapshot: Snapshot, deltas: Iterable[Mapping[BucketId, list[ManifestEntry]]]) -> None:
        for by_bucket in deltas:
            for bucket, entries in by_bucket.items():
                files = self._known.get(bucket, _EMPTY if self._is_complete else None)
                if files is not None:
                    self._put(bucket, files_after(files, entries))
        self._snapshot = snapshot
        self._drop_oldest()

    def _learn(self, snapshot: Snapshot, bucket_ids: Iterable[BucketId]) -> None:
        """Reads buckets that are not known, or all of them; a bucket without files is known as such."""
        missing = [bucket for bucket in bucket_ids if bucket not in self._known]
        if not missing or self._is_complete:
            return
        if self._entry_count(snapshot) <= min(SMALL_ENTRIES_MAX, self._files_max):
            self._adopt(files_by_bucket(live_entries(self._manifests, snapshot)))
            return
        found = files_by_bucket(live_entries(self._manifests, snapshot, bucket_ids=missing))
        for bucket in missing:
            self._put(bucket, found.get(bucket, _EMPTY))

    def _held(self, bucket_ids: Iterable[BucketId]) -> dict[BucketId, BucketFiles]:
        """The buckets that are known, used last then."""
        held: dict[BucketId, BucketFiles] = {}
        for bucket in bucket_ids:
            files = self._known.get(bucket, _EMPTY if self._is_complete else None)
            if files is not None:
                held[bucket] = files
                if bucket in self._known:
                    self._known.move_to_end(bucket)
        return held

    def _changed_since(self, snapshot: Snapshot) -> set[BucketId]:
        """Buckets that differ, or may differ, from what is known, which is later than the snapshot."""
        assert self._snapshot is not None
        try:
            if self._snapshot.id - snapshot.id > STEPS_MAX or not self._is_there(snapshot):
                return set(self._known)
            steps = [*map(self._snapshots.fresh, range(snapshot.id + 1, self._snapshot.id)), self._snapshot]
            return {entry.bucket_id for step in steps for entry in delta_entries(self._manifests, step)}
        except NotFoundError:
            return set(self._known)

    def _adopt(self, found: Mapping[BucketId, BucketFiles]) -> None:
        """Keeps all files of the table, if they are not too many."""
        if sum(map(len, found.values())) <= self._files_max:
            self._forget(self._snapshot)
            for bucket, files in found.items():
                self._put(bucket, files)
            self._is_complete = True

    def _put(self, bucket: BucketId, files: BucketFiles) -> None:
        self._size += _size_of(files) - _size_of(self._known.get(bucket))
        self._known[bucket] = files

    def _drop_oldest(self) -> None:
        while self._size > self._files_max and len(self._known) > 1:
            _, files = self._known.popitem(last=False)
            self._is_complete = False
            self._size -= _size_of(files)

    def _entry_count(self, snapshot: Snapshot) -> int:
        manifests = data_manifests(self._manifests, snapshot)
        return sum(manifest.num_added_files + manifest.num_deleted_files for manifest in manifests)


def _size_of(files: BucketFiles | None) -> int:
    """A bucket without files takes its place too."""
    return 0 if files is None else max(1, len(files))


def _live_files(snapshot: Snapshot, found: Mapping[BucketId, BucketFiles]) -> LiveFiles:
    return LiveFiles(snapshot.id, MappingProxyType({bucket: files for bucket, files in found.items() if files}))
