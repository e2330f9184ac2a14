"""Conflict checks: does a change still fit on the snapshot it is to be built on (`find_conflicts`), and are its rows
numbered above what is there (`outnumbered_buckets`)?

1. Within a partition the positive bucket counts of live and added files are equal; of an overwrite, those of the files
   that it adds and leaves.
2. The change alone never adds one identity twice; on the live files it never adds one that is live and never deletes
   one that is not; the files that a compaction looked keys up in are live, at whatever level.
3. Primary-key tables: in every (partition, bucket, level >= 1) the key ranges of the files that remain are disjoint.
   Where live files overlap already, the bucket is damaged: `compact --repair` merges that level again.
4. Primary-key tables: a compaction of level 0 knew every file that may hold its keys and
   * is at level 0 or not below its outputs, with rows older than its newest: a delete that it dropped, or an old
     value that it merged into a row of today, would else come before them;
   * where compactions look keys up, any file above level 0: one that another compaction put there meanwhile has
     emitted its rows as changes of the same old rows already, or holds values that the result lacks.
   Rows that wait for their bucket have no such order: what came meanwhile waits on.

Every check holds for each bucket by itself: what is wrong in one says nothing of the others. Checks 2 to 4 need the
live files of the touched buckets only. A plain append can fail only the first check. `find_conflicts` takes values and
returns values; the caller decides what a conflict leads to.

Source: FORMAT.md §3.4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import pairwise
from typing import Any, Final

from freshet._frozen import Frozen
from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.exceptions import NotFoundError
from freshet.storage.metadata.live_files import BucketFiles, delta_manifests_at_once, entries_of
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import FileSource
from freshet.storage.model.manifest import BucketId, EntryKind, FileIdentity, ManifestEntry, ManifestFileMeta
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.choices import MergeEngine
from freshet.storage.options.core import CoreOptions
from freshet.storage.paths import POSTPONE_BUCKET

SortKey = Callable[[bytes], Any]
"""Turns a serialized key (`min_key`, `max_key`) into something that compares as keys do."""


LEVEL_MAX: Final = 2**31 - 1

LiveBuckets = Mapping[BucketId, BucketFiles]
"""Live files by identity, of each bucket that has some."""


class Conflict(Frozen):
    """Why a change does not fit in one bucket."""

    partition: bytes
    bucket: int
    reason: str
    is_damage: bool = False
    """The bucket was damaged before: no other change fits either."""

    @property
    def bucket_id(self) -> BucketId:
        """The bucket."""
        return self.partition, self.bucket


class LooksUp(Enum):
    """In which files the compactions of a table look up what is stored of the keys of level 0."""

    NOTHING = "nothing"
    LEVELS_ABOVE = "levels above"
    OF_REWRITTEN = "levels above, for files that are written again"
    """A file that only changes its level holds the newest rows of its keys, which need nothing of those above."""


def looks_up(options: CoreOptions) -> LooksUp:
    """What the options of a table say."""
    if not options.needs_lookup:
        return LooksUp.NOTHING
    is_plain = not options.changelog_producer.emits.by_lookup and not options.deletion_vectors_enabled
    is_rewritten = is_plain and options.merge_engine is not MergeEngine.FIRST_ROW
    return LooksUp.OF_REWRITTEN if is_rewritten else LooksUp.LEVELS_ABOVE


def find_conflicts(
    change: SnapshotChange,
    live: LiveBuckets,
    *,
    bucket_counts: Mapping[bytes, int],
    sort_key: SortKey | None,
    looks_up: LooksUp = LooksUp.NOTHING,
    numbers_repeat: bool = False,
) -> list[Conflict]:
    """Runs all checks that concern the kind of the change; empty when it fits.

    `live` holds the live files of (at least) the touched buckets, `bucket_counts` the bucket count in force of touched
    partitions that have files; for an overwrite, of those in which it leaves files. `sort_key` is None for append-only
    tables.
    """
    conflicts = bucket_count_conflicts(change, bucket_counts)
    conflicts += _duplicate_adds(change.entries)
    if change.kind is CommitKind.APPEND and not change.has_deletes:
        return conflicts
    file_conflicts = _file_conflicts(change, live)
    if sort_key is not None:
        fitting = change.without(frozenset(conflict.bucket_id for conflict in file_conflicts))
        file_conflicts += _key_range_conflicts(fitting, live, sort_key)
        if change.kind is CommitKind.COMPACT:
            file_conflicts += _unknown_files(fitting, live, sort_key, looks_up, newer_by=0 if numbers_repeat else 1)
    return conflicts + file_conflicts


def bucket_count_conflicts(change: SnapshotChange, bucket_counts: Mapping[bytes, int]) -> list[Conflict]:
    """Check 1. Counts of -1 and -2 (no fixed buckets) are never compared."""
    seen = {partition: count for partition, count in bucket_counts.items() if count > 0}
    conflicts = []
    for entry in change.entries:
        if entry.kind is EntryKind.DELETE or entry.total_buckets <= 0:
            continue
        expected = seen.setdefault(entry.partition, entry.total_buckets)
        if expected != entry.total_buckets:
            conflicts.append(
                Conflict(
                    entry.partition,
                    entry.bucket,
                    f"the partition has {expected} buckets, the change was written for {entry.total_buckets}; "
                    "start the writer again: it goes on with the buckets of the partition",
                )
            )
    return conflicts


def _file_conflicts(change: SnapshotChange, live: LiveBuckets) -> list[Conflict]:
    """Check 2, without what the change does to itself."""
    deleted = {entry.identity for entry in change.entries if entry.kind is EntryKind.DELETE}
    conflicts = []
    for bucket, names in change.lookups.items():
        there = {entry.file.file_name for entry in live.get(bucket, {}).values()}
        gone = [name for name in names if name not in there]
        conflicts += [
            Conflict(*bucket, f"file {name}, in which keys were looked up, is not live any more") for name in gone
        ]
    for entry in change.entries:
        identity, file = entry.identity, entry.file
        is_live = identity in live.get(entry.bucket_id, {})
        if entry.kind is EntryKind.DELETE:
            if not is_live:
                conflicts.append(_conflict(entry, f"file {file.file_name} at level {file.level} is not live any more"))
        elif identity in deleted:
            # Readers cancel without regard to order, so the file would be lost.
            conflicts.append(_conflict(entry, f"file {file.file_name} is deleted and added at one level"))
        elif is_live:
            conflicts.append(_conflict(entry, f"file {file.file_name} at level {file.level} is live already"))
    return conflicts


def _key_range_conflicts(change: SnapshotChange, live: LiveBuckets, sort_key: SortKey) -> list[Conflict]:
    """Check 3, for the levels that the change adds to."""
    added: dict[tuple[bytes, int, int], list[ManifestEntry]] = defaultdict(list)
    for entry in change.entries:
        if entry.kind is EntryKind.ADD and entry.file.level >= 1:
            added[entry.partition, entry.bucket, entry.file.level].append(entry)
    deleted = {entry.identity for entry in change.entries if entry.kind is EntryKind.DELETE}
    conflicts = []
    for (partition, bucket, level), run in added.items():
        kept = [
            entry
            for identity, entry in live.get((partition, bucket), {}).items()
            if entry.file.level == level and identity not in deleted
        ]
        new = {entry.identity for entry in run}
        ranges = sorted(
            ((sort_key(entry.file.min_key), sort_key(entry.file.max_key), entry) for entry in (*kept, *run)),
            key=lambda item: item[0],
        )
        for (_, max_key, left), (min_key, _, right) in pairwise(ranges):
            if max_key < min_key:
                continue
            names = f"{left.file.file_name} and {right.file.file_name}"
            is_damage = not (left.identity in new or right.identity in new)
            conflicts.append(
                Conflict(partition, bucket, f"files {names} overlap at level {level}", is_damage=is_damage)
            )
    return conflicts


def _unknown_files(
    change: SnapshotChange, live: LiveBuckets, sort_key: SortKey, looks_up: LooksUp, newer_by: int
) -> list[Conflict]:
    """Check 4. A row is newer than others where its number is larger by `newer_by` at least."""
    deleted = {entry.identity for entry in change.entries if entry.kind is EntryKind.DELETE}
    taken: dict[BucketId, list[ManifestEntry]] = defaultdict(list)
    for entry in change.entries:
        if entry.kind is EntryKind.DELETE and entry.file.level == 0 and entry.bucket != POSTPONE_BUCKET:
            taken[entry.bucket_id].append(entry)
    added: dict[BucketId, dict[str, int]] = defaultdict(dict)
    for entry in change.entries:
        if entry.kind is EntryKind.ADD:
            added[entry.bucket_id][entry.file.file_name] = entry.file.level
    conflicts = []
    for bucket, inputs in taken.items():
        known, levels = change.lookups.get(bucket, ()), added[bucket]
        output_level = max(levels.values(), default=LEVEL_MAX)
        newest = max(entry.file.max_sequence_number for entry in inputs)
        ranges = [
            (sort_key(entry.file.min_key), sort_key(entry.file.max_key), _looked_up_to(looks_up, entry, levels))
            for entry in inputs
        ]
        for identity, other in live.get(bucket, {}).items():
            file = other.file
            if identity in deleted or file.file_name in known:
                continue
            is_overtaken = file.level <= output_level and file.min_sequence_number < newest + newer_by
            low, high = sort_key(file.min_key), sort_key(file.max_key)
            if any(
                (is_overtaken or 1 <= file.level <= deepest) and not (high < first or last < low)
                for first, last, deepest in ranges
            ):
                what = "has older rows of its keys" if file.level == 0 else "came there after keys of it were looked up"
                conflicts.append(Conflict(*bucket, f"file {file.file_name} at level {file.level} {what}"))
    return conflicts


def _looked_up_to(looks_up: LooksUp, entry: ManifestEntry, levels: Mapping[str, int]) -> int:
    """The highest level at which files that may hold keys of this input had to be known, whatever their age."""
    match looks_up:
        case LooksUp.NOTHING:
            return 0
        case LooksUp.OF_REWRITTEN:
            return levels.get(entry.file.file_name, LEVEL_MAX)
        case LooksUp.LEVELS_ABOVE:
            return LEVEL_MAX


def _duplicate_adds(delta: Iterable[ManifestEntry]) -> list[Conflict]:
    seen: set[FileIdentity] = set()
    conflicts = []
    for entry in delta:
        if entry.kind is EntryKind.ADD:
            if entry.identity in seen:
                conflicts.append(_conflict(entry, f"file {entry.file.file_name} is added twice"))
            seen.add(entry.identity)
    return conflicts


def _conflict(entry: ManifestEntry, reason: str) -> Conflict:
    return Conflict(entry.partition, entry.bucket, reason)


def outnumbered_buckets(store: TableStore, change: SnapshotChange, latest: Snapshot | None) -> frozenset[BucketId]:
    """Buckets in which rows that were committed meanwhile have the number of a new row, or a larger one: there the rows
    of an append are not numbered above everything live any more.

    Of two rows of a key the one with the larger sequence number is the later one. A writer numbers its rows when it
    flushes them, above the files of the snapshot that it then looked at; what others commit between that and its own
    claim may be numbered as high or higher, and its rows, committed last, would not be seen. So before each claim:

        smallest new number > largest number of what was added to the bucket since the snapshot it was numbered upon

    | snapshots since then | what is read |
    |---|---|
    | none | nothing |
    | some, all there | their deltas |
    | some expired | the live files of the buckets |

    With `sequence.snapshot-ordering` numbers of writers do not matter: the files that a commit brings get the id of its
    snapshot instead, in their entries, and are read with that; what compactions write has it in its rows
    (`numbered_by_snapshot`, `files.data_file_reader`).

    Source: MERGING.md §1, §1.5.
    """
    if latest is None:
        return frozenset()
    waiting = {bucket: at for bucket, at in change.numbered_at.items() if at < latest.id}
    if not waiting:
        return frozenset()
    largest = _largest_added(store, waiting, latest)
    smallest: dict[BucketId, int] = {}
    for entry in change.entries:
        if entry.kind is EntryKind.ADD and entry.bucket_id in largest:
            number = entry.file.min_sequence_number
            smallest[entry.bucket_id] = min(smallest.get(entry.bucket_id, number), number)
    return frozenset(bucket for bucket, number in smallest.items() if number <= largest[bucket])


def numbered_by_snapshot(change: SnapshotChange, snapshot_id: int) -> SnapshotChange:
    """The change with its new rows numbered by the snapshot that is to be; compactions keep the numbers of rows, and
    so does what a rescale writes."""
    if change.kind is CommitKind.COMPACT:
        return change
    entries = tuple(
        replace(
            entry,
            file=replace(entry.file, min_sequence_number=snapshot_id, max_sequence_number=snapshot_id),
        )
        if entry.kind is EntryKind.ADD and entry.file.file_source is not FileSource.COMPACT
        else entry
        for entry in change.entries
    )
    return replace(change, entries=entries)


def _largest_added(store: TableStore, waiting: Mapping[BucketId, int], latest: Snapshot) -> dict[BucketId, int]:
    """The largest number of the rows that each bucket got since its snapshot, or a larger one that lives."""
    largest: dict[BucketId, int] = {}
    try:
        ids = range(min(waiting.values()) + 1, latest.id + 1)
        followed = [latest if each == latest.id else store.snapshots.snapshot(each) for each in ids]
        # Rows that were compacted keep their numbers; those that had waited for their bucket get them there.
        if not store.options.has_postponed_buckets:
            followed = [snapshot for snapshot in followed if snapshot.commit_kind is not CommitKind.COMPACT]
        since = [{bucket for bucket, at in waiting.items() if at < snapshot.id} for snapshot in followed]
        for buckets, delta in zip(since, _deltas(store, followed, since), strict=True):
            _note(largest, (entry for entry in delta if entry.bucket_id in buckets))
    except NotFoundError:
        live = store.live.of_buckets(latest, waiting.keys()).by_bucket
        for bucket in waiting:
            _note(largest, live.get(bucket, {}).values())
    return largest


def _deltas(
    store: TableStore, snapshots: Sequence[Snapshot], buckets: Sequence[Collection[BucketId]]
) -> list[list[ManifestEntry]]:
    """What each commit changed in its buckets, and maybe in others."""
    manifests = [
        [manifest for manifest in of_commit if _may_hold(store, manifest, wanted)]
        for of_commit, wanted in zip(delta_manifests_at_once(store.manifests, snapshots), buckets, strict=True)
    ]
    with store.manifests.ahead(manifest for of_commit in manifests for manifest in of_commit):
        return [entries_of(store.manifests, of_commit) for of_commit in manifests]


def _may_hold(store: TableStore, manifest: ManifestFileMeta, buckets: Collection[BucketId]) -> bool:
    low, high = manifest.min_bucket, manifest.max_bucket
    if low is not None and high is not None and not any(low <= bucket <= high for _, bucket in buckets):
        return False
    return store.manifests.may_hold(manifest, {partition for partition, _ in buckets})


def _note(largest: dict[BucketId, int], entries: Iterable[ManifestEntry]) -> None:
    for entry in entries:
        if entry.kind is EntryKind.ADD:
            number = entry.file.max_sequence_number
            largest[entry.bucket_id] = max(largest.get(entry.bucket_id, number), number)
