"""Plans a scan: which files of a snapshot to read, packed into splits.

    bucket of a primary-key table
      all files above level 0, on one level, delete-free    files, packed one by one: raw-convertible splits
      else                                                  sections, packed whole: a split is raw-convertible only if
                                                            it is one delete-free file
    bucket of a first-row table                             level 0 is not read: which of its keys are new is not known
                                                            yet; above it each key is there once, so that delete-free
                                                            files of any levels are packed one by one
    bucket of a table with deletion vectors                 the same: a row of level 0 counts once compaction has marked
                                                            the one it replaces. With merge-on-read all levels, merged
    bucket of an append table                               files by sequence number, packed one by one: raw-convertible

Packing keeps the order and closes a split before it would exceed the target; a file weighs at least the cost of opening
it. Splits come in the order of partition and bucket.

Source: MERGING.md §5, §6.2; FORMAT.md §7.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from freshet._frozen import Frozen
from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.merge.sorted_runs import files_of, interval_partition
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.split import Split
from freshet.storage.options.choices import MergeEngine
from freshet.storage.scan.pruning import BucketPruning, FilePruning, FilesOfBucket, PartitionPruning, ScanFilter

T = TypeVar("T")


class Packing(Frozen):
    """How much goes into one split, in bytes."""

    target_bytes: int
    open_cost_bytes: int

    def groups(self, items: Iterable[T], size_bytes: Callable[[T], int]) -> list[list[T]]:
        """Groups in order; a group is closed before an item that would take it above the target."""
        groups: list[list[T]] = []
        total = 0
        for item in items:
            size = max(size_bytes(item), self.open_cost_bytes)
            if not groups or total + size > self.target_bytes:
                groups.append([])
                total = 0
            groups[-1].append(item)
            total += size
        return groups


def plan_scan(
    store: TableStore,
    snapshot: Snapshot | None,
    scan_filter: ScanFilter | None = None,
    *,
    keeps_level: Callable[[int], bool] | None = None,
) -> list[Split]:
    """Splits that together hold every row of the snapshot that can match.

    `keeps_level` says which levels are read instead of those that a scan shows.
    """
    if snapshot is None:
        return []
    skips_level_0 = store.options.hides_level_0
    is_first_row = store.options.merge_engine is MergeEngine.FIRST_ROW
    keeps = keeps_level or (lambda level: not (skips_level_0 and level == 0))
    found = sorted(_files_by_bucket(store, snapshot, scan_filter, keeps_level=keeps).items())
    asked = []
    for bucket_id, (_, files) in found:
        hides_level_0 = skips_level_0 and all(file.level > 0 for file in files)
        are_unique = hides_level_0 and (is_first_row or all(file.is_delete_free for file in files))
        asked.append(FilesOfBucket(bucket_id, files, are_unique))
    packing = Packing(store.options.split_target_size_bytes, store.options.split_open_file_cost_bytes)
    comparator = KeyComparator(store.key_types) if store.schema.has_primary_key else None
    splits: list[Split] = []
    indexes = store.manifests.marking_files(snapshot.index_manifest)
    kept_files = FilePruning(store, scan_filter).kept(asked)
    for ((partition, bucket), (total_buckets, _)), of_bucket, kept in zip(found, asked, kept_files, strict=True):
        for group, is_raw in split_bucket(kept, packing, comparator, keys_are_unique=of_bucket.keys_are_unique):
            names = {file.file_name for file in group}
            marking = tuple(
                index_file
                for index_file in indexes.get((partition, bucket), ())
                if any(vector.data_file_name in names for vector in index_file.deletion_vectors or ())
            )
            splits.append(Split(snapshot.id, partition, bucket, total_buckets, tuple(group), is_raw, marking))
    return splits


def split_bucket(
    files: Sequence[DataFileMeta],
    packing: Packing,
    comparator: KeyComparator | None,
    *,
    keys_are_unique: bool = False,
) -> list[tuple[list[DataFileMeta], bool]]:
    """Files of each split of one bucket, and whether it is raw-convertible; no comparator for an append table.

    `keys_are_unique`: no key is in two files above level 0.
    """
    if comparator is None:
        ordered = sorted(files, key=lambda file: (file.min_sequence_number, file.max_sequence_number))
        return [(group, True) for group in packing.groups(ordered, _size_of_file)]
    levels = {file.level for file in files}
    is_disjoint = 0 not in levels and (len(levels) == 1 or keys_are_unique)
    if is_disjoint and all(file.is_delete_free for file in files):
        ordered = sorted(files, key=lambda file: comparator.sort_key(file.min_key))
        return [(group, True) for group in packing.groups(ordered, _size_of_file)]
    sections = [files_of(section) for section in interval_partition(files, comparator)]
    groups = []
    for packed in packing.groups(sections, lambda section: sum(map(_size_of_file, section))):
        group = [file for section in packed for file in section]
        groups.append((group, len(group) == 1 and group[0].is_delete_free))
    return groups


def _files_by_bucket(
    store: TableStore, snapshot: Snapshot, scan_filter: ScanFilter | None, *, keeps_level: Callable[[int], bool]
) -> dict[tuple[bytes, int], tuple[int, list[DataFileMeta]]]:
    if scan_filter is None:
        entries = live_entries(store.manifests, snapshot)
    else:
        partitions = PartitionPruning(scan_filter, store.partition_types)
        function = store.options.bucket_function_type
        buckets = BucketPruning(scan_filter, store.bucket_key, store.bucket_key_types, function)
        entries = [
            entry
            for entry in live_entries(
                store.manifests,
                snapshot,
                partition=partitions.keeps,
                partitions=partitions.named(),
                partition_stats=partitions.may_keep,
            )
            if buckets.keeps(entry.bucket, entry.total_buckets)
        ]
    by_bucket: dict[tuple[bytes, int], tuple[int, list[DataFileMeta]]] = {}
    for entry in entries:
        if entry.bucket >= 0 and keeps_level(entry.file.level):
            by_bucket.setdefault((entry.partition, entry.bucket), (entry.total_buckets, []))[1].append(entry.file)
    return by_bucket


def _size_of_file(file: DataFileMeta) -> int:
    return file.file_size_bytes
