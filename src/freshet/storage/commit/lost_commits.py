"""Commits that were made and are not in the table any more: another program copied its snapshot over theirs.

Their manifests and data files are still there, named by no snapshot. A commit is found by the record in its delta
manifest list (`commit_files.CommitRecord`), by listing what no snapshot names:

| the last commit of its user, by the table | verdict |
|---|---|
| its number, or a larger one | it is in the table, or its number was used again: passed over |
| a smaller number, or none | lost, or begun and never made: `maintenance.repairs` commits it |

A commit that was begun and not made, because its writer was killed before the claim, looks the same. Making it is what
the writer would have done; who replays it finds it committed. One that is being made at this moment looks the same too,
so a commit is repaired when its writer has stopped.

Before the copy came, a third program may have built its snapshot upon the lost one (`LostCommit.built_upon`): the table
has the rows then, and only the number of the commit and its changelog are missing.

A compaction that was lost leaves its inputs live: no row is missing, its outputs are orphans.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from shlex import quote

from freshet.storage.catalogs.metastore import split_branch
from freshet.storage.commit.commit_files import COMMIT_RECORD, CommitRecord, commit_record
from freshet.storage.commit.last_commits import COMMITS_PROPERTY, LastCommits
from freshet.storage.commit.table_view import look
from freshet.storage.exceptions import InvalidRequestError, LostCommitError, NotFoundError
from freshet.storage.metadata.expired_snapshots import ChangelogStore
from freshet.storage.metadata.live_files import data_manifests, delta_manifests, entries_of
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import EntryKind, ManifestEntry, ManifestFileMeta
from freshet.storage.model.snapshot import Snapshot

COMMAND = "freshet repair lost-commit"
_SHOWN_FILES = 5


@dataclass(frozen=True)
class LostCommit:
    """A commit that the table does not have, and the delta manifest list that names its files."""

    store: TableStore
    manifest_list: str
    record: CommitRecord

    def __repr__(self) -> str:
        return f"LostCommit({self.text})"

    @cached_property
    def entries(self) -> Sequence[ManifestEntry]:
        """What it changes; raises where its manifests are gone."""
        manifests = self.store.manifests
        return tuple(entries_of(manifests, manifests.read_manifest_list(self.manifest_list)))

    @cached_property
    def changelog_entries(self) -> Sequence[ManifestEntry]:
        """Its changelog files."""
        name, manifests = self.record.changelog_list, self.store.manifests
        return () if name is None else tuple(entries_of(manifests, manifests.read_manifest_list(name)))

    @property
    def text(self) -> str:
        """What it is, in one line."""
        record = self.record
        return (
            f"commit {record.identifier} of user {record.user!r}, which was snapshot {record.snapshot_id} or was to be"
        )

    @property
    def row_count(self) -> int:
        """Rows that it adds."""
        return sum(entry.file.row_count for entry in self.entries if entry.kind is EntryKind.ADD)

    @property
    def files(self) -> list[str]:
        """Paths of the data files that it adds."""
        store, added = self.store, (entry for entry in self.entries if entry.kind is EntryKind.ADD)
        return [
            store.data_file(each.partition, each.bucket, each.file.file_name, each.file.external_path) for each in added
        ]

    @cached_property
    def built_upon(self) -> Snapshot | None:
        """The first snapshot after it that has files of it, or has compacted them; None where there is none.

        Where the one after it has expired, of those before the latest only the changes are read: what they took away is
        named nowhere else.
        """
        snapshots, after = self.store.snapshots, self.record.snapshot_id + 1
        first = snapshots.find(after)
        if first is not None and self._is_named(data_manifests(self.store.manifests, first)):
            return first
        latest = snapshots.latest()
        for snapshot in snapshots.newest_first(latest):
            if snapshot.id < after:
                break
            read = data_manifests if snapshot == latest else delta_manifests
            if self._is_named(read(self.store.manifests, snapshot)):
                return snapshot
        return None

    @property
    def rows_text(self) -> str:
        """Where its rows are, as a sentence."""
        with suppress(NotFoundError):  # a snapshot expired while we looked
            if self.built_upon is not None:
                return (
                    f"The rows are in the table since snapshot {self.built_upon.id}, which was built upon the commit "
                    "before it was replaced; the table does not know its number, so it could be committed twice"
                )
        files = self.files
        more = f" and {len(files) - _SHOWN_FILES} more" if files[_SHOWN_FILES:] else ""
        return f"The rows are in {', '.join(files[:_SHOWN_FILES]) or 'no file'}{more}, which no snapshot names now"

    def _is_named(self, manifests: Sequence[ManifestFileMeta]) -> bool:
        names = {entry.file.file_name for entry in self.entries if entry.kind is EntryKind.ADD}
        return any(entry.file.file_name in names for entry in entries_of(self.store.manifests, manifests))


def find_lost_commits(store: TableStore) -> list[LostCommit]:
    """Commits of Freshet that the table does not have, in the order of their snapshots; lists `manifest/`, and reads
    the manifest lists that no snapshot names."""
    unnamed = sorted(set(store.manifests.list_names()) - _named_lists(store))  # listed first: a commit may follow
    known = look(store).last_commits
    texts = store.env.together([partial(store.manifests.list_property, name, COMMIT_RECORD) for name in unnamed])
    found: dict[tuple[str, str | None, int], LostCommit] = {}
    for name, text in zip(unnamed, texts, strict=True):
        record = None if text is None else commit_record(text, name)
        if record is None or record.branch != store.paths.branch_name or not is_missing(known, record):
            continue
        key = record.user, record.query_id, record.identifier
        if key not in found or found[key].record.snapshot_id < record.snapshot_id:  # the last try of several
            found[key] = LostCommit(store, name, record)
    return sorted(found.values(), key=lambda lost: (lost.record.snapshot_id, lost.record.user))


def replaced_commits(store: TableStore) -> Iterator[tuple[LostCommit, Snapshot]]:
    """The lost commits whose place a snapshot of another program has, with that snapshot.

    The others may be in the making at this moment, or were begun by a writer that was killed.
    """
    for lost in find_lost_commits(store):
        instead = store.snapshots.find(lost.record.snapshot_id)
        if instead is not None and COMMITS_PROPERTY not in (instead.properties or {}):
            yield lost, instead


def lost_commit_named(store: TableStore, manifest_list: str) -> LostCommit:
    """The commit of a delta manifest list, whether the table has it or not; `NotFoundError` where there is none."""
    text = store.manifests.list_property(manifest_list, COMMIT_RECORD)
    if text is None:
        raise NotFoundError(
            f"table {store.name} has no manifest list {manifest_list} of a commit that could be made again: it was "
            f"removed as an orphan, or another program wrote it; {COMMAND} {place_text(store)} lists what there is",
            table=store.name,
        )
    return LostCommit(store, manifest_list, commit_record(text, manifest_list))


def the_lost_commit(store: TableStore) -> LostCommit:
    """The one that there is; `NotFoundError` for none, `InvalidRequestError` for several."""
    found = find_lost_commits(store)
    if not found:
        raise NotFoundError(f"table {store.name}: no commit is lost; nothing was committed", table=store.name)
    if len(found) > 1:
        names = "\n".join(f"  {each.manifest_list}: {each.text}" for each in found)
        raise InvalidRequestError(
            f"table {store.name}: several commits are lost; say which by its manifest list, the oldest first:\n{names}",
            table=store.name,
        )
    return found[0]


def is_missing(known: LastCommits, record: CommitRecord) -> bool:
    """True where the last commits of a table do not have the commit, nor a later one of its user."""
    trace = known.users.get(record.user)
    return trace is None or trace.identifier < record.identifier


def lost_error(store: TableStore, lost: Snapshot, found: Snapshot) -> LostCommitError:
    """The error for a snapshot of ours in whose place another one is."""
    what = f"snapshot {lost.id}, commit {lost.commit_identifier} of user {lost.commit_user!r}, was made and is lost"
    record = CommitRecord(lost.id, lost.commit_user, lost.commit_identifier)
    return _error(LostCommit(store, lost.delta_manifest_list, record), what, found)


def never_made_error(lost: LostCommit, found: Snapshot) -> LostCommitError:
    """The error for a commit of a process that is gone, which was to be the snapshot that another one is."""
    return _error(lost, f"{lost.text}, is not in it", found)


def _error(lost: LostCommit, what: str, found: Snapshot) -> LostCommitError:
    store, record, files = lost.store, lost.record, lost.files
    return LostCommitError(
        f"table {store.name}: {what}. Another program (user {found.commit_user!r}, {found.commit_kind} "
        f"{found.commit_identifier}) has copied its own snapshot to {store.paths.snapshot(found.id)}. "
        f"{lost.rows_text}. Stop the program that writes without conditional puts, then commit it again, before "
        f"orphans are removed: {COMMAND} {place_text(store)} --manifest-list {lost.manifest_list}",
        table=store.name,
        snapshot_id=record.snapshot_id,
        commit_user=record.user,
        identifier=record.identifier,
        files=tuple(files),
        manifest_list=lost.manifest_list,
    )


def place_text(store: TableStore) -> str:
    """Warehouse and table as a command takes them."""
    database, _, table = split_branch(store.name)[0].partition(".")
    end, location = f"/{database}.db/{table}", store.paths.location
    return f"{location.removesuffix(end)} {quote(store.name)}" if location.endswith(end) else "WAREHOUSE TABLE"


def _named_lists(store: TableStore) -> set[str]:
    lines = [store.paths, *store.snapshots.other_lines()]
    named = (each for line in lines for each in _snapshots_of(SnapshotStore(store.env, line)))
    copies = (each for line in lines for each in ChangelogStore(store.env, line).all().values())
    return {name for each in (*named, *copies) for name, _ in each.manifest_lists}


def _snapshots_of(line: SnapshotStore) -> Iterator[Snapshot]:
    for snapshot_id in line.list_ids():
        snapshot = line.find(snapshot_id)  # not what is remembered under the id
        if snapshot is not None:
            yield snapshot
    yield from line.tags.all().values()
