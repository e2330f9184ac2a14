"""Moves rows that wait for their bucket (`bucket=-2`) into buckets, partition by partition.

    plan   latest snapshot -> of each partition with such rows: their files, and how many buckets it has or gets
    run    the rows, in the order of writing, go through a writer of buckets as rows of a commit do, which numbers them,
           merges them with what the buckets hold and makes the changelog
    commit one COMPACT takes the files of waiting rows away and brings the buckets' new files

Rows that are committed to wait while a partition is compacted stay for the next time. A partition in whose buckets
another commit puts rows or files meanwhile, or whose waiting rows it takes away, is left as it was, and tried again.

Files of one writer have an order, that of their creation; those of different writers have none, and the order of
creation is taken for them too: after a restart with other tasks it is the order of commits.

Source: MERGING.md §8.2; FORMAT.md §7.6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.compact.rewriter import CompactedFiles
from freshet.storage.exceptions import NotFoundError
from freshet.storage.files.data_file_paths import delete_data_file
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_facts import CompactionReason
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import BucketId, ManifestEntry
from freshet.storage.model.schema import VALUE_KIND_COLUMN
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.core import CoreOptions
from freshet.storage.paths import POSTPONE_BUCKET
from freshet.storage.write.bucketing import BucketRouter
from freshet.storage.write.postponed_router import PostponedCounts
from freshet.storage.write.task_writer import TaskWriter

BATCH_ROWS: Final = 16 * 1024
"""Rows that are read at a time."""


class PostponedPartition(Frozen):
    """The rows of a partition that wait at a snapshot: their files in the order in which they are merged."""

    partition: bytes
    total_buckets: int
    full: bool
    files: tuple[DataFileMeta, ...]
    snapshot_id: int

    @property
    def bucket_id(self) -> BucketId:
        """The bucket of rows that wait."""
        return self.partition, POSTPONE_BUCKET

    @property
    def input_bytes(self) -> int:
        """Bytes of the files, compressed."""
        return sum(file.file_size_bytes for file in self.files)


def plan_postponed(store: TableStore, is_chosen: Callable[[bytes], bool], *, full: bool) -> list[PostponedPartition]:
    """What waits at the latest snapshot, the largest partitions first; `full`: their buckets are merged as a whole."""
    return store.at_latest(lambda snapshot: _planned(store, snapshot, is_chosen, full=full))


def _planned(
    store: TableStore, snapshot: Snapshot | None, is_chosen: Callable[[bytes], bool], *, full: bool
) -> list[PostponedPartition]:
    if snapshot is None or not store.options.has_postponed_buckets:
        return []
    waiting: dict[bytes, list[ManifestEntry]] = {}
    for entry in live_entries(store.manifests, snapshot, buckets={POSTPONE_BUCKET}, partition=is_chosen):
        waiting.setdefault(entry.partition, []).append(entry)
    known = PostponedCounts(store, snapshot, {}).known(waiting)
    works = [
        PostponedPartition(
            partition,
            known.get(partition) or chosen_count(store.options, sum(entry.file.row_count for entry in entries)),
            full,
            tuple(entry.file for entry in sorted(entries, key=lambda entry: entry.file.creation_time_ms or 0)),
            snapshot.id,
        )
        for partition, entries in waiting.items()
    ]
    return sorted(works, key=lambda work: (-work.input_bytes, work.partition))


def chosen_count(options: CoreOptions, row_count: int) -> int:
    """Buckets of a partition that has none yet and so many rows that wait."""
    target = options.postpone_target_row_num_per_bucket
    if target is None:
        return options.postpone_default_bucket_num
    return max(1, -(-row_count // target))


def compact_postponed(store: TableStore, work: PostponedPartition) -> list[CommitMessage]:
    """Puts the rows of a partition into its buckets here; the messages are for the committer of the compaction.

    None where another one has taken the rows away meanwhile. Nothing is left behind on failure.
    """
    started_ms = store.env.now_ms()
    base = store.snapshots.or_latest(work.snapshot_id)
    router = BucketRouter.of(store, PostponedCounts(store, base, {work.partition: work.total_buckets}))
    with closing(TaskWriter(store, base_snapshot=base, parallelism=2, router=router)) as writer:
        try:
            for rows in _waiting_rows(store, work):
                kinds = rows.column(VALUE_KIND_COLUMN).to_numpy(zero_copy_only=False)
                writer.write_stored(pa.Table.from_batches([rows]).select(store.schema.column_names), kinds)
        except NotFoundError:
            if store.at_latest(partial(_still_waits, store, work)):
                raise
            return []
        writer.compact(full=work.full)
        messages = writer.take_messages()
    made = [_as_compaction(store, message) for message in messages]
    put = CompactedFiles(work.files, tuple(file for message in made for file in message.compact_after))
    facts = put.facts(CompactionReason.WAITING_ROWS, store.env.now_ms() - started_ms, to_level=None)
    taken = CommitMessage(
        work.partition, POSTPONE_BUCKET, POSTPONE_BUCKET, compact_before=work.files, compactions=(facts,)
    )
    return [taken, *made]


def _waiting_rows(store: TableStore, work: PostponedPartition) -> Iterator[pa.RecordBatch]:
    columns = store.schema.column_names
    for file in work.files:
        read = DataFileRead(store, *work.bucket_id, file, columns, system_columns=True, batch_rows=BATCH_ROWS)
        yield from read.batches()


def _still_waits(store: TableStore, work: PostponedPartition, snapshot: Snapshot | None) -> bool:
    names = {file.file_name for file in store.live.of_buckets(snapshot, [work.bucket_id]).files_of(*work.bucket_id)}
    return all(file.file_name in names for file in work.files)


def _as_compaction(store: TableStore, message: CommitMessage) -> CommitMessage:
    """The same files of a bucket, all brought by the compaction; those that it has replaced already are removed."""
    written = {file.file_name: file for file in message.new_files}
    replaced = {file.file_name for file in message.compact_before}
    moved = {file.file_name for file in message.compact_after}
    for name in (written.keys() & replaced) - moved:
        delete_data_file(store, message.partition, message.bucket, written[name])
    kept = tuple(file for name, file in written.items() if name not in replaced)
    return replace(
        message,
        new_files=(),
        changelog_files=(),
        compact_before=tuple(file for file in message.compact_before if file.file_name not in written),
        compact_after=(*message.compact_after, *kept),
        compact_changelog_files=(*message.changelog_files, *message.compact_changelog_files),
    )
