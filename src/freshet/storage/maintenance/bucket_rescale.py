"""Writes new buckets of a partition from the old buckets that hold their rows.

A bucket is a remainder: of n and m buckets, those hold rows of the same keys whose numbers are equal modulo gcd(n, m),
with every bucket function. A `BucketRescale` is some of the m buckets of one remainder, and all of the n buckets of it.

    keyed tables     the old buckets are merged as one, in key order and bounded memory, as a full compaction merges:
                     deletes are dropped, rows keep their sequence numbers. The rows of each new bucket are one sorted
                     run at the highest level
    append tables    bucket after bucket, file after file: rows of a bucket key keep their order

It is a value: another process may run it and hand its messages to the one that commits (`rescale`).

Source: FORMAT.md §8.1; MERGING.md §2.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.codec.bucket_function import BucketRule, bucket_ids
from freshet.storage.compact.append_compaction import in_sequence
from freshet.storage.compact.section_merge import MergeRule, SectionMerge
from freshet.storage.exceptions import CorruptDataError
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.files.data_file_writer import AppendFileWriter, KeyValueFileWriter
from freshet.storage.io.env import CrashPoint
from freshet.storage.io.removal import undone_on_failure
from freshet.storage.io.spill_file import Scratch
from freshet.storage.lookup.lookup_metrics import LookupMetrics
from freshet.storage.merge.merged_table import MergeMetrics
from freshet.storage.merge.sorted_runs import interval_partition
from freshet.storage.metadata.deletion_vector_store import BucketVectors
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta, FileSource
from freshet.storage.model.manifest import IndexFileMeta
from freshet.storage.write.bucket_tree import table_rewriter
from freshet.storage.write.bucketing import split_rows

BATCH_ROWS: Final = 16 * 1024
"""Rows of an append table that are read at a time."""


class OldBucket(Frozen):
    """A bucket as it was: its live files, and the index files that mark deleted rows of them."""

    bucket: int
    files: tuple[DataFileMeta, ...]
    index_files: tuple[IndexFileMeta, ...] = ()


class BucketRescale(Frozen):
    """New buckets of a partition, of `new_count`, and the buckets of `old_count` that all their rows are in."""

    partition: bytes
    buckets: tuple[int, ...]
    new_count: int
    old_count: int
    inputs: tuple[OldBucket, ...]

    @property
    def input_bytes(self) -> int:
        """Bytes of the files that are read, compressed."""
        return sum(file.file_size_bytes for old in self.inputs for file in old.files)

    @property
    def modulus(self) -> int:
        """Old and new buckets of the same keys are equal modulo this."""
        return gcd(self.old_count, self.new_count)


def rescale_buckets(store: TableStore, work: BucketRescale) -> list[CommitMessage]:
    """Writes the files of the new buckets; nothing is left behind on failure."""
    store.env.reach(CrashPoint.COMPACT_BEFORE_OUTPUT)
    scratch = Scratch(store.env)
    try:
        if store.schema.has_primary_key:
            writers: Mapping[int, KeyValueFileWriter | AppendFileWriter] = {
                bucket: KeyValueFileWriter(
                    store, work.partition, bucket, store.options.num_levels - 1, FileSource.COMPACT
                )
                for bucket in work.buckets
            }
            pieces = _merged(store, work, scratch)
        else:
            first = min(file.min_sequence_number for old in work.inputs for file in old.files)
            writers = {
                bucket: AppendFileWriter(store, work.partition, bucket, FileSource.COMPACT, first)
                for bucket in work.buckets
            }
            pieces = _in_sequence(store, work)
        with undone_on_failure(*(writer.abort for writer in writers.values())):
            for rows in pieces:
                for bucket, part in _split(store, work, rows):
                    writers[bucket].write(part)
            outputs = {bucket: tuple(writer.close()) for bucket, writer in writers.items()}
    finally:
        scratch.release()
    store.env.reach(CrashPoint.COMPACT_OUTPUT_WRITTEN)
    return [
        CommitMessage(work.partition, bucket, work.new_count, new_files=files)
        for bucket, files in outputs.items()
        if files
    ]


def _merged(store: TableStore, work: BucketRescale, scratch: Scratch) -> Iterator[pa.Table | pa.RecordBatch]:
    """The rows of the old buckets as a full compaction would leave them, in key order, with their system columns."""
    rewriter = table_rewriter(store, scratch, MergeMetrics(), LookupMetrics())
    merge = SectionMerge(store.schema, rewriter.order, rewriter.merge_bytes, scratch.new_path)
    places = {file.file_name: old for old in work.inputs for file in old.files}
    vectors = {old.bucket: BucketVectors(store.vectors, old.index_files) for old in work.inputs}

    def read(file: DataFileMeta, batch_rows: int) -> Iterator[pa.RecordBatch]:
        bucket = places[file.file_name].bucket
        return DataFileRead(
            store,
            work.partition,
            bucket,
            file,
            store.schema.column_names,
            system_columns=True,
            batch_rows=batch_rows,
            deleted_rows=vectors[bucket].of(file.file_name),
        ).batches()

    rule = MergeRule(rewriter.function, None, None)
    for section in interval_partition([file for old in work.inputs for file in old.files], rewriter.comparator):
        for piece in merge.pieces(section, rule, read, drop_delete=True):
            yield piece.rows


def _in_sequence(store: TableStore, work: BucketRescale) -> Iterator[pa.RecordBatch]:
    columns = store.schema.column_names
    for old in work.inputs:
        vectors = BucketVectors(store.vectors, old.index_files)
        for file in in_sequence(old.files):
            bucket, deleted = (work.partition, old.bucket), vectors.of(file.file_name)
            read = DataFileRead(store, *bucket, file, columns, batch_rows=BATCH_ROWS, deleted_rows=deleted)
            yield from read.batches()


def _split(
    store: TableStore, work: BucketRescale, rows: pa.Table | pa.RecordBatch
) -> Iterator[tuple[int, pa.Table | pa.RecordBatch]]:
    """The rows of each of the new buckets; raises where a row is in an old bucket that is not that of its key."""
    if not rows.num_rows:
        return
    buckets = _new_buckets(store, work, rows)
    if np.any(buckets % work.modulus != work.buckets[0] % work.modulus):
        numbers = ", ".join(str(old.bucket) for old in work.inputs)
        raise CorruptDataError(
            f"bucket {numbers} of {work.old_count} holds rows whose key belongs to another bucket; nothing of the "
            "partition was rescaled. Was bucket-key or bucket-function.type changed by hand? Restore them, or copy the "
            "rows into another table",
            path=store.partition_path(work.partition) or store.location,
        )
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    for bucket, _, part in split_rows(table, buckets):
        if bucket in work.buckets:
            yield bucket, part


def _new_buckets(store: TableStore, work: BucketRescale, rows: pa.Table | pa.RecordBatch) -> npt.NDArray[np.integer]:
    if work.new_count == 1:
        return np.zeros(rows.num_rows, np.int32)
    rule = BucketRule.of(store.schema, store.options)
    return bucket_ids([rows.column(name) for name in rule.columns], rule.types, work.new_count, rule.function)
