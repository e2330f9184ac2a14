"""Which buckets of a table to compact, and which of their files: from metadata alone, upon the latest snapshot.

Source: MERGING.md §8.1, §8.2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from freshet._frozen import Frozen
from freshet.storage.compact.bucket_plan import last_full_ms, plan_append, plan_due, plan_full
from freshet.storage.compact.joint_changes import emits_jointly_by_lookup, emits_jointly_in_full, waiting_buckets
from freshet.storage.compact.picker import CompactionUnit
from freshet.storage.compact.record_expiry import expired_files
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.maintenance.partition_choice import PartitionChoice, partition_test
from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.merge.overlaps import overlap_error, overlapping_levels
from freshet.storage.merge.sorted_runs import Levels, build_levels
from freshet.storage.metadata.deletion_vector_store import BucketVectors
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot


class BucketCompaction(Frozen):
    """One bucket to compact, with the inputs as planned upon the latest snapshot."""

    partition: bytes
    bucket: int
    full: bool
    inputs: tuple[DataFileMeta, ...]
    joint_upon: int | None = None
    """Id of the snapshot upon which all of the plan is compacted, for one commit (`compact.joint_changes`)."""

    @property
    def bucket_id(self) -> BucketId:
        """The bucket to compact."""
        return self.partition, self.bucket

    @property
    def input_bytes(self) -> int:
        """Bytes of the inputs, compressed."""
        return sum(file.file_size_bytes for file in self.inputs)


def plan_compaction(
    store: TableStore, *, full: bool, partition: PartitionChoice | None = None
) -> list[BucketCompaction]:
    """What there is to do at the latest snapshot, the largest inputs first.

    Raises `InvalidRequestError` for a partition that names other columns than the partition keys, and for one whose
    changes belong with those of others.
    """
    is_chosen = partition_test(store, partition)

    def planned(snapshot: Snapshot | None) -> list[BucketCompaction]:
        works = _planned(store, snapshot, is_chosen, full=full)
        if snapshot is None or not _emit_jointly(store, snapshot, works):
            return works
        if not full and emits_jointly_in_full(store):
            works = _planned(store, snapshot, is_chosen, full=True)
        _refuse_part(store, works, waiting_buckets(store, snapshot))
        return [replace(work, joint_upon=snapshot.id) for work in works]

    return store.at_latest(planned)


def _emit_jointly(store: TableStore, snapshot: Snapshot, works: Sequence[BucketCompaction]) -> bool:
    """Whether these emit changes that belong with those of other buckets, or would with what comes to level 0 yet."""
    if emits_jointly_in_full(store):
        live = store.live.at(snapshot).by_bucket
        return any(len(work.inputs) == len(live[work.bucket_id]) for work in works)  # all runs: the highest level
    return emits_jointly_by_lookup(store)


def _refuse_part(store: TableStore, works: Sequence[BucketCompaction], waiting: Collection[BucketId]) -> None:
    left_out = sorted(set(waiting) - {work.bucket_id for work in works})
    if left_out:
        name = store.partition_path(left_out[0][0])
        raise InvalidRequestError(
            f"table {store.location}: its rows move between partitions, and the changes of a key in two of them are "
            f"emitted together; partition {name} has some that wait. Compact all partitions at once",
            path=store.location,
        )


def _planned(
    store: TableStore, snapshot: Snapshot | None, is_chosen: Callable[[bytes], bool], *, full: bool
) -> list[BucketCompaction]:
    if snapshot is None:
        return []
    marking = store.manifests.marking_files(snapshot.index_manifest)
    found = []
    for (name, bucket), entries in store.live.at(snapshot).by_bucket.items():
        if bucket < 0 or not is_chosen(name):
            continue
        files = [entry.file for entry in entries.values()]
        total = next(iter(entries.values())).total_buckets
        if store.schema.has_primary_key:
            for reason in overlapping_levels(levels_of(store, files)).values():
                raise overlap_error(store.bucket_folder(name, bucket), reason)
        marked = BucketVectors(store.vectors, marking.get((name, bucket), ())).marked_files
        inputs = planned_inputs(store, files, total_buckets=total, full=full, marked=marked)
        if inputs:
            found.append(BucketCompaction(name, bucket, full, inputs))
    return sorted(found, key=lambda work: (-work.input_bytes, work.partition, work.bucket))


def plan_repair(store: TableStore, *, partition: PartitionChoice | None = None) -> list[BucketCompaction]:
    """Buckets with a level whose files overlap, and the files of these levels."""
    is_chosen = partition_test(store, partition)
    return store.at_latest(lambda snapshot: _damaged(store, snapshot, is_chosen))


def _damaged(
    store: TableStore, snapshot: Snapshot | None, is_chosen: Callable[[bytes], bool]
) -> list[BucketCompaction]:
    if snapshot is None or not store.schema.has_primary_key:
        return []
    found = []
    for (name, bucket), entries in sorted(store.live.at(snapshot).by_bucket.items()):
        files = tuple(entry.file for entry in entries.values())
        damaged = overlapping_levels(levels_of(store, files)) if is_chosen(name) else {}
        if damaged:
            inputs = tuple(file for file in files if file.level in damaged)
            found.append(BucketCompaction(name, bucket, False, inputs))
    return found


def planned_inputs(
    store: TableStore,
    files: Sequence[DataFileMeta],
    *,
    total_buckets: int,
    full: bool,
    marked: Collection[str] = frozenset(),
) -> tuple[DataFileMeta, ...]:
    """The files of a bucket that a compaction would take; empty if there is nothing to do. Deletion vectors mark rows
    of the files named by `marked`.
    """
    if not store.schema.has_primary_key:
        units = plan_append(files, store.options, has_buckets=total_buckets > 0, full=full, marked=marked)
        return tuple(file for unit in units for file in unit)
    levels = levels_of(store, files)
    if full:
        unit = plan_full(levels, store.options, marked=marked, expired=expired_files(store, files))
    else:
        unit = due_unit(store, levels)
    return () if unit is None else unit.files


def levels_of(store: TableStore, files: Sequence[DataFileMeta]) -> Levels:
    """The files of a bucket of a keyed table as an LSM tree."""
    return build_levels(files, store.options.num_levels, KeyComparator(store.key_types).sort_key)


def due_unit(store: TableStore, levels: Levels) -> CompactionUnit | None:
    """What the picking rule asks for, of files alone."""
    return plan_due(
        levels,
        store.options,
        takes_level_0=store.options.needs_lookup,
        now_ms=store.env.creation_time_ms(),
        last_full_ms=last_full_ms(levels),
        retracts=store.retract_rule,
    )
