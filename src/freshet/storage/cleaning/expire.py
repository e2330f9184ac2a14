"""Takes away old snapshots, and the files that only they name.

A round plans first, then deletes in this order:

1. copies of the snapshots whose changelog stays; snapshot files, oldest first, and the EARLIEST hint: from here on
   no reader can ask for what follows;
2. data files that the deltas of (begin, end] deleted, and changelog files of [begin, end), bucket by bucket, with the
   folders that became empty (`snapshot.clean-empty-directories`);
3. manifests, lists, index files and statistics that only expired snapshots name.

Between 1 and 2 the tags are looked at again: whoever makes a tag looks for its snapshot afterwards (`tags.creation`).
So either sees the other, and what a tag names that came meanwhile stays. After them the other lines are: a branch may
have been made of such a tag, and the tag be gone.

Each folder is one request. A round after a commit costs a process that has made one before seven calls to see what is
kept, one for the hint, and the deletions.

So a snapshot that can be seen can be read, and a crash leaves nothing but orphans. Kept is whatever is named by the
first snapshot that stays, by the latest, by any tag, by any snapshot, tag or changelog of another line (of a table its
branches, of a branch the table and its other branches), by a changelog that was kept apart from its snapshot, or was
added again by a later overwrite (a rollback). If a snapshot of the line that expires or a tag of it cannot be read,
nothing is deleted at all; of other lines and changelogs, which other programs do not keep whole, what can be read is
kept. The DELETEs of the first expired snapshot belong to history that expired earlier.

The deltas show for the most part which files are still named, without opening the manifests of 500 tags: a file that
was deleted by snapshot d is live in no later snapshot unless a later delta adds it again, and a file that was added by
snapshot a is live in no earlier one, unless a changed its level or is an overwrite, which may bring it back. So only
tags of [a, d) are asked, without such an a all before d, and everything of the other lines.

**Changelogs that outlive their snapshots** (`changelog.num-retained.*`, `changelog.time-retained`): before a snapshot
file goes its copy is written to changelog/, and what its changes need stays: changelog files with their manifests; of a
table without a changelog producer the data files that appends wrote, and all manifests. `expire_changelogs` takes them
away when their time has come, and when the options do not ask for them any more: then, of the rounds after commits,
those that let snapshots expire look for them.

Source: FORMAT.md §12, §12.1 (there snapshot files go last).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from freshet.storage.cleaning.expire_changelogs import (
    Expired,
    changelog_retention,
    expire_changelogs,
    release_changelogs,
)
from freshet.storage.cleaning.named_files import (
    KeptSnapshot,
    MetadataNames,
    ReadableManifests,
    data_paths,
    delete_data,
    delete_metadata,
    kept_outside_main,
    kept_refs,
    metadata_paths,
    named_lately,
    not_deleted,
    without_names,
)
from freshet.storage.cleaning.named_index import named_index_of
from freshet.storage.cleaning.partition_expiry import expire_partitions_after_commit
from freshet.storage.cleaning.retention import Retention, check_whole, expire_end
from freshet.storage.exceptions import MissingFileError, NotFoundError, StorageError
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata.live_files import changelog_entries, changelog_manifests, delta_entries, delta_manifests
from freshet.storage.metadata.manifest_store import READ_WHOLE_MAX
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import FileSource
from freshet.storage.model.manifest import EntryKind, ManifestEntry
from freshet.storage.model.shown import Facts, Shown, ids_text
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.choices import ChangelogProducer

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, repr=False)
class ExpireResult(Shown):
    """Ids that expired, and how many files went with them (or failed to)."""

    snapshot_ids: tuple[int, ...] = ()
    data_file_count: int = 0
    metadata_file_count: int = 0
    failed_delete_count: int = 0
    changelog_ids: tuple[int, ...] = ()
    """Changelogs that had outlived their snapshots and expired now."""
    held_by: tuple[tuple[str, int], ...] = ()
    """Consumers without which more snapshots would have expired, each with the one it wants next; the oldest first.
    Known of expiry that was asked for, not of that after commits."""

    def _shown(self) -> Facts:
        yield from (("snapshots", ids_text(self.snapshot_ids) or "none"), ("data files", self.data_file_count))
        yield from (("metadata files", self.metadata_file_count), ("not deleted", self.failed_delete_count))
        yield ("changelogs", ids_text(self.changelog_ids))
        yield ("held back by", ", ".join(f"consumer {name!r} at snapshot {wanted}" for name, wanted in self.held_by))


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """What one round deletes, as paths, in the order of the module."""

    snapshot_ids: tuple[int, ...]
    end: int
    copies: tuple[Snapshot, ...]
    """Snapshots whose changelog is kept."""
    data_paths: tuple[tuple[str, ...], ...]
    """Those of one bucket together."""
    metadata_paths: tuple[str, ...]
    outside: tuple[Snapshot, ...]
    """What was kept outside of the main line when this was planned."""


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
    store.claims.check_writable()
    store.check_is_there()
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


def expire_after_commit(store: TableStore, latest: Snapshot) -> ExpireResult:
    """The bounded round after a commit, by the options of the table; `latest` is the snapshot of that commit."""
    options = store.options
    retention = Retention(
        options.snapshot_num_retained_min,
        options.snapshot_num_retained_max,
        options.snapshot_time_retained_ms,
        options.snapshot_expire_limit,
    )
    return _Expiry(store).run(retention, latest)


def expire_later(
    store: TableStore, latest: Snapshot, before: Callable[[TableStore, Snapshot], object] | None = None
) -> None:
    """Expires partitions, then snapshots, in the background, not where the table is write-only, and with `bucket=-2`
    only after compactions. Failures are logged: the commit is there. `before` is done before; where it fails nothing
    expires."""
    is_compaction = latest.commit_kind is CommitKind.COMPACT
    if store.options.write_only or (store.options.has_postponed_buckets and not is_compaction):
        return

    def expire() -> None:
        try:
            if before is not None:
                before(store, latest)
            expire_after_commit(store, expire_partitions_after_commit(store, latest))
        except StorageError as error:
            _LOG.warning("table %s: snapshots were not expired: %s", store.location, error)

    store.env.run_later(store.location, expire)


class _Expiry:
    """One round."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._index = named_index_of(store.manifests)
        # What expires may have lost files to an earlier round that was interrupted.
        self._partial = ReadableManifests(store.manifests)
        self._has_copies = True
        """Whether there may be changelogs that were kept, of a table whose options keep none."""

    def run(self, retention: Retention, latest: Snapshot | None = None) -> ExpireResult:
        """One round, planned again where tags or snapshots that it looked at were removed meanwhile."""
        seen = None
        while True:
            try:
                return self._run_once(retention, latest)
            except (NotFoundError, MissingFileError):
                there = self._store.snapshots.earliest_id(), self._store.snapshots.tags.all()
                if there == seen:
                    raise
                seen = there

    def _run_once(self, retention: Retention, latest: Snapshot | None) -> ExpireResult:
        store, is_asked = self._store, latest is None
        if store.options.consumer_expiration_time_ms is not None:
            store.consumers.expire(store.options.consumer_expiration_time_ms)
        latest = latest or store.snapshots.latest()
        earliest = store.snapshots.earliest()
        if latest is None or earliest is None:
            return ExpireResult()
        consumer_next = self._consumer_next()
        end = self._end(retention, earliest, latest, consumer_next)
        held_by = self._holders(end, self._end(retention, earliest, latest, None)) if is_asked else ()
        gone = Expired()
        if not self._keeps_changelogs and (is_asked or end > earliest.id):
            copies = store.changelogs.list_ids()
            gone = release_changelogs(store, self._index, copies, retention.limit, latest)
            self._has_copies = len(gone.ids) < len(copies)
        expired = self._expire_snapshots(earliest, end, latest)
        if self._keeps_changelogs:
            gone = expire_changelogs(store, self._index, changelog_retention(store, retention.limit), latest)
        data, metadata = (*expired.data, *gone.data), (*expired.metadata, *gone.metadata)
        return ExpireResult(
            expired.ids,
            data_file_count=sum(each.deleted_count for each in data),
            metadata_file_count=sum(each.deleted_count for each in metadata),
            failed_delete_count=sum(each.failed_count for each in (*data, *metadata)),
            changelog_ids=gone.ids,
            held_by=held_by,
        )

    @property
    def _keeps_changelogs(self) -> bool:
        return self._store.options.changelog_is_decoupled

    @property
    def _changes_are_data_files(self) -> bool:
        """Whether a changelog that is kept consists of the data files that commits added."""
        return self._store.options.changelog_producer is ChangelogProducer.NONE

    def _end(self, retention: Retention, earliest: Snapshot, latest: Snapshot, consumer_next: int | None) -> int:
        return expire_end(
            retention,
            earliest=earliest.id,
            latest=latest.id,
            now_ms=self._store.env.now_ms(),
            consumer_next=consumer_next,
            time_of=self._time_of,
        )

    def _expire_snapshots(self, earliest: Snapshot, end: int, latest: Snapshot) -> Expired:
        store = self._store
        if end <= earliest.id:
            if not store.env.file_io.exists(store.paths.earliest_hint):
                store.snapshots.write_earliest_hint(earliest.id)
            return Expired()
        plan = self._plan(earliest.id, end, latest)
        if plan is None:
            return Expired()
        store.env.reach(CrashPoint.EXPIRE_PLANNED)
        return self._run(plan)

    def _consumer_next(self) -> int | None:
        options = self._store.options
        wanted = None if options.consumer_changelog_only else self._store.consumers.min_next()
        # What an overwrite took away is read of the state before it.
        return wanted - 1 if wanted is not None and options.streaming_read_overwrite else wanted

    def _holders(self, end: int, free_end: int) -> tuple[tuple[str, int], ...]:
        """Consumers that want something of what would have expired without them."""
        if end >= free_end:
            return ()
        before = 1 if self._store.options.streaming_read_overwrite else 0
        wanted = sorted((next_id, name) for name, next_id in self._store.consumers.positions().items())
        return tuple((name, next_id) for next_id, name in wanted if next_id - before < free_end)

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
        """None when another process has taken the end of the range away already. What lies below a gap is not of the
        history any more."""
        down = takewhile(lambda snapshot: snapshot is not None, map(self._find, range(end, earliest - 1, -1)))
        found = [snapshot for snapshot in down if snapshot is not None][::-1]
        if len(found) <= end - earliest:
            self._remove_late_claims(found[0].id if found else end)
        if not found:
            return None
        expired, first_kept = found[:-1], found[-1]
        doomed = self._deleted_files(found, latest.id)
        if self._keeps_changelogs:
            # What copies of snapshots need is not touched here, so that they need not be read.
            outside = kept_refs(self._store)
            if self._changes_are_data_files:
                doomed = [item for item in doomed if item.entry.file.file_source is FileSource.COMPACT]
            data = self._without_named(doomed, outside)
        else:
            outside = kept_outside_main(self._store) if self._has_copies else kept_refs(self._store)
            data = self._without_named(doomed, outside)
            data += self._changelog_files(expired, [first_kept, latest, *(snapshot for _, snapshot in outside)])
        main = [(self._store.manifests, first_kept), (self._store.manifests, latest)]
        return ExpiryPlan(
            snapshot_ids=tuple(snapshot.id for snapshot in expired),
            end=end,
            copies=tuple(expired) if self._keeps_changelogs else (),
            data_paths=data_paths(self._store, data),
            metadata_paths=self._unnamed_metadata(expired, [*main, *outside]),
            outside=tuple(snapshot for _, snapshot in outside),
        )

    def _remove_late_claims(self, end: int) -> None:
        """Removes the snapshots below `end`, which are below a gap: claims that came too late (`commit.claim`) and were
        not yet taken back, or never. The files that they name may be committed again, so nothing else goes."""
        store = self._store
        late = [snapshot_id for snapshot_id in store.snapshots.list_ids() if snapshot_id < end]
        store.env.file_io.delete_all([store.paths.snapshot(snapshot_id) for snapshot_id in late])
        for snapshot_id in late:
            store.snapshots.forget(snapshot_id)

    def _deleted_files(self, snapshots: list[Snapshot], latest_id: int) -> list[_Doomed]:
        """Files that the deltas of all but the first snapshot delete and none of them, nor a later overwrite, adds
        again (a change of level, a rollback)."""
        added_by: dict[str, int | None] = {}
        doomed: dict[str, _Doomed] = {}
        for snapshot in snapshots:
            delta = self._delta_about(snapshot, doomed)
            added = {entry.file.file_name for entry in delta if entry.kind is EntryKind.ADD}
            deleted = {entry.file.file_name for entry in delta if entry.kind is EntryKind.DELETE}
            for entry in delta if snapshot is not snapshots[0] else ():
                name = entry.file.file_name
                if entry.kind is EntryKind.DELETE and name not in added:
                    doomed[name] = _Doomed(entry, added_by.get(name), snapshot.id)
            brings_back = snapshot.commit_kind is CommitKind.OVERWRITE
            for name in added:
                # A change of level, and a rollback, add files that earlier snapshots have, and tags of those.
                added_by.setdefault(name, None if brings_back or name in deleted else snapshot.id)
                doomed.pop(name, None)
        for later in map(self._find, range(snapshots[-1].id + 1, latest_id)) if doomed else ():
            if later is not None and later.commit_kind is CommitKind.OVERWRITE:
                for entry in delta_entries(self._partial, later):
                    if entry.kind is EntryKind.ADD:
                        doomed.pop(entry.file.file_name, None)
        return list(doomed.values())

    def _delta_about(self, snapshot: Snapshot, names: Collection[str]) -> list[ManifestEntry]:
        """Entries of a delta. Of a large manifest that deletes nothing (a bulk load), only those of the names given."""
        entries: list[ManifestEntry] = []
        for meta in delta_manifests(self._partial, snapshot):
            if meta.num_deleted_files or meta.num_added_files <= READ_WHOLE_MAX:
                entries += self._partial.read_manifest(meta)
            elif names:
                entries += self._partial.read_manifest_with(meta, [name.encode() for name in names])
        return entries

    def _without_named(self, doomed: list[_Doomed], outside: list[KeptSnapshot]) -> list[ManifestEntry]:
        """The doomed files that no tag, other line or kept changelog names."""
        named: set[str] = set()
        for snapshots, entries in _grouped(doomed, outside):
            named |= self._index.live_among(snapshots, entries)
        return [item.entry for item in doomed if item.entry.file.file_name not in named]

    def _changelog_files(self, expired: list[Snapshot], kept: list[Snapshot]) -> list[ManifestEntry]:
        """Changelog files of expired snapshots. Only a copy of the snapshot names them as well, by the same list."""
        lists = {snapshot.changelog_manifest_list for snapshot in kept}
        return [
            entry
            for snapshot in expired
            if snapshot.changelog_manifest_list not in lists
            for entry in changelog_entries(self._partial, snapshot)
        ]

    def _unnamed_metadata(self, expired: list[Snapshot], kept: list[KeptSnapshot]) -> tuple[str, ...]:
        doomed = [self._own_names(snapshot) for snapshot in expired]
        index_files = frozenset().union(*(names.index_files for names in doomed))
        statistics = frozenset().union(*(names.statistics for names in doomed))
        manifests = frozenset().union(*(names.manifests for names in doomed))
        for source, snapshot in kept:
            names = self._index.names(source, snapshot)
            index_files, statistics = index_files - names.index_files, statistics - names.statistics
            manifests = manifests - names.manifests
        return metadata_paths(self._store, MetadataNames(manifests, index_files, statistics))

    def _own_names(self, snapshot: Snapshot) -> MetadataNames:
        """Metadata that goes with a snapshot, if nothing else names it: all but what its changelog needs."""
        names = self._index.names(self._partial, snapshot)
        if not self._keeps_changelogs:
            return names
        if self._changes_are_data_files:
            index_manifest = frozenset() if snapshot.index_manifest is None else frozenset({snapshot.index_manifest})
            return replace(names, manifests=index_manifest)
        needed = {meta.file_name for meta in changelog_manifests(self._partial, snapshot)}
        return replace(names, manifests=names.manifests - needed - {snapshot.changelog_manifest_list})

    # ---------------------------------------------------------------------------------------------------- deleting

    def _run(self, plan: ExpiryPlan) -> Expired:
        store, file_io = self._store, self._store.env.file_io
        for snapshot in plan.copies:
            store.changelogs.keep(snapshot)
        if plan.copies:
            store.changelogs.write_latest_hint(plan.copies[-1].id)
            store.env.reach(CrashPoint.EXPIRE_CHANGELOGS_KEPT)
        # Oldest first, and none after one that stays: the ids that are left must have no gap.
        expired = [store.paths.snapshot(snapshot_id) for snapshot_id in plan.snapshot_ids]
        gone = file_io.delete_all(expired, in_turn=True)
        for snapshot_id in plan.snapshot_ids:
            store.snapshots.forget(snapshot_id)
        if gone.failed_count:  # a reader may still open what they name
            ids = f"{plan.snapshot_ids[0]} to {plan.snapshot_ids[-1]}"
            raise not_deleted(f"snapshots {ids}", gone, store.paths.snapshot_folder)
        store.snapshots.write_earliest_hint(plan.end)
        store.env.reach(CrashPoint.EXPIRE_SNAPSHOTS_REMOVED)
        late = named_lately(store, plan.outside, end=plan.end)
        data = delete_data(store, without_names(plan.data_paths, late))
        store.env.reach(CrashPoint.EXPIRE_DATA_REMOVED)
        metadata = delete_metadata(store, *without_names([plan.metadata_paths], late))
        # What is in memory of them stays until it is pushed out: a writer of this process may build on what expired.
        return Expired(plan.snapshot_ids, tuple(data), tuple(metadata))


@dataclass(frozen=True, slots=True)
class _Doomed:
    """A file that is no longer live, with the ids of the snapshots that added it (None: one that is not known) and
    deleted it."""

    entry: ManifestEntry
    added_by: int | None
    deleted_by: int


def _grouped(
    doomed: Iterable[_Doomed], outside: list[KeptSnapshot]
) -> Iterator[tuple[list[KeptSnapshot], list[ManifestEntry]]]:
    """Doomed files, with the snapshots outside of the line that may still name them; none that none may name.

    Tags are read with the store of the line and lie on its history. The ids of other lines are their own.
    """
    groups: dict[tuple[int, ...], list[ManifestEntry]] = {}
    for item in doomed:
        begin = item.added_by or 0
        asked = tuple(
            number
            for number, (source, snapshot) in enumerate(outside)
            if isinstance(source, ReadableManifests) or begin <= snapshot.id < item.deleted_by
        )
        if asked:
            groups.setdefault(asked, []).append(item.entry)
    for asked, entries in groups.items():
        yield [outside[number] for number in asked], entries
