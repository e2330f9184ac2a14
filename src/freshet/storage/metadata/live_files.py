"""Which files are live at a snapshot: all of them, those of some partitions and buckets, or what one commit changed.

    live(S)  = ADD entries of base(S) and delta(S) whose identity is in no DELETE entry there
    live(S') = (live(S) - DELETEs of delta(S')) + ADDs of delta(S') that it does not delete, for S' the next snapshot

The second line is what a long-lived process uses (`LiveFileIndex`): the cost is that of the changes, not of the table.
An ADD and its DELETE agree in partition and bucket, so both may be pruned by them; they may not be pruned by level or
by statistics of values.

Source: FORMAT.md §3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Final, Protocol

from freshet._frozen import Frozen
from freshet.storage.metadata.manifest_store import ManifestStore
from freshet.storage.model.data_file import DataFileMeta, SimpleStats
from freshet.storage.model.manifest import BucketId, EntryKind, FileIdentity, ManifestEntry, ManifestFileMeta
from freshet.storage.model.snapshot import Snapshot

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
        for manifest in data_manifests_at_once(store, snapshot)
        if _may_hold_bucket(manifest, allowed)
        and (partition_stats is None or partition_stats(manifest.partition_stats))
        and (partitions is None or store.may_hold(manifest, partitions))
    ]
    with store.ahead(manifests):
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
    """The ADD entries whose identity no DELETE entry has, in their order; a DELETE may come before its ADD."""
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


def data_manifests_at_once(store: ManifestStore, snapshot: Snapshot) -> list[ManifestFileMeta]:
    """The same, with both lists requested at the same time where each is a request to a store."""
    base = snapshot.base_manifest_list, snapshot.base_manifest_list_size
    delta = snapshot.delta_manifest_list, snapshot.delta_manifest_list_size
    with store.lists_ahead((base, delta)):
        return data_manifests(store, snapshot)


def delta_manifests_at_once(store: ManifestStore, snapshots: Sequence[Snapshot]) -> list[tuple[ManifestFileMeta, ...]]:
    """Manifests of what each commit changed, with all lists requested at the same time."""
    with store.lists_ahead((each.delta_manifest_list, each.delta_manifest_list_size) for each in snapshots):
        return [delta_manifests(store, each) for each in snapshots]


def deltas_at_once(store: ManifestStore, snapshots: Sequence[Snapshot]) -> list[list[ManifestEntry]]:
    """ADD and DELETE entries of each commit; all lists are requested at the same time, then all manifests."""
    deltas = delta_manifests_at_once(store, snapshots)
    with store.ahead(meta for metas in deltas for meta in metas):
        return [entries_of(store, metas) for metas in deltas]


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


class LiveFiles(Frozen):
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
