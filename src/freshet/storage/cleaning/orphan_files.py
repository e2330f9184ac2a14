"""Removes files that nothing names: what crashes, lost claims and abandoned writers leave behind.

Candidates are files older than a threshold (default one day), because the files of a commit that is being made look
just like orphans:

| folder | candidates |
|---|---|
| manifest/, index/, statistics/, bucket folders | every file |
| snapshot/, changelog/ (also of branches) | names that are neither prefix + number nor a hint; unreadable late claims |
| schema/, tag/, consumer/, branch folders | temporary files only (`.….tmp`) |

Used is what any snapshot, tag or kept changelog of the table or of a branch names. Live files of a chain of snapshots
are the live files of the first plus everything that later deltas add; overwrites are read in full, since they may
replace the base. Candidates are listed before the used names are read, and reading goes on until no new snapshot has
come: a commit that becomes visible meanwhile is seen. Snapshots are read first, then tags, then branches, the way on
which others may hand on a snapshot meanwhile: who makes a tag and lets its snapshot expire, or a branch of it and
deletes the tag, does so before or after we look, and is seen either way.

If a snapshot of the main line or a tag cannot be read, nothing is removed (branches and changelogs are not kept whole
by other programs, there what can be read is in use); except one below a gap of the ids whose manifests
have expired: the claim of a committer that came too late and then crashed (`commit.claim`), which goes as an orphan.

Source: FORMAT.md §12.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.cleaning.named_files import ReadableManifests, every_name, names_of_copy
from freshet.storage.exceptions import CorruptDataError, InvalidRequestError, NotFoundError, StorageError
from freshet.storage.io.file_io import FileStatus
from freshet.storage.io.shown_work import advance_work
from freshet.storage.metadata.expired_snapshots import ChangelogStore
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.display import size_text
from freshet.storage.model.shown import ROWS_MAX, Facts, Shown, facts_html, rows_html
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.paths import (
    BUCKET_PREFIX,
    CHANGELOG_PREFIX,
    EARLIEST_HINT,
    LATEST_HINT,
    SNAPSHOT_PREFIX,
    TablePaths,
    numbered,
)

_LOG: Final = logging.getLogger(__name__)

DEFAULT_AGE_MS: Final = 24 * 3600 * 1000
"""Age below which a file may belong to a commit that is being made."""

LOOK_FILES_MAX: Final = 5_000
LOOK_FOLDERS_MAX: Final = 64
"""Of buckets."""
LOOK_SNAPSHOTS_MAX: Final = 500
"""A look from outside (`files_at_a_look`) reads no more."""


class OrphanFile(Frozen):
    """A file that nothing names."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class OrphanResult(Shown):
    """Files found; deleted unless `dry_run`."""

    files: tuple[OrphanFile, ...]
    dry_run: bool

    @property
    def size_bytes(self) -> int:
        """Bytes of all files found."""
        return sum(file.size_bytes for file in self.files)

    def _shown(self) -> Facts:
        yield from (
            ("only listed", self.dry_run),
            ("files", str(len(self.files))),
            ("size", size_text(self.size_bytes)),
        )

    def _html(self) -> str:
        rows = [(file.path, size_text(file.size_bytes)) for file in self.files[:ROWS_MAX]]
        left_out = f"the first {ROWS_MAX} of {len(self.files):,}" if len(self.files) > ROWS_MAX else None
        return facts_html(type(self).__name__, self._shown(), rows_html(("file", "size"), rows, left_out=left_out))


def remove_orphan_files(
    store: TableStore, *, older_than_ms: int = DEFAULT_AGE_MS, dry_run: bool = False
) -> OrphanResult:
    """Finds files that nothing names and that have not been modified for `older_than_ms`, and deletes them.

    The age, default one day, must be longer than any writer or compaction runs before it commits: until then no
    snapshot names its files. `NotFoundError` when the table was dropped, and maybe created again, since it was opened.
    """
    if not isinstance(older_than_ms, int):
        raise InvalidRequestError(
            f"the age of files to remove is a whole number of milliseconds, not {older_than_ms!r}"
        )
    store.check_is_there()
    before_ms = store.env.now_ms() - older_than_ms
    candidates = [status for status in _candidates(store) if status.modified_ms < before_ms]
    orphans = _unnamed(store, candidates)
    if not dry_run:
        for number, orphan in enumerate(orphans, 1):
            store.removal.delete(orphan.path)
            advance_work(number, len(orphans))
    return OrphanResult(tuple(orphans), dry_run)


def files_at_a_look(store: TableStore) -> Sequence[FileStatus]:
    """The first `LOOK_FILES_MAX` files of the folders of the table; none where they cannot be listed."""
    try:
        return list(islice(_candidates(store, LOOK_FOLDERS_MAX), LOOK_FILES_MAX))
    except StorageError:
        return ()  # `remove_orphan_files` says why; what else is there to say of the table is not less true


def orphans_at_a_look(store: TableStore, found: Sequence[FileStatus], live_names: Collection[str]) -> tuple[int, int]:
    """How many of the files that were found nothing names, and their bytes; none of a table whose snapshots would take
    long to read. `live_names` are data files that need no further look."""
    before_ms = store.env.now_ms() - DEFAULT_AGE_MS
    candidates = [each for each in found if each.modified_ms < before_ms and not _is_in_use(each.name, live_names)]
    try:
        if not candidates or len(store.snapshots.list_ids()) > LOOK_SNAPSHOTS_MAX:
            return 0, 0
        orphans = _unnamed(store, candidates)
    except StorageError:
        return 0, 0
    return len(orphans), sum(each.size_bytes for each in orphans)


def _unnamed(store: TableStore, candidates: Sequence[FileStatus]) -> list[OrphanFile]:
    if not candidates:
        return []
    names = _UsedNames(store)
    used = names.collect()
    return [
        OrphanFile(status.path, status.size_bytes)
        for status in candidates
        if status.path in names.unreadable or not _is_in_use(status.name, used)
    ]


# ----------------------------------------------------------------------------------------------------- candidates


def _candidates(store: TableStore, folders_max: int | None = None) -> Iterator[FileStatus]:
    paths = store.paths
    for folder in (paths.manifest_folder, paths.index_folder, paths.statistics_folder):
        yield from _files(store, folder, lambda name: True)
    folders = _bucket_folders(store, paths.data_root, len(store.schema.partition_keys))
    for bucket_folder in islice(folders, folders_max):
        yield from _files(store, bucket_folder, lambda name: True)
    for line_paths in (paths, *store.snapshots.other_lines()):
        yield from _metadata_candidates(store, line_paths)


def _metadata_candidates(store: TableStore, paths: TablePaths) -> Iterator[FileStatus]:
    yield from _files(store, paths.snapshot_folder, lambda name: name not in (LATEST_HINT, EARLIEST_HINT))
    yield from _files(store, paths.changelog_folder, lambda name: not _is_numbered_or_hint(name, CHANGELOG_PREFIX))
    for folder in (paths.schema_folder, paths.tag_folder, paths.consumer_folder, paths.home):
        yield from _files(store, folder, _is_temporary)


def _files(store: TableStore, folder: str, accepts: Callable[[str], bool]) -> Iterator[FileStatus]:
    for status in _entries(store, folder):
        if not status.is_folder and accepts(status.name):
            yield status


def _entries(store: TableStore, folder: str) -> Iterable[FileStatus]:
    """What lies in a folder of the table; nothing behind a link."""
    link = store.removal.way_out(f"{folder}/")
    if link is None:
        return store.env.file_io.entries(folder)
    _LOG.warning("%s: %s leads out of the table; no orphan is looked for in %s", store.name, link, folder)
    return ()


def _bucket_folders(store: TableStore, folder: str, depth: int) -> Iterator[str]:
    for status in _entries(store, folder):
        if not status.is_folder:
            continue
        if depth == 0 and status.name.startswith(BUCKET_PREFIX):
            yield status.path
        elif depth > 0 and "=" in status.name:
            yield from _bucket_folders(store, status.path, depth - 1)


def _is_in_use(name: str, used: Collection[str]) -> bool:
    return name in used or numbered(name, SNAPSHOT_PREFIX) is not None


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")


def _is_numbered_or_hint(name: str, prefix: str) -> bool:
    return numbered(name, prefix) is not None or name in (LATEST_HINT, EARLIEST_HINT)


# ------------------------------------------------------------------------------------------------------ used names


class _UsedNames:
    """Collects every name that is in use; manifests are read once each."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._partial = ReadableManifests(store.manifests)
        self._names: set[str] = set()
        self._of_branches: set[tuple[int, str]] = set()
        """Snapshots of branches that were read."""
        self.unreadable: set[str] = set()
        """Snapshot files below the history that name files which have expired: a claim that came too late."""

    def collect(self) -> set[str]:
        """All names in use."""
        main, paths = self._store.snapshots.branch(None), self._store.paths.branch(None)
        seen: set[int] = set()
        while True:
            seen |= self._collect_chain(main, paths)
            self._collect_tags(main, paths)
            self._collect_copies(paths)
            for line_paths in main.other_lines():
                self._collect_line(SnapshotStore(self._store.env, line_paths))
                self._collect_copies(line_paths)
            latest = main.latest()
            if latest is None or latest.id in seen:
                return self._names

    def _collect_line(self, line: SnapshotStore) -> None:
        """Collects the names of a branch until nothing new has come: what its writers let expire meanwhile cannot be
        read."""
        seen: set[int] = set()
        while True:
            ids = line.list_ids()
            self._collect_kept(snapshot for snapshot in map(line.find, ids) if snapshot is not None)
            seen |= set(ids)
            self._collect_kept(line.tags.all().values())
            try:
                latest = line.latest()
            except NotFoundError:  # dropped; a writer that was open has left its hint
                return
            if latest is None or latest.id in seen:
                return

    def _collect_kept(self, snapshots: Iterable[Snapshot]) -> None:
        for snapshot in snapshots:
            identity = (snapshot.id, snapshot.delta_manifest_list)
            if identity not in self._of_branches:
                self._of_branches.add(identity)
                self._names |= every_name(self._partial, snapshot)

    def _collect_copies(self, paths: TablePaths) -> None:
        for copy in ChangelogStore(self._store.env, paths).all().values():
            self._names |= names_of_copy(self._partial, copy)

    def _collect_tags(self, snapshots: SnapshotStore, paths: TablePaths) -> None:
        for name, snapshot in snapshots.tags.all().items():
            self._read(snapshot, paths.tag(name), is_full=True)

    def _collect_chain(self, snapshots: SnapshotStore, paths: TablePaths) -> set[int]:
        ids = sorted(snapshots.list_ids())
        first_of_history = _start_of_history(ids)
        last_read: int | None = None
        for snapshot_id in ids:
            try:
                snapshot = snapshots.fresh(snapshot_id)  # an id may have been used again since a rollback
            except NotFoundError:
                continue
            # A delta says what is live only together with the snapshot before.
            is_full = last_read != snapshot_id - 1 or snapshot.commit_kind is CommitKind.OVERWRITE
            path = paths.snapshot(snapshot_id)
            if self._read(snapshot, path, is_full=is_full, is_history=snapshot_id >= first_of_history):
                last_read = snapshot_id
        return set(ids)

    def _read(self, snapshot: Snapshot, path: str, *, is_full: bool, is_history: bool = True) -> bool:
        """Adds the names of the snapshot in the file given; False when it expired under our hands."""
        try:
            names = every_name(self._store.manifests, snapshot, is_full=is_full)
        except NotFoundError as error:
            if not self._store.env.file_io.exists(path):
                return False
            if not is_history:
                self.unreadable.add(path)
                return False
            raise CorruptDataError(
                f"snapshot {snapshot.id} names a file that is missing ({error}); no orphan was removed, "
                "find out what took the file away first",
                path=self._store.location,
            ) from error
        self._names |= names
        return True


def _start_of_history(ids: list[int]) -> int:
    """First id of the gapless ids up to the latest."""
    start = ids[-1] if ids else 0
    for snapshot_id in reversed(ids[:-1]):
        if snapshot_id != start - 1:
            break
        start = snapshot_id
    return start
