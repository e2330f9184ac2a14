"""Writes one bucket of an append table: rows in the order they come, no merging.

    write …      as the writer of any rows that are not merged (`unmerged_bucket_writer`)
    take_message with deletion vectors, also the index files without the vectors of files that were joined
    compact_due  tables with buckets: joins the oldest `compaction.min.file-num` small files; tables without: nothing,
                 because their buckets are one, and a compaction of its own joins them in the background of a stream

Sequence numbers of a bucketed table continue after the largest of its files; without buckets they start at 0 in each
writer. Source: MERGING.md §8.2; FORMAT.md §7.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace

import pyarrow as pa

from freshet.storage.compact.append_compaction import in_sequence, join_files
from freshet.storage.compact.bucket_plan import plan_append
from freshet.storage.compact.rewriter import CompactionResult
from freshet.storage.exceptions import CorruptDataError
from freshet.storage.files.data_file_writer import AppendFileWriter
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta, FileId, FileSource
from freshet.storage.options.choices import UNAWARE_BUCKET
from freshet.storage.write.append_index import AppendIndex, has_vectors
from freshet.storage.write.bucket_state import BucketState
from freshet.storage.write.bucket_writer import BucketTools
from freshet.storage.write.compaction_limit import CompactionTime
from freshet.storage.write.increment import Logged
from freshet.storage.write.records import Kinds
from freshet.storage.write.unmerged_bucket_writer import UnmergedBucketWriter


class AppendBucketWriter(UnmergedBucketWriter[AppendFileWriter]):
    """Of a table without a primary key."""

    def __init__(
        self, tools: BucketTools, partition: bytes, bucket: int, total_buckets: int, state: BucketState
    ) -> None:
        super().__init__(tools, partition, bucket, total_buckets)
        self._committed = state.data_files
        self._is_ordered = total_buckets != UNAWARE_BUCKET and tools.store.options.bucket_append_ordered
        self._next_sequence = self._live_end = state.next_sequence if self._is_ordered else 0
        self._index = AppendIndex(tools.store, state.index_files) if has_vectors(tools.store) else None

    def write(self, rows: pa.Table, kinds: Kinds | None) -> None:
        if rows.num_rows:
            self._buffer(rows)

    def _new_file(self) -> AppendFileWriter:
        return AppendFileWriter(self._store, self._partition, self._bucket, FileSource.APPEND, self._next_sequence)

    def _write_to(self, file: AppendFileWriter, rows: pa.Table) -> None:
        file.write(rows)
        if self._tools.logged is not Logged.NOTHING:
            self._increment.append.emitted.add(rows)
        self._next_sequence += rows.num_rows

    def _shift(self, by: int) -> None:
        """Only entries have the numbers of an append table, not the files."""
        append = self._increment.append
        append.new_files = [
            replace(
                file,
                min_sequence_number=file.min_sequence_number + by,
                max_sequence_number=file.max_sequence_number + by,
            )
            for file in append.new_files
        ]
        self._next_sequence = max(file.max_sequence_number for file in append.new_files) + 1

    def compact(self, *, full: bool, executor: Executor | None = None) -> bool:
        self._check_schema_ids(self._files())
        has_buckets = self._total_buckets != UNAWARE_BUCKET
        marked = frozenset[str]() if self._index is None else self._index.vectors.marked_files
        units = plan_append(self._files(), self._store.options, has_buckets=has_buckets, full=full, marked=marked)
        return bool(units) and all(self._join(unit) for unit in units)

    def compact_files(self, inputs: frozenset[FileId], output_level: int, executor: Executor | None = None) -> bool:
        files = [file for file in self._files() if file.file_id in inputs]
        self._check_schema_ids(files)
        return len(files) == len(inputs) and self._join(in_sequence(files))

    def _join(self, unit: Sequence[DataFileMeta]) -> bool:
        try:
            with self._tools.timings.step("compaction"):
                vectors = None if self._index is None else self._index.vectors
                outputs = join_files(self._store, self._partition, self._bucket, unit, vectors)
        except CorruptDataError:
            if not self._was_overtaken(unit):
                raise
            return False
        names = frozenset[str]() if self._index is None else self._index.names
        self._delete(self._increment.add_compaction(CompactionResult(tuple(unit), tuple(outputs)), names))
        return True

    def compact_due(self, executor: Executor | None = None, *, time: CompactionTime | None = None) -> None:
        if time is not None:
            return  # Readers do not wait for it.
        is_due = self._total_buckets != UNAWARE_BUCKET and not self._store.options.write_only
        if is_due and not self.has_newer_schema:
            self.compact(full=False)

    @property
    def has_newer_schema(self) -> bool:
        return self._has_newer_schema(self._files())

    def take_message(self) -> CommitMessage:
        self._committed = self._increment.applied_to(self._committed)
        rounds = self._increment.compact.rounds
        message = self._increment.take_message(self._partition, self._bucket, self._total_buckets)
        return message if self._index is None else self._index.completed(message, rounds)

    def rebase(self, state: BucketState) -> None:
        index_names = frozenset(file.file_name for file in state.index_files)
        self._delete(self._increment.drop_unfit(state.data_files, index_names))
        if self._index is not None:
            self._index = AppendIndex(self._store, state.index_files)
        self._committed = state.data_files
        if self._is_ordered:
            self._live_end = state.next_sequence
            self._next_sequence = max(self._next_sequence, state.next_sequence)

    def _files(self) -> list[DataFileMeta]:
        return self._increment.applied_to(self._committed)
