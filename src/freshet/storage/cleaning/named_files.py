"""What a snapshot names: the files that must stay as long as it, a tag or a branch does.

| part of the snapshot | names |
|---|---|
| base, delta and changelog manifest list | the list, and each manifest in it |
| index manifest | itself, and each index file in it |
| statistics | itself |

Names are unique within a table (each holds a random id), so a set of names is enough, whatever the folder.

Snapshots of the line that expires (the table, or one of its branches) and its tags are kept whole by everybody. Those
of the other lines are not (other programs expire a line without looking at the others), nor are the
snapshot files kept for their changelog (their other lists go), nor is the changelog of a tag (Apache Paimon removes its
list with the snapshot): what they name is protected as far as it is there, `ReadableManifests` reads the rest as empty.

Source: FORMAT.md §3.1, §12.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final
from weakref import WeakKeyDictionary, proxy

from freshet._frozen import Frozen
from freshet.storage.codec.metadata_json import decode_snapshot
from freshet.storage.commit.manifest_index import entries_of_files
from freshet.storage.commit.manifest_merge import cancel_pairs
from freshet.storage.exceptions import InvalidRequestError, NotFoundError, RetryableError, StorageError
from freshet.storage.io.file_io import Deleted, FileStatus, numbered_files
from freshet.storage.io.shown_work import advance_work
from freshet.storage.io.sized_cache import SizedCache
from freshet.storage.metadata.live_files import (
    base_manifests,
    changelog_entries,
    data_manifests,
    delta_entries,
    entries_of,
)
from freshet.storage.metadata.manifest_store import ManifestStore
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.metadata.tag_store import TagStore
from freshet.storage.model.data_file import FileSource
from freshet.storage.model.manifest import EntryKind, IndexEntry, ManifestEntry, ManifestFileMeta
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.paths import CHANGELOG_PREFIX, SNAPSHOT_PREFIX, packed_range

_OTHER_SNAPSHOTS_MAX: Final = 5_000
"""Snapshots of other lines that are kept in memory."""

_Seen = SizedCache[tuple[str, str], Snapshot]

_SEEN: Final[WeakKeyDictionary[SnapshotStore, _Seen]] = WeakKeyDictionary()

SNAPSHOTS_MAX: Final = 5_000
"""Tags and snapshots whose metadata files are remembered by name; some 30 names each, 3 KB."""


class ReadableManifests:
    """Manifests of snapshots that other programs do not keep whole: a missing file is an empty one."""

    def __init__(self, manifests: ManifestStore | ReadableManifests) -> None:
        self._manifests = manifests

    def read_manifest_list(self, name: str, size_bytes: int | None = None) -> tuple[ManifestFileMeta, ...]:
        """Manifests of a list."""
        try:
            return self._manifests.read_manifest_list(name, size_bytes)
        except NotFoundError:
            return ()

    def read_manifest(self, manifest: ManifestFileMeta | str) -> tuple[ManifestEntry, ...]:
        """Entries of a manifest."""
        try:
            return self._manifests.read_manifest(manifest)
        except NotFoundError:
            return ()

    def read_manifest_with(self, manifest: ManifestFileMeta, values: Collection[bytes]) -> Sequence[ManifestEntry]:
        """At least those entries of a manifest in which one of the byte strings occurs."""
        try:
            return self._manifests.read_manifest_with(manifest, values)
        except NotFoundError:
            return ()

    def read_index_manifest(self, name: str | None) -> tuple[IndexEntry, ...]:
        """Live index files."""
        try:
            return self._manifests.read_index_manifest(name)
        except NotFoundError:
            return ()


ManifestSource = ManifestStore | ReadableManifests
KeptSnapshot = tuple[ManifestSource, Snapshot]
"""A snapshot whose files stay, and how to read its manifests."""


class MetadataNames(Frozen):
    """Names by the folder they lie in."""

    manifests: frozenset[str]
    """Manifests, manifest lists and index manifests: folder manifest/."""
    index_files: frozenset[str]
    statistics: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        """Every name."""
        return self.manifests | self.index_files | self.statistics


def metadata_names(source: ManifestSource, snapshot: Snapshot) -> MetadataNames:
    """Everything that the snapshot names except data and changelog files."""
    manifests = {name for name, _ in snapshot.manifest_lists}
    for name, size in snapshot.manifest_lists:
        is_of_changelog = name == snapshot.changelog_manifest_list
        reader = ReadableManifests(source) if is_of_changelog else source
        manifests |= {meta.file_name for meta in reader.read_manifest_list(name, size)}
    index_files: set[str] = set()
    if snapshot.index_manifest is not None:
        manifests.add(snapshot.index_manifest)
        index_files |= {entry.file.file_name for entry in source.read_index_manifest(snapshot.index_manifest)}
    statistics = frozenset() if snapshot.statistics is None else frozenset({snapshot.statistics})
    return MetadataNames(frozenset(manifests), frozenset(index_files), statistics)


def every_name(source: ManifestSource, snapshot: Snapshot, *, is_full: bool = True) -> set[str]:
    """Metadata files, changelog files, and live data files (`is_full`) or those that the delta adds."""
    return set(metadata_names(source, snapshot).all) | entry_names(_entries(source, snapshot, is_full=is_full))


def names_of_copy(source: ManifestSource, copy: Snapshot) -> set[str]:
    """What a snapshot that expired needs for its changelog: changelog files, else the data files that it wrote."""
    if copy.changelog_manifest_list is not None:
        lists = [(copy.changelog_manifest_list, copy.changelog_manifest_list_size)]
        entries = changelog_entries(source, copy)
    else:
        lists = copy.manifest_lists
        written = (entry for entry in delta_entries(source, copy) if entry.file.file_source is not FileSource.COMPACT)
        entries = [entry for entry in written if entry.kind is EntryKind.ADD]
    manifests = {meta.file_name for name, size in lists for meta in source.read_manifest_list(name, size)}
    return manifests | {name for name, _ in lists} | entry_names(entries)


def live_of(source: ManifestSource, snapshot: Snapshot) -> list[ManifestEntry]:
    """The data files that are live at a snapshot."""
    base = entries_of(source, base_manifests(source, snapshot))
    pairs = cancel_pairs([*base, *delta_entries(source, snapshot)])
    return [entry for entry in pairs if entry.kind is EntryKind.ADD]


def entry_names(entries: Iterable[ManifestEntry]) -> set[str]:
    """The files of manifest entries with their side-cars, and the packed files that parts are in."""
    names: set[str] = set()
    for entry in entries:
        names.add(entry.file.file_name)
        names.update(entry.file.extra_files)
        packed = packed_range(entry.file.file_name)
        names.update(() if packed is None else (packed.name,))
    return names


def _entries(source: ManifestSource, snapshot: Snapshot, *, is_full: bool) -> Iterator[ManifestEntry]:
    if is_full:
        yield from live_of(source, snapshot)
    else:
        yield from (entry for entry in delta_entries(source, snapshot) if entry.kind is EntryKind.ADD)
    yield from changelog_entries(ReadableManifests(source), snapshot)


def kept_outside_main(store: TableStore) -> list[KeptSnapshot]:
    """All tags, what the other lines of the table name, and the own snapshots kept for their changelog."""
    partial = ReadableManifests(store.manifests)
    return [*kept_refs(store), *((partial, snapshot) for snapshot in store.changelogs.all().values())]


def kept_refs(store: TableStore, *, without_tag: str | None = None) -> list[KeptSnapshot]:
    """All tags but one, and what the other lines of the table name: of a table its branches, of a branch the table,
    too."""
    partial = ReadableManifests(store.manifests)
    tags = store.snapshots.tags.all()
    own = ((store.manifests, snapshot) for name, snapshot in tags.items() if name != without_tag)
    return [*own, *((partial, snapshot) for snapshot in other_lines(store))]


def named_lately(store: TableStore, known: Collection[Snapshot], *, end: int) -> set[str]:
    """Names of all that is needed by what was not known when a deletion was planned: tags of snapshots before `end`,
    and other lines, such as a branch of a tag that came and went meanwhile."""
    partial, names = ReadableManifests(store.manifests), set[str]()
    for snapshot in store.snapshots.tags.all().values():
        if snapshot.id < end and snapshot not in known:
            names |= every_name(partial, snapshot)
    for snapshot in other_lines(store):
        if snapshot not in known:
            names |= every_name(partial, snapshot)
    return names


def without_names(by_folder: Iterable[tuple[str, ...]], names: Collection[str]) -> list[tuple[str, ...]]:
    """The paths of each folder whose file names are not among these."""
    if not names:
        return list(by_folder)
    return [tuple(path for path in paths if path.rpartition("/")[2] not in names) for paths in by_folder]


def data_paths(store: TableStore, entries: Iterable[ManifestEntry]) -> tuple[tuple[str, ...], ...]:
    """Data and changelog files with their side-cars, those of one folder together."""
    paths = dict.fromkeys(path for entry in entries for path in _paths(store, entry))
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(path.rpartition("/")[0], []).append(path)
    return tuple(tuple(folders[folder]) for folder in sorted(folders))


def metadata_paths(store: TableStore, names: MetadataNames) -> tuple[str, ...]:
    """Index files, statistics, manifests and their lists."""
    return (
        *(store.paths.index_file(name) for name in sorted(names.index_files)),
        *(store.paths.statistics(name) for name in sorted(names.statistics)),
        *(store.paths.manifest(name) for name in sorted(names.manifests)),
    )


def delete_data(store: TableStore, by_bucket: Iterable[tuple[str, ...]]) -> list[Deleted]:
    """Deletes data files bucket by bucket, and the folders that became empty where the table wants that."""
    buckets, deleted = list(by_bucket), []
    for number, paths in enumerate(buckets, 1):
        deleted.append(_delete_bucket(store, paths))
        advance_work(number, len(buckets))
    return deleted


def _delete_bucket(store: TableStore, paths: tuple[str, ...]) -> Deleted:
    deleted = store.removal.delete_all(paths)
    if store.options.snapshot_clean_empty_directories:
        store.removal.remove_empty(sorted({path.rpartition("/")[0] for path in paths}), below=store.paths.data_root)
    return deleted


def delete_metadata(store: TableStore, paths: Iterable[str]) -> list[Deleted]:
    """Deletes metadata files folder by folder."""
    by_folder = groupby(paths, key=lambda path: path.rpartition("/")[0])
    return [store.removal.delete_all(list(group)) for _, group in by_folder]


def not_deleted(files: str, gone: Deleted, folder: str) -> StorageError:
    """The error of a round that ends there: trying again does not help where the right to delete is missing."""
    kind = InvalidRequestError if isinstance(gone.cause, InvalidRequestError) else RetryableError
    return kind(
        f"one of the {files} could not be deleted ({gone.cause}); the files they name stay, and the next round tries "
        "again",
        path=folder,
    )


def _paths(store: TableStore, entry: ManifestEntry) -> list[str]:
    """The file and its side-cars."""
    folder, file = store.partition_path(entry.partition), entry.file
    return [
        store.paths.data_file(folder, entry.bucket, file.file_name, file.external_path),
        *(store.paths.extra_file(folder, entry.bucket, name, file.external_path) for name in file.extra_files),
    ]


def other_lines(store: TableStore) -> Iterator[Snapshot]:
    """The snapshots of the other histories of a table: of the table its branches, of a branch the table and its other
    branches; with all their tags, and the snapshots that they keep for their changelog.

    They share the folders of data, manifests and index files, so what one of them expires another may need. Other
    programs expire each without a look at the others: what is left of them is protected, `ReadableManifests` reads the
    rest as empty. Snapshot files are read again only where they were replaced: an id is used twice after a rollback,
    and by a branch that was dropped and made again.
    """
    seen = _SEEN.setdefault(store.snapshots, SizedCache(_OTHER_SNAPSHOTS_MAX, lambda _: 1))
    for paths in store.snapshots.other_lines():
        yield from TagStore(store.env, paths).all().values()
        for folder, prefix in ((paths.snapshot_folder, SNAPSHOT_PREFIX), (paths.changelog_folder, CHANGELOG_PREFIX)):
            for status in numbered_files(store.env.file_io, folder, prefix).values():
                with suppress(NotFoundError):  # expired while we looked
                    yield _snapshot(store, seen, status)


def _snapshot(store: TableStore, seen: _Seen, status: FileStatus) -> Snapshot:
    key = status.path, status.version
    known = seen.get(key)
    if known is None:
        known = decode_snapshot(store.env.file_io.read_bytes(status.path), status.path)
        seen.put(key, known)
    return known


class NamedIndex:
    """What snapshots that stay name, remembered for one table; may be shared by threads. In each round expiry asks the
    same of all tags.

    Manifests never change under their name, so the metadata files of a snapshot are remembered, and manifests that
    cannot have what is asked for are not read (`commit.manifest_index`).
    """

    def __init__(self, manifests: ManifestStore) -> None:
        # Not a strong reference: the index lives as long as the store does, see `named_index_of`.
        self._manifests: ManifestStore = proxy(manifests)
        self._names: SizedCache[tuple[int, str, bool], MetadataNames] = SizedCache(SNAPSHOTS_MAX, lambda _: 1)

    def names(self, source: ManifestSource, snapshot: Snapshot) -> MetadataNames:
        """`metadata_names`, remembered."""
        identity = _identity(source, snapshot)
        whole = (*identity[:2], False)  # what is read of all its files holds for who takes missing ones for empty
        cached = self._names.get(whole) or self._names.get(identity)
        if cached is None:
            cached = metadata_names(source, snapshot)
            self._names.put(identity, cached)
        return cached

    def forget_others(self, kept: Collection[KeptSnapshot]) -> None:
        """Forgets the names of all but these snapshots, which each round asks for: those that expire, and the latest,
        are others in each round."""
        self._names.keep(len(kept), (_identity(*each) for each in kept))

    def live_among(self, snapshots: Iterable[KeptSnapshot], entries: Sequence[ManifestEntry]) -> set[str]:
        """Names of those files that are live at one of the snapshots, as far as their manifests are kept.

        A manifest that many of the snapshots share is looked into once.
        """
        wanted = {entry.file.file_name for entry in entries}
        partitions = {entry.partition for entry in entries}
        found: dict[str, list[ManifestEntry]] = {}
        live: set[str] = set()
        for source, snapshot in snapshots:
            if not wanted:
                break
            hits: list[ManifestEntry] = []
            for meta in data_manifests(source, snapshot):
                if meta.file_name not in found:
                    found[meta.file_name] = self._entries_of(source, meta, wanted, partitions)
                hits += found[meta.file_name]
            live |= {entry.file.file_name for entry in cancel_pairs(hits) if entry.kind is EntryKind.ADD}
        return live & wanted

    def _entries_of(
        self, source: ManifestSource, meta: ManifestFileMeta, names: Collection[str], partitions: Collection[bytes]
    ) -> list[ManifestEntry]:
        try:
            return entries_of_files(self._manifests, meta, names, partitions)
        except NotFoundError:
            if isinstance(source, ReadableManifests):
                return []
            raise


def _identity(source: ManifestSource, snapshot: Snapshot) -> tuple[int, str, bool]:
    return snapshot.id, snapshot.delta_manifest_list, isinstance(source, ReadableManifests)


_INDEXES: Final[WeakKeyDictionary[ManifestStore, NamedIndex]] = WeakKeyDictionary()


def named_index_of(manifests: ManifestStore) -> NamedIndex:
    """The index of an open table: one for all rounds."""
    return _INDEXES.setdefault(manifests, NamedIndex(manifests))
