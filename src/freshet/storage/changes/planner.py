"""Plans reading the changes of one snapshot: which files, by bucket. Reads metadata only.

| source | entries read | files of a bucket come |
|---|---|---|
| DELTA | ADD of the delta manifests | as listed; of an append table by sequence number, packed into splits |
| CHANGELOG | of the changelog manifests | as listed: a -U is before its +U, maybe at the end of the file before |
| REPLACED | of the delta manifests, emitted levels | DELETEs as the state removed, ADDs as the state added |

REPLACED of an append table with deletion vectors: so do the rows of its other files that are marked now, and those that
a rollback marks no more.

Files of rows that wait for their bucket (`bucket=-2`) are read where there is no changelog producer, as rows that were
written: by the stream that begins with the state too. A producer emits them when a compaction has found their buckets.

Where rows move between partitions a key leaves one bucket and comes into another one in the same snapshot. So the
splits of a snapshot come twice: first for the keys that leave a bucket, then for those that are in it at the end. In
dynamic buckets the same holds of two states that are compared, and of an overwrite, which assigns its keys anew.

A filter leaves out partitions, buckets and files in which no row can match. Rows of changes are filtered one by one,
so that unlike in a scan each file may be left out by the statistics and indexes of any column, whatever lies over it.

Source: MERGING.md §6.1, §7.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from freshet.storage.changes.change_source import ChangeSource
from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.predicate import conjunction
from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.merge.sorted_runs import interval_partition
from freshet.storage.metadata.live_files import changelog_manifests, delta_manifests, grouped_by_bucket, live_entries
from freshet.storage.metadata.schema_alteration import emitted_levels
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import BucketId, EntryKind, IndexFileMeta, ManifestEntry, ManifestFileMeta
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.split import ChangeSplit, Split
from freshet.storage.options.choices import ChangelogProducer
from freshet.storage.paths import POSTPONE_BUCKET
from freshet.storage.scan.planner import Packing, plan_scan, split_bucket
from freshet.storage.scan.pruning import BucketPruning, FilePruning, FilesOfBucket, PartitionPruning, ScanFilter

_IndexFiles = tuple[IndexFileMeta, ...]
_Marks = Mapping[BucketId, _IndexFiles]


class ChangePlanner:
    """Plans for one table and filter."""

    def __init__(self, store: TableStore, scan_filter: ScanFilter | None = None) -> None:
        self._store = store
        self._filter = scan_filter
        self._pruning = FilePruning(store, scan_filter)

    def plan(self, snapshot: Snapshot, source: ChangeSource) -> list[ChangeSplit]:
        """The changes of a snapshot, in the order of partition and bucket; none where no row can match."""
        manifests = self._store.manifests
        match source:
            case ChangeSource.NOTHING:
                return []
            case ChangeSource.CHANGELOG:
                return self._stored(snapshot, self._entries(changelog_manifests(manifests, snapshot)))
            case ChangeSource.DELTA:
                return self._stored(snapshot, self._entries(delta_manifests(manifests, snapshot)))
            case ChangeSource.REPLACED:
                if snapshot.is_rollback and self._store.schema.has_primary_key:
                    return self._rolled_back(snapshot)
                return self._replaced(snapshot, list(self._entries(delta_manifests(manifests, snapshot))))

    def state(self, snapshot: Snapshot) -> list[ChangeSplit]:
        """The rows of a snapshot, with which a stream begins.

        Of a table whose changelog is made by compaction, only the rows that its changelog is ahead of: the changes of
        the others are still to come.
        """
        splits = plan_scan(self._store, snapshot, self._filter, keeps_level=emitted_levels(self._store.options))
        merged = [
            ChangeSplit(snapshot.id, split.partition, split.bucket, added=split, total_buckets=split.total_buckets)
            for split in splits
        ]
        return [*merged, *self._waiting(snapshot)]

    def _waiting(self, snapshot: Snapshot) -> list[ChangeSplit]:
        """The rows that wait for their bucket, as they were written: the latest of all."""
        if not self._reads_waiting:
            return []
        is_wanted = self._entry_test()
        entries = live_entries(self._store.manifests, snapshot, buckets={POSTPONE_BUCKET})
        in_order = sorted(filter(is_wanted, entries), key=lambda entry: entry.file.creation_time_ms or 0)
        return self._stored(snapshot, in_order)

    def difference(self, old: Snapshot | None, new: Snapshot) -> list[ChangeSplit]:
        """Keys that may differ between two snapshots of a keyed table: sections of which not all files are the same."""
        before, after = ({} if each is None else self._state_splits(each) for each in (old, new))
        return self._compared(new, before, after)

    def _compared(
        self, new: Snapshot, before: Mapping[BucketId, Split], after: Mapping[BucketId, Split]
    ) -> list[ChangeSplit]:
        store = self._store
        comparator = KeyComparator(store.key_types)
        found = []
        for bucket_id in sorted({*before, *after}):
            olds, news = before.get(bucket_id), after.get(bucket_id)
            if olds is not None and news is not None and olds.total_buckets != news.total_buckets:
                raise InvalidRequestError(
                    f"a partition of {store.location} was rewritten into {news.total_buckets} buckets, it had "
                    f"{olds.total_buckets}: its states cannot be compared bucket by bucket; scan both snapshots instead"
                )
            has_same_marks = olds is not None and news is not None and olds.index_files == news.index_files
            files = {file.file_name: file for state in (olds, news) if state is not None for file in state.files}
            for section in interval_partition(files.values(), comparator):
                names = {file.file_name for run in section for file in run.files}
                parts = [None if state is None else _part(state, names) for state in (olds, news)]
                kept = [{file.file_name for file in part.files} if part is not None else set() for part in parts]
                if kept[0] != kept[1] or not has_same_marks:
                    found.append(ChangeSplit(new.id, *bucket_id, removed=parts[0], added=parts[1], is_compared=True))
        return _leaving_first(found) if store.reassigns_keys else found

    def _rolled_back(self, snapshot: Snapshot) -> list[ChangeSplit]:
        """What differs between the state before a rollback and the one that it brought back; files in both stay where
        they are, so those in its delta are no states. Of a partition that it gives another number of buckets, all that
        was and all that is. `NotFoundError` when the snapshot before has expired."""
        old = self._store.snapshots.fresh(snapshot.id - 1)
        is_emitted = self._emitted_levels(snapshot)
        before, after = (self._state_splits(each, emitted=is_emitted) for each in (old, snapshot))
        rescaled = _partitions_with_other_buckets(before, after)
        number = snapshot.id
        gone = [
            ChangeSplit(number, *bucket, removed=state, total_buckets=state.total_buckets)
            for bucket, state in sorted(before.items())
            if bucket[0] in rescaled
        ]
        back = [
            ChangeSplit(number, *bucket, added=state, total_buckets=state.total_buckets)
            for bucket, state in sorted(after.items())
            if bucket[0] in rescaled
        ]
        before, after = (
            {bucket: state for bucket, state in states.items() if bucket[0] not in rescaled}
            for states in (before, after)
        )
        compared = self._compared(snapshot, before, after)
        manifests = delta_manifests(self._store.manifests, snapshot)
        waiting = [entry for entry in self._entries(manifests) if entry.bucket == POSTPONE_BUCKET]
        came = [entry for entry in waiting if entry.kind is EntryKind.ADD]
        return [*self._taken_away(snapshot, waiting), *gone, *back, *compared, *self._stored(snapshot, came)]

    def _state_splits(
        self, snapshot: Snapshot, *, emitted: Callable[[int], bool] | None = None
    ) -> dict[BucketId, Split]:
        """All files of each bucket that a scan of the snapshot reads, but for partitions and buckets left out; only of
        levels that were told, where these are given."""
        found: dict[BucketId, Split] = {}
        for split in plan_scan(self._store, snapshot, self._place_filter, keeps_level=emitted):
            bucket_id = (split.partition, split.bucket)
            before = found.get(bucket_id, replace(split, files=(), index_files=()))
            marks = dict.fromkeys((*before.index_files, *split.index_files))
            files = (*before.files, *split.files)
            found[bucket_id] = replace(split, files=files, index_files=tuple(marks), raw_convertible=False)
        return found

    def _emitted_levels(self, snapshot: Snapshot) -> Callable[[int], bool]:
        """Which levels were told when a snapshot was committed: its changelog producer may be another than the reader's
        by then."""
        store = self._store
        if snapshot.schema_id != store.schema.id:
            store = store.at_schema(snapshot.schema_id)
        return emitted_levels(store.options)

    @property
    def _place_filter(self) -> ScanFilter | None:
        """The conjuncts that hold for all rows of a key alike: others may be true of the old row or the new one."""
        if self._filter is None:
            return None
        keys = set(self._store.schema.primary_keys)
        parts = [part for part in self._filter.predicate.conjuncts() if part.columns() <= keys]
        return ScanFilter.bind(self._store.schema, conjunction(parts))

    def _stored(self, snapshot: Snapshot, entries: Iterable[ManifestEntry]) -> list[ChangeSplit]:
        splits = []
        added = (entry for entry in entries if entry.kind is EntryKind.ADD)
        for (partition, bucket), found in sorted(grouped_by_bucket(added).items()):
            kept = self._kept((partition, bucket), [entry.file for entry in found], keys_are_unique=True)
            groups = [kept] if self._store.schema.has_primary_key else self._packed(kept)
            splits += [
                ChangeSplit(snapshot.id, partition, bucket, tuple(group), total_buckets=found[0].total_buckets)
                for group in groups
                if group
            ]
        return _leaving_first(splits) if self._store.moves_rows else splits

    def _packed(self, files: list[DataFileMeta]) -> list[list[DataFileMeta]]:
        options = self._store.options
        packing = Packing(options.split_target_size_bytes, options.split_open_file_cost_bytes)
        return [group for group, _ in split_bucket(files, packing, None)]

    def _replaced(self, snapshot: Snapshot, entries: list[ManifestEntry]) -> list[ChangeSplit]:
        marks, marks_now = self._marks_before(snapshot), self._marks_of(snapshot)
        splits = self._remarked(snapshot, {entry.file.file_name for entry in entries}, marks, marks_now)
        is_emitted = self._emitted_levels(snapshot)
        waiting = [entry for entry in entries if entry.bucket == POSTPONE_BUCKET]
        entries = [entry for entry in entries if entry.bucket >= 0 and is_emitted(entry.file.level)]
        for (partition, bucket), found in sorted(grouped_by_bucket(entries).items()):
            removed, added = (
                self._state_of(snapshot, [entry for entry in found if entry.kind is kind])
                for kind in (EntryKind.DELETE, EntryKind.ADD)
            )
            if removed is not None:
                removed = replace(removed, index_files=marks.get((partition, bucket), ()))
            if added is not None:
                added = replace(added, index_files=marks_now.get((partition, bucket), ()))
            totals = [state.total_buckets for state in (removed, added) if state is not None]
            split = ChangeSplit(snapshot.id, partition, bucket, removed=removed, added=added)
            if totals and min(totals) == max(totals):
                splits.append(replace(split, total_buckets=totals[0]))
            elif totals:
                splits.append(replace(split, added=None, total_buckets=totals[0]))
                splits.append(replace(split, removed=None, total_buckets=totals[1]))
        came = [entry for entry in waiting if entry.kind is EntryKind.ADD]
        in_order = _removed_first(splits) if self._store.reassigns_keys else _old_buckets_first(splits)
        return [*self._taken_away(snapshot, waiting), *in_order, *self._stored(snapshot, came)]

    def _taken_away(self, snapshot: Snapshot, waiting: list[ManifestEntry]) -> list[ChangeSplit]:
        """The rows that waited until an overwrite took them away, unmerged: each row of a key leaves, deletes too."""
        splits = []
        for (partition, bucket), found in sorted(grouped_by_bucket(waiting).items()):
            gone = [entry.file for entry in found if entry.kind is EntryKind.DELETE]
            kept = self._kept((partition, bucket), gone, keys_are_unique=True)
            if kept:
                rows = Split(snapshot.id, partition, bucket, bucket, tuple(kept), raw_convertible=True)
                splits.append(ChangeSplit(snapshot.id, partition, bucket, removed=rows, total_buckets=bucket))
        return splits

    def _remarked(
        self, snapshot: Snapshot, others: Collection[str], before: _Marks, after: _Marks
    ) -> list[ChangeSplit]:
        """Rows of an append table that are marked now, or are not any more, in all of its files but `others`."""
        if self._store.schema.has_primary_key:
            return []
        gone, back = (
            {bucket: self._newly_marked(*each) for bucket, each in _changed(*pair)}
            for pair in ((before, after), (after, before))
        )
        buckets = {bucket for marked in (gone, back) for bucket, names in marked.items() if names}
        if not buckets:
            return []
        splits = []
        entries = filter(self._entry_test(), live_entries(self._store.manifests, snapshot, bucket_ids=buckets))
        for bucket, found in sorted(grouped_by_bucket(entries).items()):
            left = [entry for entry in found if entry.file.file_name not in others]
            removed, added = (
                self._state_of(snapshot, [entry for entry in left if entry.file.file_name in marked.get(bucket, ())])
                for marked in (gone, back)
            )
            old, new = before.get(bucket, ()), after.get(bucket, ())
            if removed is not None:
                removed = replace(removed, index_files=old, marked_by=new)
            if added is not None:
                added = replace(added, index_files=new, marked_by=old)
            if removed is not None or added is not None:
                total = found[0].total_buckets
                splits.append(ChangeSplit(snapshot.id, *bucket, removed=removed, added=added, total_buckets=total))
        return splits

    def _newly_marked(self, old: Sequence[IndexFileMeta], new: Sequence[IndexFileMeta]) -> frozenset[str]:
        """Files of which the new vectors mark more rows."""
        before = self._store.vectors.read_all(old)
        now = self._store.vectors.read_all(new)
        return frozenset(name for name, rows in now.items() if rows - before.get(name, Bitmap32()))

    def _marks_of(self, snapshot: Snapshot) -> _Marks:
        """Deletion vectors of an append table; an overwrite of a table with a key writes files without marks."""
        if not self._store.options.deletion_vectors_enabled or self._store.schema.has_primary_key:
            return {}
        return self._store.manifests.marking_files(snapshot.index_manifest)

    def _marks_before(self, snapshot: Snapshot) -> _Marks:
        """Deletion vectors of the state that an overwrite took away: rows they mark were gone already.

        `NotFoundError` when the snapshot that knows them has expired.
        """
        if not self._store.options.deletion_vectors_enabled:
            return {}
        before = self._store.snapshots.fresh(snapshot.id - 1)
        return self._store.manifests.marking_files(before.index_manifest)

    def _state_of(self, snapshot: Snapshot, entries: list[ManifestEntry]) -> Split | None:
        if not entries:
            return None
        first = entries[0]
        files = self._kept(first.bucket_id, [entry.file for entry in entries], keys_are_unique=False)
        if not files:
            return None
        is_raw = not self._store.schema.has_primary_key  # nothing to merge, and no columns of the system to merge by
        return Split(snapshot.id, first.partition, first.bucket, first.total_buckets, tuple(files), is_raw)

    @property
    def _reads_waiting(self) -> bool:
        """Whether rows that wait for their bucket are changes: where nothing emits them later."""
        options = self._store.options
        return options.has_postponed_buckets and options.changelog_producer is ChangelogProducer.NONE

    def _entry_test(self) -> Callable[[ManifestEntry], bool]:
        """A test for the entries of the partitions and buckets in which a row can match."""
        store, scan_filter = self._store, self._filter
        least_bucket = POSTPONE_BUCKET if self._reads_waiting else 0
        if scan_filter is None:
            return lambda entry: entry.bucket >= least_bucket
        partitions = PartitionPruning(scan_filter, store.partition_types)
        function = store.options.bucket_function_type
        buckets = BucketPruning(scan_filter, store.bucket_key, store.bucket_key_types, function)
        return lambda entry: (
            entry.bucket >= least_bucket
            and partitions.keeps(entry.partition)
            and buckets.keeps(entry.bucket, entry.total_buckets)
        )

    def _entries(self, metas: Iterable[ManifestFileMeta]) -> Iterator[ManifestEntry]:
        """Entries of the partitions and buckets in which a row can match."""
        store, scan_filter = self._store, self._filter
        partitions = None if scan_filter is None else PartitionPruning(scan_filter, store.partition_types)
        is_wanted = self._entry_test()
        for meta in metas:
            if partitions is None or partitions.may_keep(meta.partition_stats):
                yield from filter(is_wanted, store.manifests.read_manifest(meta))

    def _kept(self, bucket_id: BucketId, files: list[DataFileMeta], *, keys_are_unique: bool) -> list[DataFileMeta]:
        (kept,) = self._pruning.kept([FilesOfBucket(bucket_id, files, keys_are_unique)])
        return kept


def _changed(old: _Marks, new: _Marks) -> Iterator[tuple[BucketId, tuple[_IndexFiles, _IndexFiles]]]:
    """Buckets whose deletion vectors lie in other files than before."""
    for bucket in {*old, *new}:
        pair = (old.get(bucket, ()), new.get(bucket, ()))
        if pair[0] != pair[1]:
            yield bucket, pair


def _old_buckets_first(splits: list[ChangeSplit]) -> list[ChangeSplit]:
    """Where a partition got another number of buckets, all rows leave the old ones before any comes to a new one."""
    first = {split.partition: split.total_buckets for split in reversed(splits) if split.removed is not None}
    return sorted(
        splits, key=lambda each: (each.partition, each.total_buckets != first.get(each.partition, each.total_buckets))
    )


def _removed_first(splits: list[ChangeSplit]) -> list[ChangeSplit]:
    """Where a key may come into another bucket than it leaves, all rows leave before any comes."""
    gone = [replace(split, added=None) for split in splits if split.removed is not None]
    return [*gone, *(replace(split, removed=None) for split in splits if split.added is not None)]


def _leaving_first(splits: list[ChangeSplit]) -> list[ChangeSplit]:
    """The splits of one snapshot, of which a key may have changes in several: it leaves before it comes."""
    if len(splits) < 2:
        return splits
    leaving = [replace(split, leaving=True) for split in splits if _may_leave(split)]
    return [*leaving, *(replace(split, leaving=False) if _may_leave(split) else split for split in splits)]


def _may_leave(split: ChangeSplit) -> bool:
    return split.removed is not None or any(not file.is_delete_free for file in split.files)


def _part(state: Split, names: set[str]) -> Split | None:
    """The files of a state that are among those named."""
    files = tuple(file for file in state.files if file.file_name in names)
    return replace(state, files=files) if files else None


def _partitions_with_other_buckets(
    before: Mapping[BucketId, Split], after: Mapping[BucketId, Split]
) -> frozenset[bytes]:
    """Partitions that have one number of buckets in one state, and another one in the other."""
    totals = {(bucket[0], state.total_buckets) for states in (before, after) for bucket, state in states.items()}
    counts = Counter(partition for partition, _ in totals)
    return frozenset(partition for partition, count in counts.items() if count > 1)
