"""The index files of the next snapshot: those of the latest, less what the change deletes, with what it adds.

An index manifest is never inherited without a look. What it says must be true of the files of the next snapshot:

1. what the change deletes is live, what it adds is not;
2. of HASH and DELETION_VECTORS a bucket has one file (append tables without buckets: vectors in several), so a change
   that adds one must delete the one there is: another commit may have written it since;
3. a data file that is deleted takes its deletion vector along: an index file that marks it is deleted, or replaced, by
   the same change. Otherwise the vectors would be counted, and sought, for a file that is not there;
4. vectors mark live files only, and those of a file are in one index file;
5. where an overwrite leaves no file in a bucket, the index files of that bucket go with them.

Everything here takes values and returns values. Source: FORMAT.md §3.4, §3.6, §4.3, §10.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.commit.conflict import Conflict, LiveBuckets
from freshet.storage.model.manifest import DELETION_VECTORS_INDEX, HASH_INDEX, BucketId, EntryKind, IndexEntry
from freshet.storage.model.snapshot import CommitKind

_ONE_OF_A_BUCKET: Final = frozenset({HASH_INDEX, DELETION_VECTORS_INDEX})


def find_index_conflicts(
    change: SnapshotChange, index: Sequence[IndexEntry], live: LiveBuckets, *, has_buckets: bool
) -> list[Conflict]:
    """Checks 1 to 4; `index` is what is live at the latest snapshot, `live` has the data files of touched buckets."""
    if not index and not change.index_entries:
        return []
    names = {entry.file.file_name for entry in index}
    deleted = {entry.file.file_name for entry in change.index_entries if entry.kind is EntryKind.DELETE}
    conflicts = []
    for entry in change.index_entries:
        name = entry.file.file_name
        if entry.kind is EntryKind.DELETE and name not in names:
            conflicts.append(_conflict(entry, f"index file {name} is not live any more"))
        elif entry.kind is EntryKind.ADD and name in names:
            conflicts.append(_conflict(entry, f"index file {name} is live already"))
    kept = [entry for entry in index if entry.file.file_name not in deleted]
    added = [entry for entry in change.index_entries if entry.kind is EntryKind.ADD]
    if has_buckets:
        conflicts += _second_of_a_bucket(kept, added)
    return conflicts + _wrong_vectors(change, kept, added, live)


def next_index(change: SnapshotChange, index: Sequence[IndexEntry], live: LiveBuckets) -> list[IndexEntry]:
    """Index files that are live after the change, which has no conflicts."""
    deleted = {entry.file.file_name for entry in change.index_entries if entry.kind is EntryKind.DELETE}
    emptied = _emptied(change, live) if index else frozenset()
    kept = [
        entry
        for entry in index
        if entry.file.file_name not in deleted
        and not (entry.file.index_type in _ONE_OF_A_BUCKET and entry.bucket_id in emptied)
    ]
    return kept + [entry for entry in change.index_entries if entry.kind is EntryKind.ADD]


def _second_of_a_bucket(kept: Iterable[IndexEntry], added: Iterable[IndexEntry]) -> list[Conflict]:
    taken = {_identity(entry): entry for entry in kept if entry.file.index_type in _ONE_OF_A_BUCKET}
    conflicts = []
    for entry in added:
        other = taken.get(_identity(entry))
        if other is not None and entry.file.index_type in _ONE_OF_A_BUCKET:
            conflicts.append(
                _conflict(
                    entry,
                    f"{entry.file.index_type} index file {other.file.file_name} is live, "
                    f"{entry.file.file_name} does not replace it",
                )
            )
        taken[_identity(entry)] = entry
    return conflicts


def _wrong_vectors(
    change: SnapshotChange, kept: Iterable[IndexEntry], added: Iterable[IndexEntry], live: LiveBuckets
) -> list[Conflict]:
    # A change of level keeps the file, and its vector.
    stays = {entry.file.file_name for entry in change.entries if entry.kind is EntryKind.ADD}
    gone = {entry.file.file_name for entry in change.entries if entry.kind is EntryKind.DELETE} - stays
    emptied = _emptied(change, live)
    conflicts = [
        _conflict(entry, f"index file {entry.file.file_name} marks rows of {name}, which the change deletes")
        for entry in kept
        if entry.bucket_id not in emptied
        for name in sorted(entry.marked_files & gone)
    ]
    marked = {name: entry for entry in kept for name in entry.marked_files}
    for entry in added:
        if not entry.marked_files:
            continue
        conflicts += [
            _conflict(
                entry, f"index file {marked[name].file.file_name} marks rows of {name} too, and would not be replaced"
            )
            for name in sorted(entry.marked_files & marked.keys())
        ]
        marked |= dict.fromkeys(entry.marked_files, entry)
        there = {item.file.file_name for item in live.get(entry.bucket_id, {}).values()}
        conflicts += [
            _conflict(entry, f"index file {entry.file.file_name} marks rows of {name}, which is not live any more")
            for name in sorted(entry.marked_files - ((there | stays) - gone))
        ]
    return conflicts


def _emptied(change: SnapshotChange, live: LiveBuckets) -> frozenset[BucketId]:
    """Buckets that an overwrite leaves without a file."""
    if change.kind is not CommitKind.OVERWRITE:
        return frozenset()
    deleted = {entry.identity for entry in change.entries if entry.kind is EntryKind.DELETE}
    filled = {entry.bucket_id for entry in change.entries if entry.kind is EntryKind.ADD}
    touched = {entry.bucket_id for entry in change.entries if entry.kind is EntryKind.DELETE}
    return frozenset(bucket for bucket in touched - filled if not live.get(bucket, {}).keys() - deleted)


def _identity(entry: IndexEntry) -> tuple[bytes, int, str]:
    return entry.partition, entry.bucket, entry.file.index_type


def _conflict(entry: IndexEntry, reason: str) -> Conflict:
    return Conflict(entry.partition, entry.bucket, reason)
