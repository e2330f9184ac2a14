"""The part of a change that fits on the latest snapshot: `conflict` and `index_changes` with what they look at."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.commit.conflict import Conflict, bucket_count_conflicts, find_conflicts, looks_up
from freshet.storage.commit.index_changes import find_index_conflicts, next_index
from freshet.storage.commit.manifest_index import ManifestIndex
from freshet.storage.exceptions import MisfitError
from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.merge.overlaps import overlap_error
from freshet.storage.metadata.live_files import NO_FILES, LiveFiles, live_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import BucketId, EntryKind, IndexEntry, ManifestEntry, ManifestFileMeta
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.choices import UNAWARE_BUCKET
from freshet.storage.paths import POSTPONE_BUCKET


class ChangeFit:
    """Of changes to one table."""

    def __init__(self, store: TableStore, index: ManifestIndex) -> None:
        self._store = store
        self._index = index
        self._sort_key = KeyComparator(store.key_types).sort_key if store.schema.has_primary_key else None
        self._looks_up = looks_up(store.options)

    def part(
        self,
        change: SnapshotChange,
        latest: Snapshot | None,
        manifests: list[ManifestFileMeta],
        outnumbered: Collection[BucketId] = (),
    ) -> tuple[SnapshotChange, tuple[Conflict, ...]]:
        """The part of the change that fits on the snapshot of these manifests, and what keeps the rest from fitting.

        Of a compaction, buckets in conflict are left out, and those `outnumbered`: others have committed rows there as
        new as its own. Rows that waited for their buckets go to all buckets of a partition or to none, and changes of
        keys that move between partitions are emitted of all buckets or of none (`compact.joint_changes`). A conflict of
        any other change raises.
        """
        counts = self._bucket_counts(change, latest, manifests)
        live = self._live(change, latest)
        conflicts = find_conflicts(
            change,
            live.by_bucket,
            bucket_counts=counts,
            sort_key=self._sort_key,
            looks_up=self._looks_up,
            numbers_repeat=self._store.options.sequence_snapshot_ordering,
        )
        has_buckets = self._store.options.bucket != UNAWARE_BUCKET or self._store.schema.has_primary_key
        conflicts += find_index_conflicts(change, self._index_of(latest), live.by_bucket, has_buckets=has_buckets)
        if change.kind is CommitKind.COMPACT:
            conflicts += [Conflict(*bucket, "others have committed rows to it meanwhile") for bucket in outnumbered]
        if not conflicts:
            return change, ()
        self._refuse_damaged(conflicts)
        if change.kind is CommitKind.COMPACT:
            losers = frozenset(conflict.bucket_id for conflict in conflicts)
            if self._store.moves_rows and change.changelog_entries:
                conflicts += [
                    Conflict(*bucket, "another bucket has a conflict, and keys move between the two")
                    for bucket in sorted(change.buckets - losers)
                ]
            for bucket in sorted(_with_their_partition(change, losers) - losers):
                conflicts.append(Conflict(*bucket, "another bucket of the partition has a conflict"))
            return change.without(frozenset(conflict.bucket_id for conflict in conflicts)), tuple(conflicts)
        reasons = "; ".join(f"bucket {conflict.bucket}: {conflict.reason}" for conflict in conflicts[:5])
        raise MisfitError(
            f"table {self._store.location}: the change does not fit on the table as it is now ({reasons}); "
            "nothing was committed, read the table again and repeat the change"
        )

    def _bucket_counts(
        self, change: SnapshotChange, latest: Snapshot | None, manifests: list[ManifestFileMeta]
    ) -> dict[bytes, int]:
        """Of partitions that the change adds files to: the number of buckets that the files it leaves there say."""
        counted = {entry.partition for entry in change.entries if entry.total_buckets > 0}
        if change.kind is CommitKind.OVERWRITE:
            counted = {entry.partition for entry in change.entries if entry.kind is EntryKind.ADD} & counted
            deleted = {entry.identity for entry in change.entries if entry.kind is EntryKind.DELETE}
            return {
                each.partition: each.total_buckets
                for each in self._entries(latest, counted)
                if each.identity not in deleted
            }
        counts = self._index.newest_bucket_counts(manifests, counted) if counted else {}
        if bucket_count_conflicts(change, counts):
            counts = {each.partition: each.total_buckets for each in self._entries(latest, counted)}
        return counts

    def _entries(self, latest: Snapshot | None, partitions: Collection[bytes]) -> list[ManifestEntry]:
        return live_entries(self._store.manifests, latest, partition=partitions.__contains__) if partitions else []

    def _refuse_damaged(self, conflicts: Sequence[Conflict]) -> None:
        for conflict in conflicts:
            if conflict.is_damage:
                raise overlap_error(self._store.bucket_folder(*conflict.bucket_id), conflict.reason)

    def _live(self, change: SnapshotChange, latest: Snapshot | None) -> LiveFiles:
        """Live files of the touched buckets; none for a plain append, which cannot conflict with any."""
        if change.kind is CommitKind.APPEND:
            return NO_FILES
        return self._store.live.of_buckets(latest, change.buckets | change.lookups.keys())

    def _index_of(self, latest: Snapshot | None) -> tuple[IndexEntry, ...]:
        return () if latest is None else self._store.manifests.read_index_manifest(latest.index_manifest)

    def next_index(self, change: SnapshotChange, latest: Snapshot | None) -> str | list[IndexEntry] | None:
        """The name of the latest index manifest where it stays true, else the index files of the next one."""
        index = self._index_of(latest)
        if not index and not change.index_entries:
            return None
        following = next_index(change, index, self._live(change, latest).by_bucket)
        return latest.index_manifest if latest is not None and following == list(index) else following


def _with_their_partition(change: SnapshotChange, losers: Collection[BucketId]) -> frozenset[BucketId]:
    """All buckets of the partitions from which rows that waited are taken, where one of them loses."""
    whole = {entry.partition for entry in change.entries if entry.bucket == POSTPONE_BUCKET}
    lost = {partition for partition, _ in losers} & whole
    return frozenset(bucket for bucket in change.buckets if bucket[0] in lost)
