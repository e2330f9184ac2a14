"""Removes a tag, and the files that only it named.

1. While the snapshot of the tag is there, the file of the tag is all that goes.
2. Else what only the tag names is found first: data and changelog files, manifests, lists, index files, statistics that
   no snapshot of the main line, no other tag, no branch and no kept changelog names. If one of those cannot be read,
   nothing is removed.
3. The file of the tag goes: from here on no reader can ask for what follows. A crash leaves nothing but orphans.
4. Tags and branches are looked at again: one that was made of this one meanwhile keeps its files (`tags.creation`).
5. Data files go, then manifests.

Of the main line the earliest and the latest snapshot are asked, and the overwrites between: whatever lived at the tag
lives at the earliest, or an overwrite has brought it back. Apache Paimon asks the tag on either side.

Source: FORMAT.md §12.1; decision: docs/decisions/catalogs-and-expiry.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.cleaning.named_files import (
    KeptSnapshot,
    MetadataNames,
    ReadableManifests,
    data_paths,
    delete_data,
    delete_metadata,
    kept_refs,
    live_of,
    metadata_names,
    metadata_paths,
    named_index_of,
    named_lately,
    names_of_copy,
    without_names,
)
from freshet.storage.exceptions import CorruptDataError, MissingFileError, NotFoundError
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata.live_files import changelog_entries
from freshet.storage.metadata.snapshot_store import ID_MAX
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import ManifestEntry
from freshet.storage.model.shown import Facts, Shown
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.model.tag import Tag
from freshet.storage.options.choices import ChangelogProducer

_ATTEMPTS: Final = 5
"""Snapshots may expire, and others may delete tags, while they are asked what they name."""


@dataclass(frozen=True, slots=True, repr=False)
class TagRemoval(Shown):
    """A tag that is gone, or would be (`is_dry_run`), and how many files with it, those that could not be deleted
    included."""

    tag: Tag
    data_file_count: int = 0
    metadata_file_count: int = 0
    failed_delete_count: int = 0
    is_dry_run: bool = False

    def _shown(self) -> Facts:
        yield from (("tag", repr(self.tag.name)), ("of snapshot", self.tag.snapshot_id))
        yield from (("data files", self.data_file_count), ("metadata files", self.metadata_file_count))
        yield from (("not deleted", self.failed_delete_count), ("only tried", self.is_dry_run))


class _OwnFiles(Frozen):
    """Paths of what only one tag names."""

    data: tuple[tuple[str, ...], ...] = ()
    """The files of one folder together."""
    metadata: tuple[str, ...] = ()
    kept: tuple[Snapshot, ...] = ()
    """The snapshots that were asked."""

    @property
    def data_count(self) -> int:
        return sum(map(len, self.data))


def remove_tag(store: TableStore, tag: Tag, *, is_dry_run: bool = False) -> TagRemoval:
    """Removes the tag with what only it names; a tag whose file is gone already loses the rest."""
    doomed = None if is_held(store, tag.snapshot) else _doomed(store, tag)
    if is_dry_run:
        doomed = doomed or _OwnFiles()
        return TagRemoval(tag, doomed.data_count, len(doomed.metadata), is_dry_run=True)
    store.snapshots.tags.remove(tag.name)
    store.env.reach(CrashPoint.TAG_REMOVED)
    return release(store, tag, doomed)


def release(store: TableStore, tag: Tag, doomed: _OwnFiles | None = None) -> TagRemoval:
    """Removes what only a tag named whose file is gone."""
    if doomed is None:
        if is_held(store, tag.snapshot):
            return TagRemoval(tag)
        doomed = _doomed(store, tag)
    late = named_lately(store, doomed.kept, end=ID_MAX)
    data = delete_data(store, without_names(doomed.data, late))
    metadata = delete_metadata(store, *without_names([doomed.metadata], late))
    return TagRemoval(
        tag,
        data_file_count=sum(each.deleted_count for each in data),
        metadata_file_count=sum(each.deleted_count for each in metadata),
        failed_delete_count=sum(each.failed_count for each in (*data, *metadata)),
    )


def is_held(store: TableStore, snapshot: Snapshot) -> bool:
    """True where the snapshot itself is there still."""
    return snapshot.is_same(store.snapshots.find(snapshot.id))


def _doomed(store: TableStore, tag: Tag) -> _OwnFiles:
    for attempt in range(_ATTEMPTS):
        before = _there(store)
        try:
            return _plan(store, tag)
        except (NotFoundError, MissingFileError) as error:
            if _there(store) == before or attempt == _ATTEMPTS - 1:
                raise CorruptDataError(
                    f"what tag {tag.name!r} shares with others cannot be found out ({error}); nothing was removed. "
                    "If another tag is damaged, delete that first; freshet check-table looks at the snapshots",
                    path=store.location,
                ) from error
    raise AssertionError("the last attempt returns or raises")


def _there(store: TableStore) -> tuple[int | None, dict[str, Snapshot]]:
    return store.snapshots.earliest_id(), store.snapshots.tags.all()


def _plan(store: TableStore, tag: Tag) -> _OwnFiles:
    index, source = named_index_of(store.manifests), ReadableManifests(store.manifests)
    main = [(store.manifests, snapshot) for snapshot in _main_line(store, tag)]
    kept: list[KeptSnapshot] = [*main, *kept_refs(store, without_tag=tag.name)]
    snapshots = tuple(snapshot for _, snapshot in kept)
    if any(tag.snapshot.is_same(each) for each in snapshots):
        return _OwnFiles(kept=snapshots)
    live = live_of(source, tag.snapshot)
    named = index.live_among(kept, live)
    data = [entry for entry in live if entry.file.file_name not in named]
    by_copies = _needed_by_copies(store, source)
    paths = data_paths(store, [*data, *_changelog_files(source, tag.snapshot, snapshots)])
    metadata = metadata_paths(store, _unnamed_metadata(store, tag.snapshot, kept))
    return _OwnFiles(
        data=tuple(without_names(paths, by_copies)), metadata=without_names([metadata], by_copies)[0], kept=snapshots
    )


def _needed_by_copies(store: TableStore, source: ReadableManifests) -> set[str]:
    """What the changes of kept changelogs need, which is not all that lived at their snapshots. Data files are changes
    of a table without a changelog producer alone; while a tag holds the manifests, those of others seem so too."""
    copies = store.changelogs.all().values()
    producers = {
        schema_id: store.at_schema(schema_id).options.changelog_producer
        for schema_id in {copy.schema_id for copy in copies}
    }
    return {
        name
        for copy in copies
        if copy.changelog_manifest_list is not None or producers[copy.schema_id] is ChangelogProducer.NONE
        for name in names_of_copy(source, copy)
    }


def _main_line(store: TableStore, tag: Tag) -> Iterator[Snapshot]:
    """The snapshots that name all that any of the main line names which the tag may name: of a tag below the line its
    ends and overwrites, of another (ids were used again) all of them."""
    earliest, latest = store.snapshots.earliest(), store.snapshots.latest()
    if earliest is None or latest is None:
        return
    if tag.snapshot_id >= earliest.id:
        yield from store.snapshots.all()
        return
    yield earliest
    yield latest
    for snapshot in map(store.snapshots.known_or_find, range(earliest.id + 1, latest.id)):
        if snapshot is not None and snapshot.commit_kind is CommitKind.OVERWRITE:
            yield snapshot


def _changelog_files(source: ReadableManifests, snapshot: Snapshot, kept: tuple[Snapshot, ...]) -> list[ManifestEntry]:
    """Only a copy of the snapshot names its changelog files as well, by the same list."""
    if snapshot.changelog_manifest_list in {each.changelog_manifest_list for each in kept}:
        return []
    return list(changelog_entries(source, snapshot))


def _unnamed_metadata(store: TableStore, snapshot: Snapshot, kept: list[KeptSnapshot]) -> MetadataNames:
    index = named_index_of(store.manifests)
    own = metadata_names(ReadableManifests(store.manifests), snapshot)
    manifests, index_files, statistics = own.manifests, own.index_files, own.statistics
    for source, each in kept:
        names = index.names(source, each)
        manifests, index_files = manifests - names.manifests, index_files - names.index_files
        statistics = statistics - names.statistics
    return MetadataNames(manifests, index_files, statistics)
