"""Takes away changelogs that were kept longer than their snapshots (`cleaning.expire` keeps them).

    start = max(latest snapshot - retain_max + 1, earliest copy)
    end   = min(latest snapshot - retain_min + 1, smallest next of a consumer, earliest copy + limit, latest copy)
    for id in [start, end]: if copy id is not older than the time retained: end = id, stop
    expire [earliest copy, end), nothing if end <= earliest copy

Where the options ask for no such copies any more, those that are there go: up to the smallest next of a consumer, as
many as the limit allows, the last one included, and before any snapshot expires, since a snapshot that follows them
shows which files they alone still named (`ChangelogExpiry.release`). Apache Paimon leaves them to a procedure.

With a copy go its changelog files and their manifests; of a copy without a changelog list (no changelog producer) the
files that its commit deleted, which were the changes of earlier copies, and its manifests. What a snapshot, tag, branch
or the first copy that stays names is kept. The copies go first, then what only they named: a crash leaves orphans.

Source: FORMAT.md §12, §12.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from freshet._frozen import Frozen
from freshet.storage.cleaning.expiry_plan import Retention, bounds
from freshet.storage.cleaning.named_files import (
    KeptSnapshot,
    MetadataNames,
    NamedIndex,
    ReadableManifests,
    data_paths,
    delete_data,
    delete_metadata,
    kept_refs,
    metadata_names,
    metadata_paths,
    not_deleted,
)
from freshet.storage.io.file_io import Deleted
from freshet.storage.metadata.live_files import changelog_entries, delta_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import EntryKind, ManifestEntry
from freshet.storage.model.snapshot import Snapshot


class Expired(Frozen):
    """Ids of the snapshots, or of the copies, that went, and what became of the files that only they named."""

    ids: tuple[int, ...] = ()
    data: tuple[Deleted, ...] = ()
    metadata: tuple[Deleted, ...] = ()

    @classmethod
    def planned(cls, ids: tuple[int, ...], data: Iterable[tuple[str, ...]], metadata: Iterable[str]) -> Expired:
        """What would go, of a dry run."""
        return cls(ids, (Deleted(sum(map(len, data))),), (Deleted(len(tuple(metadata))),))


def changelog_retention(store: TableStore, limit: int | None) -> Retention:
    """How much stays, by the options of the table: what is not set for changelogs is as for snapshots."""
    options = store.options
    retain_min = options.changelog_num_retained_min or options.snapshot_num_retained_min
    retain_max = options.changelog_num_retained_max or options.snapshot_num_retained_max
    time_ms = options.changelog_time_retained_ms
    return Retention(
        retain_min,
        max(retain_min, retain_max),
        options.snapshot_time_retained_ms if time_ms is None else time_ms,
        limit,
    )


def changelogs_end(
    retention: Retention,
    *,
    earliest: int,
    newest: int,
    latest: int,
    now_ms: int,
    consumer_next: int | None,
    time_of: Callable[[int], int | None],
) -> int:
    """End (exclusive) of the copies to expire; the earliest when none may go.

    `earliest` and `newest` are copies, `latest` is a snapshot; `time_of(id)` is the time of a copy, None without one.
    """
    start, end = bounds(retention, earliest=earliest, latest=latest, consumer_next=consumer_next)
    end = min(end, newest)
    if end <= earliest:
        return earliest
    for snapshot_id in range(start, end + 1):
        time_ms = time_of(snapshot_id)
        if time_ms is not None and time_ms >= now_ms - retention.time_retained_ms:
            return snapshot_id
    return end


class ChangelogExpiry:
    """Rounds of one table; a dry run only counts."""

    def __init__(
        self,
        store: TableStore,
        index: NamedIndex,
        consumer_next: Callable[[], int | None],
        *,
        is_dry_run: bool = False,
    ) -> None:
        """`consumer_next`: the oldest snapshot that some consumer wants, which costs requests."""
        self._store = store
        self._index = index
        self._consumer_next = consumer_next
        self._is_dry_run = is_dry_run

    def expire(self, retention: Retention, latest: Snapshot) -> Expired:
        """One round; `latest` is the newest snapshot."""
        store = self._store
        ids = store.changelogs.list_ids()
        earliest_snapshot = store.snapshots.earliest()
        if not ids or earliest_snapshot is None:
            return Expired()
        copy_of = cache(store.changelogs.find)
        end = changelogs_end(
            retention,
            earliest=ids[0],
            newest=min(ids[-1], earliest_snapshot.id),
            latest=latest.id,
            now_ms=store.env.now_ms(),
            consumer_next=self._consumer_next(),
            time_of=lambda snapshot_id: None if (copy := copy_of(snapshot_id)) is None else copy.time_ms,
        )
        return self._expire(ids, end, earliest_snapshot, latest)

    def release(self, ids: list[int], limit: int | None, latest: Snapshot) -> Expired:
        """One round in a table whose options keep no changelogs; `ids` are the copies that it has nevertheless."""
        earliest_snapshot = self._store.snapshots.earliest() if ids else None
        if earliest_snapshot is None:
            return Expired()
        end = earliest_snapshot.id if limit is None else min(earliest_snapshot.id, ids[0] + limit)
        consumer_next = self._consumer_next()
        if consumer_next is not None:
            end = min(end, consumer_next)
        return self._expire(ids, end, earliest_snapshot, latest)

    def _expire(self, ids: list[int], end: int, earliest_snapshot: Snapshot, latest: Snapshot) -> Expired:
        """Takes away the copies before `end`, which is a copy that stays, or the first snapshot."""
        store, index = self._store, self._index
        found = (store.changelogs.find(snapshot_id) for snapshot_id in ids if snapshot_id < end)
        expired = [copy for copy in found if copy is not None]
        is_last = end == earliest_snapshot.id
        first_kept = earliest_snapshot if is_last else store.changelogs.find(end)
        if not expired or first_kept is None:
            return Expired()
        partial = ReadableManifests(store.manifests)
        kept: list[KeptSnapshot] = [(store.manifests, earliest_snapshot), (store.manifests, latest), *kept_refs(store)]
        follower = earliest_snapshot if is_last else None
        data = data_paths(store, _doomed_files(partial, index, expired, follower, [*kept, (partial, first_kept)]))
        metadata = metadata_paths(store, _doomed_manifests(partial, expired, [*kept, (partial, first_kept)]))
        expired_ids = tuple(copy.id for copy in expired)
        if self._is_dry_run:
            return Expired.planned(expired_ids, data, metadata)
        gone = store.removal.delete_all([store.paths.changelog(copy_id) for copy_id in expired_ids], in_turn=True)
        if gone.failed_count:
            raise not_deleted(f"changelogs {expired_ids[0]} to {expired_ids[-1]}", gone, store.paths.changelog_folder)
        if is_last and ids[-1] < end:
            store.changelogs.remove_hints()
        else:
            store.changelogs.write_earliest_hint(end)
        return Expired(expired_ids, tuple(delete_data(store, data)), tuple(delete_metadata(store, metadata)))


def _doomed_files(
    source: ReadableManifests,
    index: NamedIndex,
    expired: list[Snapshot],
    follower: Snapshot | None,
    kept: list[KeptSnapshot],
) -> list[ManifestEntry]:
    """`follower` is the snapshot right after the copies, if all of them go: what it deleted is found by no other."""
    lists = {snapshot.changelog_manifest_list for _, snapshot in kept}
    logged: list[ManifestEntry] = []
    deleted: dict[str, ManifestEntry] = {}
    for copy in expired if follower is None else [*expired, follower]:
        name = copy.changelog_manifest_list
        if name is not None and copy is not follower:
            logged += changelog_entries(source, copy) if name not in lists else ()
            continue
        delta = delta_entries(source, copy)
        added = {entry.file.file_name for entry in delta if entry.kind is EntryKind.ADD}
        deleted.update(
            (e.file.file_name, e) for e in delta if e.kind is EntryKind.DELETE and e.file.file_name not in added
        )
    named = index.live_among(kept, list(deleted.values())) if deleted else set()
    return [*logged, *(entry for name, entry in deleted.items() if name not in named)]


def _doomed_manifests(source: ReadableManifests, expired: list[Snapshot], kept: list[KeptSnapshot]) -> MetadataNames:
    """Index files and statistics went with the snapshot."""
    names: set[str] = set()
    for copy in expired:
        for name, size in copy.manifest_lists:
            names |= {name, *(meta.file_name for meta in source.read_manifest_list(name, size))}
    for kept_source, snapshot in kept:
        names -= metadata_names(kept_source, snapshot).manifests
    return MetadataNames(frozenset(names), frozenset(), frozenset())
