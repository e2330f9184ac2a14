"""Which files are live at a snapshot: all of them, those of some partitions and buckets, or what one commit changed.

    live(S)  = ADD entries of base(S) and delta(S) whose identity is in no DELETE entry there
    live(S') = (live(S) - DELETEs of delta(S')) + ADDs of delta(S') that it does not delete, for S' the next snapshot

The second line is what a long-lived process uses: `LiveFileIndex` steps from the newest snapshot it knows, so that the
cost is that of the changes, not of the table. An ADD and its DELETE agree in partition and bucket, so both may be
pruned by them; they may not be pruned by level or by statistics of values.

Source: FORMAT.md §3.4.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Final, Protocol

from freshet.storage.exceptions import NotFoundError
from freshet.storage.metadata.manifest_store import ManifestStore
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.model.data_file import DataFileMeta, SimpleStats
from freshet.storage.model.manifest import BucketId, EntryKind, FileIdentity, ManifestEntry, ManifestFileMeta
from freshet.storage.model.snapshot import Snapshot

STEPS_MAX: Final = 64
"""Snapshots further apart than this are scanned afresh: each step reads one manifest list and one manifest or more."""

FILES_MAX: Final = 100_000
"""Files held in memory by a process that asks for single buckets."""

SCANNED_WHOLE_MAX: Final = 5_000
"""Manifest entries of a table so small that all of it is held whatever was asked for."""

BucketFiles = Mapping[FileIdentity, ManifestEntry]
"""Live files of a bucket."""

PartitionTest = Callable[[bytes], bool]
StatsTest = Callable[[SimpleStats], bool]


def live_entries(
    store: ManifestStore,
    snapshot: Snapshot | None,
    *,
    partition: PartitionTest | None = None,
    partitions: Collection[bytes] | None = None,
    buckets: Collection[int] | None = None,
    bucket_ids: Collection[BucketId] | None = None,
    partition_stats: StatsTest | None = None,
) -> list[ManifestEntry]:
    """Live files of a snapshot, in the order of the manifests; none for no snapshot.

    `partition` tests a serialized partition row, and `partitions` are all rows that it is true for, where they are
    known: large manifests are searched for them instead of decoded. `buckets` are the buckets wanted in every
    partition, `bucket_ids` the pairs wanted; what is None does not prune. `partition_stats` may skip a whole manifest
    by the bounds of its partitions, and must be true wherever `partition` is true for one of them.
    """
    if snapshot is None:
        return []
    wanted = None if bucket_ids is None else frozenset(bucket_ids)
    allowed = None if buckets is None else frozenset(buckets)
    if wanted is not None and allowed is None:
        allowed = frozenset(bucket for _, bucket in wanted)
    if wanted is not None:
        partitions = frozenset(partition for partition, _ in wanted)
    manifests = [
        manifest
        for manifest in data_manifests(store, snapshot)
        if _may_hold_bucket(manifest, allowed)
        and (partition_stats is None or partition_stats(manifest.partition_stats))
        and (partitions is None or store.may_hold(manifest, partitions))
    ]
    entries: Iterable[ManifestEntry]
    if partitions is None:
        entries = chain.from_iterable(map(store.read_manifest, manifests))
    else:
        entries = chain.from_iterable(store.read_manifest_with(manifest, partitions) for manifest in manifests)
    if allowed is not None:
        entries = (entry for entry in entries if entry.bucket in allowed)
    if wanted is not None:
        entries = (entry for entry in entries if entry.bucket_id in wanted)
    if partition is not None:
        entries = _of_partitions(entries, partition)
    if not any(manifest.num_deleted_files for manifest in manifests):
        return list(entries)
    return without_deleted(entries)


def without_deleted(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """The ADD entries whose identity no DELETE entry has, in their order; a DELETE may stand before its ADD."""
    added: list[tuple[FileIdentity, ManifestEntry]] = []
    deleted: set[FileIdentity] = set()
    for entry in entries:
        if entry.kind is EntryKind.ADD:
            added.append((entry.identity, entry))
        else:
            deleted.add(entry.identity)
    return [entry for identity, entry in added if identity not in deleted]


class ManifestReader(Protocol):
    """What reads the manifests of a snapshot: the store, or one that takes missing files for empty ones."""

    def read_manifest_list(self, name: str, size_bytes: int | None = None) -> tuple[ManifestFileMeta, ...]:
        """Manifests of a list."""

    def read_manifest(self, manifest: ManifestFileMeta | str) -> Sequence[ManifestEntry]:
        """Entries of a manifest."""


def base_manifests(source: ManifestReader, snapshot: Snapshot) -> tuple[ManifestFileMeta, ...]:
    """Manifests of what was there before the commit."""
    return source.read_manifest_list(snapshot.base_manifest_list, snapshot.base_manifest_list_size)


def delta_manifests(source: ManifestReader, snapshot: Snapshot) -> tuple[ManifestFileMeta, ...]:
    """Manifests of what the commit changed."""
    return source.read_manifest_list(snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)


def data_manifests(source: ManifestReader, snapshot: Snapshot) -> list[ManifestFileMeta]:
    """Manifests of base and delta, in this order."""
    return [*base_manifests(source, snapshot), *delta_manifests(source, snapshot)]


def changelog_manifests(source: ManifestReader, snapshot: Snapshot) -> tuple[ManifestFileMeta, ...]:
    """Manifests of the changelog files of the commit; none when it has none."""
    name = snapshot.changelog_manifest_list
    return () if name is None else source.read_manifest_list(name, snapshot.changelog_manifest_list_size)


def entries_of(source: ManifestReader, manifests: Iterable[ManifestFileMeta]) -> list[ManifestEntry]:
    """Entries of the manifests, in order."""
    return list(chain.from_iterable(map(source.read_manifest, manifests)))


def delta_entries(source: ManifestReader, snapshot: Snapshot) -> list[ManifestEntry]:
    """ADD and DELETE entries of one commit, in order."""
    return entries_of(source, delta_manifests(source, snapshot))


def changelog_entries(source: ManifestReader, snapshot: Snapshot) -> list[ManifestEntry]:
    """ADD entries of the changelog files of one commit; none when it has none."""
    return entries_of(source, changelog_manifests(source, snapshot))


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The live files of one snapshot, by bucket. Buckets without files are absent."""

    snapshot_id: int
    by_bucket: Mapping[BucketId, BucketFiles]

    def entries(self) -> Iterator[ManifestEntry]:
        """All live files."""
        for files in self.by_bucket.values():
            yield from files.values()

    def of_bucket(self, partition: bytes, bucket: int) -> list[ManifestEntry]:
        """Live files of one bucket."""
        return list(self.by_bucket.get((partition, bucket), {}).values())

    def files_of(self, partition: bytes, bucket: int) -> list[DataFileMeta]:
        """Live files of one bucket, without their place."""
        return [entry.file for entry in self.of_bucket(partition, bucket)]

    def partitions(self) -> frozenset[bytes]:
        """Partitions that have files."""
        return frozenset(partition for partition, _ in self.by_bucket)

    def after(
        self, snapshot_id: int, delta: Iterable[ManifestEntry], among: Collection[BucketId] | None = None
    ) -> LiveFiles:
        """The live files once a commit with these entries has followed; buckets it leaves alone are shared.

        With `among`, what happens to other buckets is left out.
        """
        by_bucket = dict(self.by_bucket)
        for bucket_id, entries in grouped_by_bucket(delta).items():
            if among is not None and bucket_id not in among:
                continue
            files = files_after(by_bucket.get(bucket_id, {}), entries)
            if files:
                by_bucket[bucket_id] = files
            else:
                by_bucket.pop(bucket_id, None)
        return LiveFiles(snapshot_id, MappingProxyType(by_bucket))


NO_FILES: Final = LiveFiles(0, MappingProxyType({}))
"""The table before its first snapshot."""


def grouped_by_bucket(entries: Iterable[ManifestEntry]) -> dict[BucketId, list[ManifestEntry]]:
    """Entries of each bucket, in their order."""
    by_bucket: dict[BucketId, list[ManifestEntry]] = {}
    for entry in entries:
        by_bucket.setdefault(entry.bucket_id, []).append(entry)
    return by_bucket


def files_by_bucket(live: Iterable[ManifestEntry]) -> dict[BucketId, BucketFiles]:
    """Live files of each bucket by their identity."""
    return {
        bucket_id: MappingProxyType({entry.identity: entry for entry in entries})
        for bucket_id, entries in grouped_by_bucket(live).items()
    }


def files_after(files: BucketFiles, delta: Sequence[ManifestEntry]) -> BucketFiles:
    """Live files of a bucket once a commit with these entries, all of the bucket, has followed."""
    changed = dict(files)
    changed |= {entry.identity: entry for entry in delta if entry.kind is EntryKind.ADD}
    for entry in delta:
        if entry.kind is EntryKind.DELETE:
            changed.pop(entry.identity, None)
    return MappingProxyType(changed)


def scan_live_files(store: ManifestStore, snapshot: Snapshot | None) -> LiveFiles:
    """Live files of a snapshot by a full scan."""
    if snapshot is None:
        return NO_FILES
    return LiveFiles(snapshot.id, MappingProxyType(files_by_bucket(live_entries(store, snapshot))))


@dataclass(frozen=True, slots=True)
class _CachedFiles:
    """What is in memory: the live files of `buckets`, or of all buckets where that is None, at a snapshot."""

    snapshot: Snapshot | None
    live: LiveFiles
    buckets: frozenset[BucketId] | None


class LiveFileIndex:
    """Live files for a process that looks at one snapshot after the other. May be shared by threads.

    A process that asks for single buckets of a large table holds those buckets only.
    """

    def __init__(self, snapshots: SnapshotStore, manifests: ManifestStore) -> None:
        self._snapshots = snapshots
        self._manifests = manifests
        self._lock = threading.Lock()
        self._cached = _CachedFiles(None, NO_FILES, None)

    def at(self, snapshot: Snapshot | None) -> LiveFiles:
        """All live files of a snapshot: a step from the newest one in memory where that is near, else a scan."""
        if snapshot is None:
            return NO_FILES
        cached = self._at(snapshot, needs_all=True)
        if cached is None:
            cached = self._newest(_CachedFiles(snapshot, scan_live_files(self._manifests, snapshot), None))
        return cached.live

    def of_buckets(self, snapshot: Snapshot | None, bucket_ids: Collection[BucketId]) -> LiveFiles:
        """Live files of (at least) these buckets at a snapshot."""
        if snapshot is None:
            return NO_FILES
        wanted = frozenset(bucket_ids)
        cached = self._at(snapshot, needs_all=False)
        if cached is None:
            if self._is_small(snapshot):
                return self.at(snapshot)
            cached = _CachedFiles(snapshot, LiveFiles(snapshot.id, MappingProxyType({})), frozenset())
        if cached.buckets is None or wanted <= cached.buckets:
            return self._remember(cached)
        return self._remember(self._with_buckets(cached, wanted, snapshot))

    def advance(self, parent: Snapshot | None, snapshot: Snapshot, delta: Iterable[ManifestEntry]) -> None:
        """Called by the committer of `snapshot` on top of `parent`, so that its delta need not be read back."""
        with self._lock:
            cached = self._cached
        if cached.snapshot is not None and cached.snapshot == parent:
            live = cached.live.after(snapshot.id, delta, cached.buckets)
            self._remember(_CachedFiles(snapshot, live, cached.buckets))

    def _at(self, snapshot: Snapshot, *, needs_all: bool) -> _CachedFiles | None:
        """What is in memory, brought to the snapshot; None when that is too far, or lacks buckets that are needed."""
        with self._lock:
            cached = self._cached
        if cached.snapshot is None or (needs_all and cached.buckets is not None):
            return None
        if cached.snapshot == snapshot:
            return cached
        stepped = self._stepped(cached.snapshot, cached, snapshot)
        return None if stepped is None else self._newest(stepped)

    def _stepped(self, start: Snapshot, cached: _CachedFiles, snapshot: Snapshot) -> _CachedFiles | None:
        if not start.id < snapshot.id <= start.id + STEPS_MAX:
            return None
        live = cached.live
        try:
            steps = [
                snapshot if snapshot_id == snapshot.id else self._snapshots.fresh(snapshot_id)
                for snapshot_id in range(start.id + 1, snapshot.id + 1)
            ]
            if not self._stands(start, steps[0]):  # the table was rolled back and has gone on since
                return None
            for step in steps:
                live = live.after(step.id, delta_entries(self._manifests, step), cached.buckets)
        except NotFoundError:
            return None  # a snapshot between has expired
        return _CachedFiles(snapshot, live, cached.buckets)

    def _stands(self, start: Snapshot, successor: Snapshot) -> bool:
        """True when the successor was built on the start: that is there unchanged, or expired and handed on as it was.

        With a retention of few snapshots the start is always gone. Then the base of the successor tells, unless
        manifests were merged: it is what base and delta of the start were.
        """
        try:
            return self._snapshots.fresh(start.id) == start
        except NotFoundError:
            return list(base_manifests(self._manifests, successor)) == data_manifests(self._manifests, start)

    def _with_buckets(self, cached: _CachedFiles, wanted: frozenset[BucketId], snapshot: Snapshot) -> _CachedFiles:
        """The same with buckets that were not in memory yet; all others go when there are too many files."""
        assert cached.buckets is not None
        is_full = sum(map(len, cached.live.by_bucket.values())) > FILES_MAX
        held = {} if is_full else dict(cached.live.by_bucket)
        missing = wanted if is_full else wanted - cached.buckets
        held |= files_by_bucket(live_entries(self._manifests, snapshot, bucket_ids=missing))
        live = LiveFiles(snapshot.id, MappingProxyType(held))
        return _CachedFiles(snapshot, live, missing if is_full else cached.buckets | missing)

    def _is_small(self, snapshot: Snapshot) -> bool:
        count = sum(
            manifest.num_added_files + manifest.num_deleted_files
            for manifest in data_manifests(self._manifests, snapshot)
        )
        return count <= SCANNED_WHOLE_MAX

    def _remember(self, cached: _CachedFiles) -> LiveFiles:
        with self._lock:
            newest = self._cached.snapshot
            assert cached.snapshot is not None
            if newest is None or cached.snapshot.id >= newest.id:
                self._cached = cached
        return cached.live

    def _newest(self, cached: _CachedFiles) -> _CachedFiles:
        self._remember(cached)
        return cached


def _may_hold_bucket(manifest: ManifestFileMeta, buckets: Collection[int] | None) -> bool:
    if buckets is None or manifest.min_bucket is None or manifest.max_bucket is None:
        return True
    return any(manifest.min_bucket <= bucket <= manifest.max_bucket for bucket in buckets)


def _of_partitions(entries: Iterable[ManifestEntry], test: PartitionTest) -> Iterator[ManifestEntry]:
    verdicts: dict[bytes, bool] = {}
    for entry in entries:
        verdict = verdicts.get(entry.partition)
        if verdict is None:
            verdict = verdicts[entry.partition] = test(entry.partition)
        if verdict:
            yield entry
