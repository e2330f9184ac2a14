"""Takes away old snapshots, and the files that only they name.

A round plans first, then deletes in this order:

1. snapshot files, oldest first, and the EARLIEST hint: from here on nobody can ask for what follows;
2. data files that the deltas of (begin, end] deleted, and changelog files of [begin, end);
3. bucket and partition folders that became empty (`snapshot.clean-empty-directories`);
4. manifests, lists, index files and statistics that only expired snapshots name.

So a snapshot that can be seen can be read, and a crash leaves nothing but orphans. Kept is whatever is named by the
first snapshot that stays, by the latest, by any tag, by any snapshot or tag of any branch, by a changelog that was
kept apart from its snapshot, or was added again by a later overwrite (a rollback). If a snapshot of the main line or
a tag cannot be read, nothing is deleted at all; of branches and changelogs, which other programs do not keep whole,
what can be read is kept. The deltas of the first expired snapshot belong to history that expired earlier.

Source: table format §12, §12.1 (there snapshot files go last).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from freshet.storage.commit.changes import Bucket
from freshet.storage.commit.manifest_index import index_of
from freshet.storage.commit.named_files import (
    KeptSnapshot,
    ManifestSource,
    ReadableManifests,
    kept_outside_main,
    metadata_names,
)
from freshet.storage.commit.retention import Retention, check_whole, expire_end
from freshet.storage.exceptions import NotFoundError, StorageError, UnsupportedFeatureError
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import EntryKind, ManifestEntry
from freshet.storage.model.snapshot import CommitKind, Snapshot


@dataclass(frozen=True, slots=True)
class ExpireResult:
    """Ids that expired, and how many files went with them (or failed to)."""

    snapshot_ids: tuple[int, ...] = ()
    data_file_count: int = 0
    metadata_file_count: int = 0
    failed_delete_count: int = 0


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """What one round deletes, as paths, in the order of the module."""

    snapshot_ids: tuple[int, ...]
    end: int
    data_paths: tuple[str, ...]
    buckets: frozenset[Bucket]
    metadata_paths: tuple[str, ...]


def expire_snapshots(
    store: TableStore,
    *,
    retain_max: int | None = None,
    retain_min: int | None = None,
    time_retained_ms: int | None = None,
    limit: int | None = None,
) -> ExpireResult:
    """Expires what the arguments allow; those left out come from the options of the table, the limit is unbounded.

    `time_retained_ms` is an age: snapshots whose successor is younger stay, unless there are more than `retain_max`.
    """
    check_whole(retain_max, retain_min, time_retained_ms, limit)
    options = store.options
    if retain_min is None:
        retain_min = options.snapshot_num_retained_min
        if retain_max is not None:
            retain_min = min(retain_min, retain_max)
    if retain_max is None:
        retain_max = options.snapshot_num_retained_max
        if retain_max is not None:
            retain_max = max(retain_max, retain_min)
    if time_retained_ms is None:
        time_retained_ms = options.snapshot_time_retained_ms
    retention = Retention(retain_min, retain_max, time_retained_ms, limit)
    return _Expiry(store).run(retention)


def expire_after_commit(store: TableStore) -> int:
    """The bounded round after a commit, by the options of the table; the number of snapshots that expired."""
    options = store.options
    if options.changelog_is_decoupled:
        return 0
    retention = Retention(
        options.snapshot_num_retained_min,
        options.snapshot_num_retained_max,
        options.snapshot_time_retained_ms,
        options.snapshot_expire_limit,
    )
    return len(_Expiry(store).run(retention).snapshot_ids)


class _Expiry:
    """One round."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._index = index_of(store.manifests)
        # What expires may have lost files to an earlier round that was interrupted.
        self._partial = ReadableManifests(store.manifests)

    def run(self, retention: Retention) -> ExpireResult:
        store = self._store
        if store.options.changelog_is_decoupled:
            raise UnsupportedFeatureError(
                f"table {store.paths.location}: changelogs are to be kept longer than snapshots (changelog.*); "
                "this version cannot expire such a table, let Apache Paimon do it"
            )
        latest = store.snapshots.latest()
        earliest = store.snapshots.earliest()
        if latest is None or earliest is None:
            return ExpireResult()
        end = expire_end(
            retention,
            earliest=earliest.id,
            latest=latest.id,
            now_ms=store.env.now_ms(),
            consumer_next=self._consumer_next(),
            time_of=self._time_of,
        )
        if end <= earliest.id:
            if not store.env.file_io.exists(store.paths.earliest_hint):
                store.snapshots.write_earliest_hint(earliest.id)
            return ExpireResult()
        plan = self._plan(earliest.id, end, latest)
        if plan is None:
            return ExpireResult()
        store.env.reach(CrashPoint.EXPIRE_PLANNED)
        return self._carry_out(plan)

    def _consumer_next(self) -> int | None:
        return None if self._store.options.consumer_changelog_only else self._store.snapshots.min_consumer_next()

    def _time_of(self, snapshot_id: int) -> int | None:
        snapshot = self._find(snapshot_id)
        return None if snapshot is None else snapshot.time_ms

    def _find(self, snapshot_id: int) -> Snapshot | None:
        try:
            return self._store.snapshots.snapshot(snapshot_id)
        except NotFoundError:
            return None

    # ---------------------------------------------------------------------------------------------------- planning

    def _plan(self, earliest: int, end: int, latest: Snapshot) -> ExpiryPlan | None:
        """None when another process has taken the end of the range away already."""
        found = [snapshot for snapshot in map(self._find, range(earliest, end + 1)) if snapshot is not None]
        if not found or found[-1].id != end:
            return None
        expired, first_kept = found[:-1], found[-1]
        manifests = self._store.manifests
        kept = [(manifests, first_kept), (manifests, latest), *kept_outside_main(self._store)]
        data = self._without_named(self._deleted_files(found[1:]), kept, first_kept.id, latest.id)
        data += self._changelog_files(expired, kept)
        return ExpiryPlan(
            snapshot_ids=tuple(snapshot.id for snapshot in expired),
            end=end,
            data_paths=tuple(dict.fromkeys(path for entry in data for path in self._paths(entry))),
            buckets=frozenset((entry.partition, entry.bucket) for entry in data),
            metadata_paths=self._unnamed_metadata(expired, kept),
        )

    def _deleted_files(self, snapshots: Iterable[Snapshot]) -> list[ManifestEntry]:
        """DELETE entries whose file is not added again in the same delta (a change of level)."""
        doomed: list[ManifestEntry] = []
        for snapshot in snapshots:
            delta = _delta(self._partial, snapshot)
            added = {entry.file.file_name for entry in delta if entry.kind is EntryKind.ADD}
            doomed += [entry for entry in delta if entry.kind is EntryKind.DELETE and entry.file.file_name not in added]
        return doomed

    def _without_named(
        self, doomed: list[ManifestEntry], kept: list[KeptSnapshot], first_kept: int, latest: int
    ) -> list[ManifestEntry]:
        """The doomed files that no snapshot of `kept`, and no overwrite after the first kept one, names."""
        if not doomed:
            return []
        names = {entry.file.file_name for entry in doomed}
        named: set[str] = set()
        for snapshot in kept:
            named |= self._index.live_among(snapshot, names)
        for later in map(self._find, range(first_kept + 1, latest)):
            if later is not None and later.commit_kind is CommitKind.OVERWRITE:
                delta = _delta(self._partial, later)
                named |= {entry.file.file_name for entry in delta if entry.kind is EntryKind.ADD}
        return [entry for entry in doomed if entry.file.file_name not in named]

    def _changelog_files(self, expired: list[Snapshot], kept: list[KeptSnapshot]) -> list[ManifestEntry]:
        """Changelog files of expired snapshots that no snapshot of `kept` names."""
        named = {entry.file.file_name for source, snapshot in kept for entry in _changelog(source, snapshot)}
        return [
            entry
            for snapshot in expired
            for entry in _changelog(self._partial, snapshot)
            if entry.file.file_name not in named
        ]

    def _unnamed_metadata(self, expired: list[Snapshot], kept: list[KeptSnapshot]) -> tuple[str, ...]:
        named: set[str] = set()
        for source, snapshot in kept:
            named |= metadata_names(source, snapshot).all
        paths = self._store.paths
        doomed: dict[str, None] = {}
        for snapshot in expired:
            names = metadata_names(self._partial, snapshot)
            doomed |= dict.fromkeys(paths.index_file(name) for name in names.index_files - named)
            doomed |= dict.fromkeys(paths.statistics(name) for name in names.statistics - named)
            doomed |= dict.fromkeys(paths.manifest(name) for name in sorted(names.manifests - named))
        return tuple(doomed)

    def _paths(self, entry: ManifestEntry) -> list[str]:
        """The file and its side-cars."""
        paths = self._store.paths
        folder = self._store.partition_path(entry.partition)
        file = entry.file
        return [
            paths.data_file(folder, entry.bucket, file.file_name, file.external_path),
            *(paths.extra_file(folder, entry.bucket, name, file.external_path) for name in file.extra_files),
        ]

    # ---------------------------------------------------------------------------------------------------- deleting

    def _carry_out(self, plan: ExpiryPlan) -> ExpireResult:
        store = self._store
        for snapshot_id in plan.snapshot_ids:
            store.env.file_io.delete(store.paths.snapshot(snapshot_id))
            store.snapshots.forget(snapshot_id)
        store.snapshots.write_earliest_hint(plan.end)
        store.env.reach(CrashPoint.EXPIRE_SNAPSHOTS_REMOVED)
        result = ExpireResult(plan.snapshot_ids)
        deleted, failed = self._delete(plan.data_paths)
        result = replace(result, data_file_count=deleted, failed_delete_count=failed)
        store.env.reach(CrashPoint.EXPIRE_DATA_REMOVED)
        if store.options.snapshot_clean_empty_directories:
            self._delete_empty_folders(plan.buckets)
        deleted, failed = self._delete(plan.metadata_paths)
        return replace(result, metadata_file_count=deleted, failed_delete_count=result.failed_delete_count + failed)

    def _delete(self, paths: Iterable[str]) -> tuple[int, int]:
        """Best effort: what cannot be deleted is an orphan. Returns deleted and failed."""
        deleted = failed = 0
        for path in paths:
            try:
                deleted += self._store.env.file_io.delete(path)
            except StorageError:
                failed += 1
        return deleted, failed

    def _delete_empty_folders(self, buckets: frozenset[Bucket]) -> None:
        file_io, paths = self._store.env.file_io, self._store.paths
        for partition, bucket in sorted(buckets):
            folder = self._store.partition_path(partition)
            try:
                gone = file_io.delete_folder_if_empty(paths.bucket_folder(folder, bucket))
                while gone and folder:
                    gone = file_io.delete_folder_if_empty(paths.partition_folder(folder))
                    folder = folder.rpartition("/")[0]
            except StorageError:
                return


def _delta(source: ManifestSource, snapshot: Snapshot) -> list[ManifestEntry]:
    return _entries(source, snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)


def _changelog(source: ManifestSource, snapshot: Snapshot) -> list[ManifestEntry]:
    if snapshot.changelog_manifest_list is None:
        return []
    return _entries(source, snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size)


def _entries(source: ManifestSource, name: str, size: int | None) -> list[ManifestEntry]:
    return [entry for meta in source.read_manifest_list(name, size) for entry in source.read_manifest(meta)]
