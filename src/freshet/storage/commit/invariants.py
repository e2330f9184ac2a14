"""What must hold in every version of a table, as predicates over its metadata: each finds the damage of one kind.

| predicate | README | what it looks at |
|---|---|---|
| `ids_are_contiguous`, `hints_are_not_ahead` | 1 | the ids of the snapshots, the hints and tags |
| `recorded_files_are_there` | 2 | the files of a folder that a snapshot names, and their sizes |
| `identifiers_grow` | 3 | a snapshot and the one before |
| `levels_are_runs` | 4 | the live files of a bucket |
| `bounds_are_in_order` | 5 | each file, by what its entry says; the rows of a file are not read |
| `deletes_meet_files`, `files_live_once`, `bucket_count_is_one` | | the entries of a bucket |
| `vectors_mark_live_files` | | the live files of a bucket and its deletion vectors |
| `records_add_up` | | a snapshot's number of records and its live files |
| `commits_are_kept` | 3 | a commit of ours and the snapshot of another program in its place |

Invariant 6, one door to files, clock and chance, is about the program: `tests/test_architecture.py` holds it.

A new invariant is a function here, in one of the two tuples at the end or called by `table_check`, and a test in which
a table made by hand breaks it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

from freshet._frozen import Frozen
from freshet.storage.commit.last_commits import COMMITS_PROPERTY, parse_last_commits
from freshet.storage.merge.overlaps import overlapping_levels
from freshet.storage.merge.sorted_runs import build_levels
from freshet.storage.metadata.hash_index_store import REPAIR as REPAIR_HASH_INDEX
from freshet.storage.metadata.live_files import without_deleted
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import EntryKind, IndexEntry, ManifestEntry
from freshet.storage.model.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from freshet.storage.paths import POSTPONE_BUCKET

REPAIR: Final = "merge the files again: freshet compact WAREHOUSE TABLE --repair"
COMPACT: Final = "write the bucket again: freshet compact WAREHOUSE TABLE --full"
LOST: Final = (
    "stop the program that writes without conditional puts, then commit it again, before orphans are removed: freshet "
    "repair lost-commit WAREHOUSE TABLE --manifest-list {}"
)
RESTORE: Final = "restore {} from a backup"
REPORT: Final = "no command mends this: keep the folder manifest/ as it is and report it with the snapshot's file"


class FileKind(Enum):
    """Kinds of the files that a snapshot names, by what is missing where one is lost; the value is the remedy."""

    READ = "restore it from a backup; until then reads of snapshot {snapshot_id} in {folder} fail"
    """Metadata, data files, deletion vectors."""

    HASH_INDEX = f"rows are read without it, and writers refuse the partition; {REPAIR_HASH_INDEX}"
    """Which keys a dynamic bucket has: only writers ask it."""

    EARLIER_HASH_INDEX = "only a rollback to this earlier snapshot would need it; it is gone when the snapshot expires"
    """The same of a snapshot that is not the latest."""

    FILE_INDEX = (
        "filters leave out less without it, no row is missing; a compaction that rewrites the data file writes it "
        "again: freshet compact WAREHOUSE TABLE --full, where all is compacted already with the table option "
        "compaction.force-rewrite-all-files=true"
    )
    """What filters ask of a data file, next to it."""


class Damage(Frozen):
    """One way in which a table breaks an invariant; `where` is the path of a folder or file."""

    invariant: str
    where: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.remedy}"


class BucketVersion(Frozen, dict=True):
    """One bucket at one snapshot: its entries in base and delta, in order, and its index files."""

    snapshot_id: int
    folder: str
    bucket: int
    entries: Sequence[ManifestEntry]
    index_entries: Sequence[IndexEntry] = ()
    sort_key: Callable[[bytes], Any] | None = None
    """How keys compare; None for a table without a primary key."""
    total_buckets: int | None = None
    """How many buckets the files of the partition's other buckets say it has; None where nothing is known."""

    @cached_property
    def live(self) -> list[ManifestEntry]:
        """Entries of the live files."""
        return without_deleted(self.entries)

    @cached_property
    def files(self) -> list[DataFileMeta]:
        """The live files."""
        return [entry.file for entry in self.live]

    def damage(self, invariant: str, what: str, remedy: str) -> Damage:
        """Damage of this bucket."""
        return Damage(invariant, self.folder, f"snapshot {self.snapshot_id}: {what}", remedy)


def ids_are_contiguous(folder: str, ids: Sequence[int]) -> Iterator[Damage]:
    """The ids of the snapshots, ascending, have no gap: expiry removes the oldest first."""
    for before, after in pairwise(ids):
        if after != before + 1:
            missing = f"snapshot {before + 1}" if after == before + 2 else f"snapshots {before + 1} to {after - 1}"
            remedy = RESTORE.format("their files" if after > before + 2 else f"the file of {missing}")
            what = f"{missing} missing between {before} and {after}; readers that follow the table stop there"
            yield Damage("ids_are_contiguous", folder, what, remedy)


def hints_are_not_ahead(folder: str, ids: Sequence[int], named: Mapping[str, int]) -> Iterator[Damage]:
    """No hint and no tag, by its path, names a snapshot above the newest: that one was there and was lost."""
    newest = ids[-1] if ids else 0
    for path, snapshot_id in named.items():
        if snapshot_id > newest:
            there = f"the newest there is is {newest}" if ids else "there are none"
            yield Damage(
                "hints_are_not_ahead",
                path,
                f"it names snapshot {snapshot_id}, but {there}: a snapshot file was lost or removed by hand",
                f"{RESTORE.format(f'{folder}/snapshot-{snapshot_id}')}; or, to go back on purpose, remove {path}",
            )


def recorded_files_are_there(
    folder: str,
    snapshot_id: int,
    recorded: Mapping[str, int | None],
    found: Mapping[str, int],
    kind: FileKind = FileKind.READ,
) -> Iterator[Damage]:
    """Files of one kind that a snapshot names, by path with their size, are all there and as long as recorded."""
    for path, size in recorded.items():
        if path not in found:
            what = "it is not there"
        elif size is not None and found[path] != size:
            what = f"it has {found[path]} bytes where {size} are recorded: it is truncated or was overwritten"
        else:
            continue
        remedy = kind.value.format(snapshot_id=snapshot_id, folder=folder)
        yield Damage("recorded_files_are_there", path, f"snapshot {snapshot_id} names the file, and {what}", remedy)


def identifiers_grow(path: str, before: Snapshot | None, after: Snapshot) -> Iterator[Damage]:
    """What a snapshot of ours knows of commits is what the one before knew, and a commit of a higher number; a rollback
    knows what was known at the snapshot that it goes back to."""
    if after.is_rollback:
        return
    texts = [(each.properties or {}).get(COMMITS_PROPERTY) for each in (before, after) if each is not None]
    if len(texts) < 2 or texts[0] is None or texts[1] is None:
        return
    known, knows = (parse_last_commits(text, after.id).users for text in texts if text is not None)
    remedy = "look for a second program of this commit user, stop it, and compare the table's rows with its source"
    for user, trace in known.items():
        last = knows.get(user)
        if last is None or last.identifier < trace.identifier:
            now = "knows of no commit" if last is None else f"knows commit {last.identifier}"
            what = f"snapshot {after.id} {now} of user {user!r} where the one before knew {trace.identifier}"
            yield Damage("identifiers_grow", path, what, remedy)
    trace = known.get(after.commit_user)  # type: ignore[assignment]
    is_numbered = after.commit_kind is not CommitKind.COMPACT and after.commit_identifier != BATCH_COMMIT_IDENTIFIER
    if is_numbered and trace is not None and after.commit_user in knows and after.commit_identifier <= trace.identifier:
        what = f"snapshot {after.id} is commit {after.commit_identifier} of user {after.commit_user!r}"
        yield Damage("identifiers_grow", path, f"{what}, who had made {trace.identifier} before", remedy)


def levels_are_runs(version: BucketVersion) -> Iterator[Damage]:
    """Above level 0 the files of a level have disjoint key ranges, so that a key is in one of them at most."""
    if version.sort_key is None:
        return
    for reason in overlapping_levels(build_levels(version.files, 1, version.sort_key)).values():
        yield version.damage("levels_are_runs", f"{reason}, so that a key may be read twice", REPAIR)


def bounds_are_in_order(version: BucketVersion) -> Iterator[Damage]:
    """The smallest key and number of a file are not above its largest, and it has not more deletes than rows. Rows
    that wait for their bucket are in the order of writing."""
    key = None if version.bucket == POSTPONE_BUCKET else version.sort_key
    for file in version.files:
        wrong = []
        if key is not None and key(file.max_key) < key(file.min_key):
            wrong.append("its smallest key is above its largest")
        if file.max_sequence_number < file.min_sequence_number:
            wrong.append(f"its sequence numbers go from {file.min_sequence_number} to {file.max_sequence_number}")
        if not 0 <= (file.delete_row_count or 0) <= file.row_count:
            wrong.append(f"{file.delete_row_count} of its {file.row_count} rows are deletes")
        if wrong:
            yield version.damage("bounds_are_in_order", f"file {file.file_name}: {', '.join(wrong)}", COMPACT)


def deletes_meet_files(version: BucketVersion) -> Iterator[Damage]:
    """What is deleted was added, in base or delta."""
    added = {entry.identity for entry in version.entries if entry.kind is EntryKind.ADD}
    for entry in version.entries:
        if entry.kind is EntryKind.DELETE and entry.identity not in added:
            what = f"file {entry.file.file_name} at level {entry.file.level} is deleted, and no manifest adds it"
            yield version.damage("deletes_meet_files", what, REPORT)


def files_live_once(version: BucketVersion) -> Iterator[Damage]:
    """No file is live at two levels or added twice: its rows would be read twice."""
    for name, count in Counter(file.file_name for file in version.files).items():
        if count > 1:
            levels = sorted(file.level for file in version.files if file.file_name == name)
            what = f"file {name} is live {count} times, at levels {', '.join(map(str, levels))}"
            yield version.damage("files_live_once", what, COMPACT)


def bucket_count_is_one(version: BucketVersion) -> Iterator[Damage]:
    """All files of a partition say the same number of buckets, and the bucket is one of them."""
    counts = {entry.total_buckets for entry in version.live}
    known = counts | ({version.total_buckets} if counts and version.total_buckets is not None else set())
    if len(known) > 1:
        what = f"files of the partition were written with {' and '.join(map(str, sorted(known)))} buckets"
    elif any(0 < count <= version.bucket for count in counts):
        what = f"bucket {version.bucket} of a partition of {counts.pop()} buckets"
    else:
        return
    remedy = "keys may be in two buckets: overwrite the partition with its own rows, read once, by Apache Paimon"
    yield version.damage("bucket_count_is_one", what, remedy)


def vectors_mark_live_files(version: BucketVersion) -> Iterator[Damage]:
    """Deletion vectors mark rows of live files only."""
    names = {file.file_name for file in version.files}
    for entry in version.index_entries:
        for name in sorted(entry.marked_files - names):
            what = f"index file {entry.file.file_name} marks rows of {name}, which is not live"
            yield version.damage("vectors_mark_live_files", what, COMPACT)


def records_add_up(path: str, snapshot: Snapshot, row_count: int) -> Iterator[Damage]:
    """The number of records that a snapshot carries is that of the rows of its live files."""
    if snapshot.total_record_count != row_count:
        what = f"snapshot {snapshot.id} counts {snapshot.total_record_count} records, its live files hold {row_count}"
        yield Damage("records_add_up", path, f"{what}: files may have been lost or added twice", REPORT)


def commits_are_kept(path: str, commit: str, rows: str, instead: Snapshot) -> Iterator[Damage]:
    """No program has put its snapshot in the place of one that was won; `path` is that of the manifest list."""
    other = f"{instead.commit_kind} {instead.commit_identifier} of user {instead.commit_user!r}"
    what = f"{commit}, was replaced by {other}. {rows}"
    yield Damage("commits_are_kept", path, what, LOST.format(path.rpartition("/")[2]))


BucketPredicate = Callable[[BucketVersion], Iterable[Damage]]

OF_A_BUCKET: Final[tuple[BucketPredicate, ...]] = (
    levels_are_runs,
    bounds_are_in_order,
    deletes_meet_files,
    files_live_once,
    bucket_count_is_one,
    vectors_mark_live_files,
)


def bucket_damage(version: BucketVersion) -> list[Damage]:
    """All damage of a bucket."""
    return [damage for predicate in OF_A_BUCKET for damage in predicate(version)]
