"""Rolls a table back: a new OVERWRITE snapshot has the content of an earlier one, upon whatever is live when it is
committed.

| live at the earlier snapshot | live now | entry |
|---|---|---|
| yes | yes, at the same level | none |
| yes | no | ADD of a copy |
| no | yes | DELETE |

Levels, sequence numbers and deletion vectors are those of the earlier snapshot. An index file is copied too where it is
not live now, or where a data file that it marks has another name: vectors belong to data files by name, which stands in
the manifest entry of the index file alone.

A file that was deleted cannot be added again under its name: readers cancel an ADD and a DELETE of one identity without
regard to their order, and the expiry of Apache Paimon 2.0.0 removes what a delta deletes, also where a later one has
added it again (its `rollbackToAsLatest` adds the files under their names). On a disk a copy is a second name of the
same bytes and takes no room; a store copies by itself.

Ids go on, so that readers and consumers meet one history; what was committed in between stays in the snapshots before
it. The table forgets with the rows that those were committed: the last commits of all users are those of the earlier
snapshot again. A pipeline whose batches are gone is refused at its next one (`pipeline.identity.missing_batches`), and
a loader that sends the same numbers again commits them again.

The schema stays the newest one: rows of before have NULL in columns that were added since.

Source: FORMAT.md §12, §14 (17).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.commit.commit_result import CommitResult
from freshet.storage.commit.committer import Committer
from freshet.storage.commit.last_commits import NO_COMMITS, LastCommits, last_commits_of
from freshet.storage.commit.round_change import live_in
from freshet.storage.commit.table_view import TableView
from freshet.storage.edits.edit_commit import EditResult, commit_edit, preview_of, result_of
from freshet.storage.exceptions import ConflictError, InvalidRequestError, NotFoundError
from freshet.storage.files.data_file_paths import data_file_path, delete_data_file
from freshet.storage.io.shown_work import counted
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.schema_alteration import check_restorable
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arguments import TimeGiven, time_ms
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import EntryKind, FileIdentity, IndexEntry, IndexFileMeta, ManifestEntry
from freshet.storage.model.snapshot import ROLLED_BACK_PROPERTY, CommitKind, Snapshot
from freshet.storage.paths import INDEX_FILE_PREFIX
from freshet.storage.scan.read_snapshot import nothing_by

RollbackTarget = int | str | datetime.datetime
"""A snapshot id (0 is the table before its first snapshot), the name of a tag, or a moment with a time zone."""


COPIED_TOGETHER: Final = 64
"""Files of one call: their folders are synced once, and other calls are made at the same time."""

_Pair = tuple[str, str]
"""A file, and what its copy is called."""


def roll_back(
    store: TableStore,
    target: Snapshot | None,
    *,
    dry_run: bool = False,
    find: Callable[[], Snapshot | None] | None = None,
) -> EditResult:
    """Gives the table the content of the target; no snapshot where it has that already, and in a dry run. `find` is
    what found the target, where it may find another one when others have changed the table.

    Raises `NotFoundError` where the target expires meanwhile, `ConflictError` where there is another one.
    """
    if target is not None and target.schema_id != store.schema.id:
        then = store.schemas.schema(target.schema_id)
        check_restorable(store.name, then, store.schema, store.manifests, target)
    try:
        restoration = _Restoration(store, target, find)
    except NotFoundError as error:
        raise _expired(store, target) from error
    if dry_run:
        return preview_of(restoration.preview(store, store.snapshots.latest()))
    properties = {ROLLED_BACK_PROPERTY: str(0 if target is None else target.id)}
    known = _commits_at(store, target)

    def commit(committer: Committer, number: int) -> CommitResult:
        return committer.change(number, restoration, properties=properties, known_commits=known)

    try:
        return result_of(store, commit_edit(store, commit, restoration.copies.discard))
    except NotFoundError as error:
        store.check_is_there()
        raise _expired(store, target) from error


def find_target(store: TableStore, to: RollbackTarget) -> Snapshot | None:
    """The snapshot to go back to; `NotFoundError` names what there is instead."""
    store.check_is_there()
    if isinstance(to, str):
        return _tagged(store, to)
    if isinstance(to, datetime.datetime):
        return _at(store, to)
    if isinstance(to, bool) or not isinstance(to, int) or to < 0:
        raise InvalidRequestError(
            f"to= is a snapshot id, the name of a tag or a datetime with a time zone, not {to!r}", table=store.name
        )
    if to == 0:
        return None
    try:
        return store.snapshots.fresh(to)
    except NotFoundError:
        for snapshot in store.snapshots.tags.all().values():
            if snapshot.id == to:
                return snapshot
        raise


def before_commit(store: TableStore, commit_user: str, identifier: int) -> Snapshot | None:
    """The snapshot before the first one of a user's commit with this number, or a later one: what undoes it.

    Raises `NotFoundError` where no snapshot there is of it, or the one before has expired.
    """
    store.check_is_there()
    found: Snapshot | None = None
    undone: tuple[Snapshot, Snapshot] | None = None
    undone_above, undone_by = 0, None
    is_there = False
    for snapshot in store.snapshots.newest_first(store.snapshots.latest()):
        is_of_user = snapshot.commit_user == commit_user
        is_it = is_of_user and snapshot.commit_identifier == identifier
        is_meant = is_of_user and snapshot.commit_identifier >= identifier
        if undone_by is not None and snapshot.id > undone_above:
            is_first = undone is None or (is_it and undone[0].commit_identifier != identifier)
            if is_meant and is_first:
                undone = snapshot, undone_by
            continue
        if snapshot.is_rollback:
            undone_above, undone_by = int((snapshot.properties or {})[ROLLED_BACK_PROPERTY]), snapshot
        if is_meant:
            found, is_there = snapshot, is_there or is_it
    if undone is not None and undone[0].commit_identifier == identifier and not is_there:
        raise _undone_already(store, commit_user, identifier, undone, found)
    if found is None:
        raise _not_there(store, commit_user, identifier, undone)
    if found.id == 1:
        return None
    try:
        target = store.snapshots.fresh(found.id - 1)
        known = _commits_at(store, target).users.get(commit_user)
        if known is not None and known.identifier >= identifier:
            raise NotFoundError(f"the snapshot of commit {identifier} has expired, commit {known.identifier} stays")
        return target
    except NotFoundError as error:
        raise _before_expired(store, commit_user, identifier, str(error)) from error


def _not_there(
    store: TableStore, commit_user: str, identifier: int, undone: tuple[Snapshot, Snapshot] | None
) -> NotFoundError:
    """The last commits outlive their snapshots: they tell a commit that is in the table, and has expired, from one that
    is undone or never was. `undone` is a snapshot of it or of a later one, and the rollback that undid that."""
    known = _commits_at(store, store.snapshots.latest()).users.get(commit_user)
    if known is not None and known.identifier >= identifier:
        return _before_expired(
            store,
            commit_user,
            identifier,
            f"and so have the snapshots of the commits of this user up to {known.identifier}",
        )
    if undone is not None:
        return _undone_already(store, commit_user, identifier, undone)
    users = sorted({snapshot.commit_user for snapshot in store.snapshots.all()})
    there = f"; the snapshots there are were committed by {', '.join(map(repr, users)) or 'nobody'}"
    reason = there if known is None else f": its last one is {known.identifier}"
    return NotFoundError(
        f"table {store.name}: no snapshot is of commit {identifier} of {commit_user!r}, or of a later one{reason}",
        table=store.name,
    )


def _undone_already(
    store: TableStore,
    commit_user: str,
    identifier: int,
    undone: tuple[Snapshot, Snapshot],
    later: Snapshot | None = None,
) -> NotFoundError:
    """`later` is the first of the commits of this user with a larger number, where there are any that are not undone:
    an undo that is called twice leaves them alone."""
    gone, by = undone
    stays = ""
    if later is not None and later.id != by.id:
        stays = f". Commit {later.commit_identifier} of this user came later and stays: undo it by its number"
    return NotFoundError(
        f"table {store.name}: commit {identifier} of {commit_user!r} is undone already: snapshot {gone.id}, of "
        f"commit {gone.commit_identifier}, was undone by snapshot {by.id}. Nothing was changed; to={by.id - 1} "
        f"brings back what the table had before that{stays}",
        table=store.name,
    )


def _before_expired(store: TableStore, commit_user: str, identifier: int, reason: str) -> NotFoundError:
    return NotFoundError(
        f"table {store.name}: commit {identifier} of {commit_user!r} cannot be undone, for what was before it has "
        f"expired ({reason}); go back to a snapshot that is there (to=), or to a tag",
        table=store.name,
    )


def _tagged(store: TableStore, name: str) -> Snapshot:
    try:
        return store.snapshots.tags.of(name)
    except NotFoundError as error:
        try:
            datetime.datetime.fromisoformat(name)
        except ValueError:
            raise error from None
        raise NotFoundError(
            f"{error}. If {name!r} is a moment, give a datetime with a time zone: "
            f"datetime.fromisoformat({name!r}).astimezone()",
            table=store.name,
        ) from error


def _at(store: TableStore, moment: TimeGiven) -> Snapshot:
    asked = time_ms("to", moment)
    found = store.snapshots.at_or_before(asked)
    if found is None:
        raise NotFoundError(f"table {store.name}: {nothing_by(store.snapshots, asked)}", table=store.name)
    return found


def _commits_at(store: TableStore, target: Snapshot | None) -> LastCommits:
    """The last commits as the target knew them."""
    return NO_COMMITS if target is None else last_commits_of(store.snapshots.newest_first(target))


def _expired(store: TableStore, target: Snapshot | None) -> NotFoundError:
    number = 0 if target is None else target.id
    return NotFoundError(
        f"table {store.name}: snapshot {number} expired before the table was rolled back to it; nothing was committed. "
        "Choose one that is there (freshet snapshots), and a tag for those that are to stay",
        table=store.name,
    )


class _Restoration:
    """A `RoundChange`; its copies are made in the first round that needs them."""

    def __init__(
        self, store: TableStore, target: Snapshot | None, find: Callable[[], Snapshot | None] | None = None
    ) -> None:
        """None is the table before its first snapshot. `find` looks for the target again in each round: another
        rollback may have undone the commit that is to be undone, a tag may name another snapshot by now."""
        self._wanted = live_entries(store.manifests, target)
        self._wanted_index = () if target is None else store.manifests.read_index_manifest(target.index_manifest)
        self.copies = _FileCopies(store)
        self._target, self._find = target, find
        self._is_handed_out = False

    def preview(self, store: TableStore, latest: Snapshot | None) -> list[ManifestEntry]:
        """The entries upon a snapshot, with the files themselves in place of their copies."""
        gone, _ = live_in(store, latest, lambda _: True)
        live, wanted = {entry.identity for entry in gone}, {entry.identity for entry in self._wanted}
        return [
            *(entry for entry in gone if entry.identity not in wanted),
            *(entry for entry in self._wanted if entry.identity not in live),
        ]

    def upon(self, store: TableStore, view: TableView) -> SnapshotChange:
        """What differs between what is live and the target; empty where nothing does.

        Raises `ConflictError` where the target is another one by now.
        """
        self._check_target(store)
        gone, index = live_in(store, view.latest, lambda _: True)
        live = {entry.identity for entry in gone}
        wanted = {entry.identity for entry in self._wanted}
        missing = [entry for entry in self._wanted if entry.identity not in live]
        back = self._copied(missing)
        names = {entry.file.file_name: copy.file.file_name for entry, copy in zip(missing, back, strict=True)}
        self._is_handed_out = True
        kept_index, back_index = self._split_index({entry.file.file_name for entry in index}, names)
        return SnapshotChange(
            CommitKind.OVERWRITE,
            (*(entry for entry in gone if entry.identity not in wanted), *back),
            index_entries=(
                *(entry for entry in index if entry.file.file_name not in kept_index),
                *self.copies.of_index(back_index, names),
            ),
            keeps_numbers=True,
        )

    def _check_target(self, store: TableStore) -> None:
        if self._find is None:
            return
        try:
            found, reason = self._find(), None
        except NotFoundError as error:
            found, reason = None, error
        is_same = found is None if self._target is None else self._target.is_same(found)
        if reason is not None or not is_same:
            raise ConflictError(
                f"table {store.name}: others have rolled it back, or have changed the tag, while this rollback was "
                "made; nothing was committed. Look at the snapshots and tags (freshet snapshots, freshet tags), and "
                "call again where it is still wanted",
                table=store.name,
            ) from reason

    def _copied(self, missing: list[ManifestEntry]) -> list[ManifestEntry]:
        try:
            return self.copies.of(missing)
        except NotFoundError:
            if not self._is_handed_out:  # else a claim may have named some of them
                self.copies.discard()
            raise

    def _split_index(self, live: set[str], names: dict[str, str]) -> tuple[set[str], list[IndexEntry]]:
        """Names of index files that stay, and those that come back."""
        back = [
            replace(entry, kind=EntryKind.ADD)
            for entry in self._wanted_index
            if entry.file.file_name not in live or entry.marked_files & names.keys()
        ]
        coming = {entry.file.file_name for entry in back}
        return {entry.file.file_name for entry in self._wanted_index} - coming, back


class _FileCopies:
    """The copies of files of one table; each is made once, however often it is asked for."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._files: dict[FileIdentity, ManifestEntry] = {}
        self._begun: list[ManifestEntry] = []
        """Copies that are there, or may be."""
        self._index_files: dict[str, IndexFileMeta] = {}
        """By the name of the file that was copied; their vectors have the names of data files that they had."""

    def of(self, entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
        """The entries with copies of their files; `NotFoundError` where one is not there any more."""
        wanted = list(entries)
        missing = [entry for entry in wanted if entry.identity not in self._files]
        made = [replace(entry, file=self._renamed(entry.file)) for entry in missing]
        self._begun += made
        self._copy([pair for entry, copy in zip(missing, made, strict=True) for pair in self._pairs(entry, copy)])
        self._files |= {entry.identity: copy for entry, copy in zip(missing, made, strict=True)}
        return [self._files[entry.identity] for entry in wanted]

    def of_index(self, entries: Iterable[IndexEntry], names: Mapping[str, str]) -> list[IndexEntry]:
        """The same of index files; `names` are the new names of data files that have one."""
        wanted = list(entries)
        missing = [entry.file for entry in wanted if entry.file.file_name not in self._index_files]
        made = [self._renamed_index(file) for file in missing]
        self._copy([(self._index_path(file), self._index_path(copy)) for file, copy in zip(missing, made, strict=True)])
        self._index_files |= {file.file_name: copy for file, copy in zip(missing, made, strict=True)}
        return [replace(entry, file=_with_names(self._index_files[entry.file.file_name], names)) for entry in wanted]

    def discard(self) -> None:
        """Removes the copies, which no snapshot names; best effort."""
        for entry in self._begun:
            delete_data_file(self._store, entry.partition, entry.bucket, entry.file)
        self._store.env.file_io.delete_all([self._index_path(file) for file in self._index_files.values()])

    def _copy(self, pairs: list[_Pair]) -> None:
        env = self._store.env
        parts = [pairs[start : start + COPIED_TOGETHER] for start in range(0, len(pairs), COPIED_TOGETHER)]
        env.together(counted([partial(env.file_io.copy_all, part) for part in parts]))

    def _pairs(self, entry: ManifestEntry, copy: ManifestEntry) -> list[_Pair]:
        store, folder = self._store, self._store.partition_path(entry.partition)
        pairs = [
            (
                data_file_path(store, entry.partition, entry.bucket, entry.file),
                data_file_path(store, copy.partition, copy.bucket, copy.file),
            )
        ]
        for given, new in zip(entry.file.extra_files, copy.file.extra_files, strict=True):
            pairs.append(
                (
                    store.paths.extra_file(folder, entry.bucket, given, entry.file.external_path),
                    store.paths.extra_file(folder, copy.bucket, new, copy.file.external_path),
                )
            )
        return pairs

    def _renamed(self, file: DataFileMeta) -> DataFileMeta:
        """The file under a name with an id of its own; its side-cars are called after it."""
        stem = file.file_name.partition(".")[0]
        name = f"{self._store.options.data_file_prefix}{self._store.env.new_uuid()}-0"
        extra = tuple(
            name + given.removeprefix(stem) if given.startswith(stem) else f"{name}.{given}"
            for given in file.extra_files
        )
        outside = file.external_path
        return replace(
            file,
            file_name=name + file.file_name.removeprefix(stem),
            extra_files=extra,
            external_path=None
            if outside is None
            else f"{outside.rpartition('/')[0]}/{name}{file.file_name.removeprefix(stem)}",
        )

    def _renamed_index(self, file: IndexFileMeta) -> IndexFileMeta:
        name, outside = f"{INDEX_FILE_PREFIX}{self._store.env.new_uuid()}-0", file.external_path
        return replace(
            file,
            file_name=name,
            external_path=None if outside is None else f"{outside.rpartition('/')[0]}/{name}",
        )

    def _index_path(self, file: IndexFileMeta) -> str:
        return self._store.paths.index_file(file.file_name, file.external_path)


def _with_names(file: IndexFileMeta, names: Mapping[str, str]) -> IndexFileMeta:
    if file.deletion_vectors is None:
        return file
    vectors = (
        replace(each, data_file_name=names.get(each.data_file_name, each.data_file_name))
        for each in file.deletion_vectors
    )
    return replace(file, deletion_vectors=tuple(vectors))
