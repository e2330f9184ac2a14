"""What one round of expiry deletes: reads snapshots, their deltas and whatever else may name their files.

Kept is whatever is named by the first snapshot that stays, by the latest, by any tag, by any snapshot, tag or changelog
of another line (of a table its branches, of a branch the table and its other branches), by a changelog that was kept
apart from its snapshot, or was added again by a later overwrite (a rollback). If a snapshot of the line that expires or
a tag of it cannot be read, there is no plan; of other lines and changelogs, which other programs do not keep whole,
what can be read is kept. The DELETEs of the first expired snapshot belong to history that expired earlier.

The deltas show for the most part which files are still named, without opening the manifests of 500 tags: a file that
was deleted by snapshot d is live in no later snapshot unless a later delta adds it again, and a file that was added by
snapshot a is live in no earlier one, unless a changed its level or is an overwrite, which may bring it back. So only
tags of [a, d) are asked, without such an a all before d, and everything of the other lines.

Source: FORMAT.md §12, §12.1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TypeAlias

from freshet._frozen import Frozen
from freshet.storage.cleaning.named_files import (
    KeptSnapshot,
    MetadataNames,
    NamedIndex,
    ReadableManifests,
    data_paths,
    kept_outside_main,
    kept_refs,
    metadata_paths,
)
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.metadata.live_files import changelog_entries, changelog_manifests, delta_entries, delta_manifests
from freshet.storage.metadata.manifest_store import READ_WHOLE_MAX
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import FileSource
from freshet.storage.model.manifest import EntryKind, ManifestEntry
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.choices import ChangelogProducer

_LastNeeded: TypeAlias = tuple[int, ManifestEntry]
"""A file with the last snapshot that needs it."""


class ExpiryPlan(Frozen):
    """What one round deletes, files as paths."""

    late_ids: tuple[int, ...] = ()
    """Snapshots below a gap: claims that came too late (`commit.claim`) and were not yet taken back, or never. The
    files that they name may be committed again, so nothing else of them goes."""
    snapshot_ids: tuple[int, ...] = ()
    end: int | None = None
    """The first snapshot that stays; None when another process has taken it away already."""
    expired: tuple[Snapshot, ...] = ()
    """The same that `snapshot_ids` names."""
    copies: tuple[Snapshot, ...] = ()
    """Snapshots whose changelog is kept."""
    data_paths: tuple[tuple[str, ...], ...] = ()
    """Data files, those of one bucket together."""
    metadata_paths: tuple[str, ...] = ()
    data_bytes: tuple[tuple[int, int], ...] = ()
    """Sizes of the data files, each with the last snapshot that needs the file."""
    outside: tuple[Snapshot, ...] = ()
    """What was kept outside of the main line when this was planned."""


class ExpiryPlanner:
    """Plans rounds of one table. Raises `NotFoundError` and `MissingFileError` where a snapshot or a tag that it looks
    at is gone meanwhile, or damaged."""

    def __init__(self, store: TableStore, index: NamedIndex) -> None:
        self._store = store
        self._index = index
        # What expires may have lost files to an earlier round that was interrupted.
        self._partial = ReadableManifests(store.manifests)

    def plan(self, earliest: int, end: int, latest: Snapshot, *, has_copies: bool) -> ExpiryPlan:
        """A round over [earliest, end). What lies below a gap is not of the history any more.

        `has_copies`: whether there may be changelogs that were kept, of a table whose options keep none.
        """
        down = takewhile(lambda snapshot: snapshot is not None, map(self.find, range(end, earliest - 1, -1)))
        found = [snapshot for snapshot in down if snapshot is not None][::-1]
        late_ids = self._below(found[0].id if found else end) if len(found) <= end - earliest else ()
        if not found:
            return ExpiryPlan(late_ids)
        expired, first_kept = found[:-1], found[-1]
        doomed = self._deleted_files(found, latest.id)
        if self._keeps_changelogs:
            # What copies of snapshots need is not touched here, so that they need not be read.
            outside = kept_refs(self._store)
            if self._changes_are_data_files:
                doomed = [item for item in doomed if item.entry.file.file_source is FileSource.COMPACT]
            data = self._without_named(doomed, outside)
        else:
            outside = kept_outside_main(self._store) if has_copies else kept_refs(self._store)
            data = self._without_named(doomed, outside)
            data += self._changelog_files(expired, [first_kept, latest, *(snapshot for _, snapshot in outside)])
        main = [(self._store.manifests, first_kept), (self._store.manifests, latest)]
        self._index.forget_others(outside)
        return ExpiryPlan(
            late_ids=late_ids,
            snapshot_ids=tuple(snapshot.id for snapshot in expired),
            end=end,
            expired=tuple(expired),
            copies=tuple(expired) if self._keeps_changelogs else (),
            data_paths=data_paths(self._store, [entry for _, entry in data]),
            data_bytes=tuple((last, entry.file.file_size_bytes) for last, entry in data),
            metadata_paths=self._unnamed_metadata(expired, [*main, *outside]),
            outside=tuple(snapshot for _, snapshot in outside),
        )

    @property
    def _keeps_changelogs(self) -> bool:
        return self._store.options.changelog_is_decoupled

    @property
    def _changes_are_data_files(self) -> bool:
        """Whether a changelog that is kept consists of the data files that commits added."""
        return self._store.options.changelog_producer is ChangelogProducer.NONE

    def _below(self, end: int) -> tuple[int, ...]:
        return tuple(snapshot_id for snapshot_id in self._store.snapshots.list_ids() if snapshot_id < end)

    def find(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot; None where it is gone."""
        try:
            return self._store.snapshots.snapshot(snapshot_id)
        except NotFoundError:
            return None

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
        for later in map(self.find, range(snapshots[-1].id + 1, latest_id)) if doomed else ():
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

    def _without_named(self, doomed: list[_Doomed], outside: list[KeptSnapshot]) -> list[_LastNeeded]:
        """The doomed files that no tag, other line or kept changelog names."""
        named: set[str] = set()
        for snapshots, entries in _grouped(doomed, outside):
            named |= self._index.live_among(snapshots, entries)
        return [(item.deleted_by - 1, item.entry) for item in doomed if item.entry.file.file_name not in named]

    def _changelog_files(self, expired: list[Snapshot], kept: list[Snapshot]) -> list[_LastNeeded]:
        """Changelog files of expired snapshots. Only a copy of the snapshot names them as well, by the same list."""
        lists = {snapshot.changelog_manifest_list for snapshot in kept}
        return [
            (snapshot.id, entry)
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


class _Doomed(Frozen):
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


@dataclass(frozen=True, slots=True)
class Retention:
    """How much history stays. `retain_max` None is unlimited; `limit` bounds one round, None is unbounded."""

    retain_min: int
    retain_max: int | None
    time_retained_ms: int
    limit: int | None

    def __post_init__(self) -> None:
        check_whole(self.retain_min, self.retain_max, self.time_retained_ms, self.limit)
        if self.time_retained_ms < 0:
            raise InvalidRequestError(
                f"the age of snapshots to retain must be 0 ms or more, not {self.time_retained_ms}"
            )
        if self.retain_min < 1:
            raise InvalidRequestError(f"snapshots to retain at least must be 1 or more, not {self.retain_min}")
        if self.retain_max is not None and self.retain_max < self.retain_min:
            raise InvalidRequestError(
                f"snapshots to retain at most ({self.retain_max}) must not be less than at least ({self.retain_min}); "
                "see snapshot.num-retained.max and snapshot.num-retained.min"
            )
        if self.limit is not None and self.limit < 1:
            raise InvalidRequestError(f"the limit of snapshots to expire at once must be 1 or more, not {self.limit}")


def check_whole(*values: int | None) -> None:
    """Refuses what is not a whole number, before anything is compared with it."""
    for value in values:
        if value is not None and not isinstance(value, int):
            raise InvalidRequestError(f"snapshots and ages to retain are whole numbers, not {value!r}")


def bounds(retention: Retention, *, earliest: int, latest: int, consumer_next: int | None) -> tuple[int, int]:
    """`start` and `end` of the module, the end as far as times allow."""
    start = earliest if retention.retain_max is None else max(latest - retention.retain_max + 1, earliest)
    end = latest - retention.retain_min + 1
    if consumer_next is not None:
        end = min(end, consumer_next)
    if retention.limit is not None:
        end = min(end, earliest + retention.limit)
    return start, end


def expire_end(
    retention: Retention,
    *,
    earliest: int,
    latest: int,
    now_ms: int,
    consumer_next: int | None,
    time_of: Callable[[int], int | None],
) -> int:
    """The end (exclusive) of the ids to expire; `earliest` or less when nothing may go. A pure decision over ids and
    times; `time_of(id)` is the time of a snapshot, None when its file is gone (another process expires, too).

        start = max(latest - retain_max + 1, earliest)
        end   = min(latest - retain_min + 1, smallest next snapshot of a consumer, earliest + limit)
        for id in [start, end): if snapshot id + 1 is not older than the time retained: end = id, stop
        expire [earliest, end), nothing if end <= earliest

    A snapshot may go only when its *successor* has lived longer than the time retained: a reader that opened it just
    before the successor came has had that long. Source: FORMAT.md §12.1.
    """
    start, end = bounds(retention, earliest=earliest, latest=latest, consumer_next=consumer_next)
    for snapshot_id in range(start, end):
        successor_time_ms = time_of(snapshot_id + 1)
        if successor_time_ms is not None and successor_time_ms >= now_ms - retention.time_retained_ms:
            return snapshot_id
    return end
