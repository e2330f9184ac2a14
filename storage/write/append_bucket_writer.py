"""Writes one bucket of an append table: rows in the order they come, no merging.

    write        buffers rows
    release      hands them to the open data file, which rolls at the target size
    flush        closes it
    compact_due  tables with buckets: joins the oldest `compaction.min.file-num` small files; tables without: nothing,
                 because their buckets are one, and joining them beside a stream is for a compaction of its own

Sequence numbers of a bucketed table continue after the largest of its files; without buckets they start at 0 in each
writer. Source: MERGING.md §8.2; FORMAT.md §7.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import pyarrow as pa

from freshet.storage.compact.append_picker import in_sequence
from freshet.storage.compact.append_rewriter import join_files
from freshet.storage.compact.bucket_plan import plan_append
from freshet.storage.exceptions import CorruptDataError
from freshet.storage.files.data_file_paths import delete_data_file
from freshet.storage.files.data_file_writer import AppendFileWriter
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta, FileSource
from freshet.storage.write.bucket_state import BucketState, RestoreBuckets
from freshet.storage.write.bucket_writer import FileId, check_schema_ids, has_newer_schema, state_if_overtaken
from freshet.storage.write.bucketing import UNAWARE_BUCKET
from freshet.storage.write.compaction_limit import CompactionTime
from freshet.storage.write.increment import Increment
from freshet.storage.write.records import Kinds
from freshet.storage.write.told_rows import Logged, ToldRows
from freshet.storage.write.write_buffer import own_copy
from freshet.storage.write.write_timings import WriteTimings


@dataclass(frozen=True, slots=True)
class AppendTools:
    """What the bucket writers of one append table share."""

    store: TableStore
    restore: RestoreBuckets
    timings: WriteTimings
    logged: Logged = Logged.NOTHING


class AppendBucketWriter:
    """A `BucketWriter`."""

    def __init__(
        self, tools: AppendTools, partition: bytes, bucket: int, total_buckets: int, state: BucketState
    ) -> None:
        self._tools = tools
        self._store = tools.store
        self._partition = partition
        self._bucket = bucket
        self._total_buckets = total_buckets
        self._committed = state.data_files
        self._increment = Increment(is_ordered=False)
        self._chunks: list[pa.Table] = []
        self._chunk_bytes = 0
        self._open_file: AppendFileWriter | None = None
        self._is_ordered = total_buckets != UNAWARE_BUCKET and tools.store.options.bucket_append_ordered
        self._next_sequence = state.next_sequence if self._is_ordered else 0

    @property
    def memory_bytes(self) -> int:
        return self._chunk_bytes

    @property
    def has_changes(self) -> bool:
        return bool(self._chunks) or self._open_file is not None or not self._increment.is_empty

    def write(self, rows: pa.Table, kinds: Kinds | None) -> None:
        if rows.num_rows:
            self._chunks.append(rows)
            self._chunk_bytes += rows.nbytes

    def own_memory(self) -> None:
        if self._chunks:
            self._chunks = [own_copy(self._chunks)]

    def release_memory(self) -> None:
        if not self._chunks:
            return
        if self._open_file is None:
            self._open_file = AppendFileWriter(
                self._store, self._partition, self._bucket, FileSource.APPEND, self._next_sequence
            )
        chunks, self._chunks, self._chunk_bytes = self._chunks, [], 0
        with self._tools.timings.step("parquet"):
            for rows in chunks:
                self._open_file.write(rows)
                if self._tools.logged is not Logged.NOTHING:
                    self._increment.append.told.add(rows)
                self._next_sequence += rows.num_rows

    def flush(self, executor: Executor | None = None) -> None:
        self.release_memory()
        writer, self._open_file = self._open_file, None
        if writer is None:
            return
        is_done = False
        try:
            with self._tools.timings.step("parquet"):
                self._increment.add_new_files(writer.close())
            is_done = True
        finally:
            if not is_done:
                writer.abort()
        self._store.env.reach(CrashPoint.WRITE_FLUSHED)

    def compact(self, *, full: bool, executor: Executor | None = None) -> bool:
        check_schema_ids(self._store, self._files())
        has_buckets = self._total_buckets != UNAWARE_BUCKET
        units = plan_append(self._files(), self._store.options, has_buckets=has_buckets, full=full)
        return bool(units) and all(self._join(unit) for unit in units)

    def compact_files(self, inputs: frozenset[FileId], output_level: int, executor: Executor | None = None) -> bool:
        files = [file for file in self._files() if (file.file_name, file.level) in inputs]
        check_schema_ids(self._store, files)
        return len(files) == len(inputs) and self._join(in_sequence(files))

    def _join(self, unit: Sequence[DataFileMeta]) -> bool:
        try:
            with self._tools.timings.step("compaction"):
                outputs = join_files(self._store, self._partition, self._bucket, unit)
        except CorruptDataError:
            own, bucket = self._increment.own_files(), (self._partition, self._bucket)
            state = state_if_overtaken(self._tools.restore, self._store, bucket, unit, own)
            if state is None:
                raise
            self.rebase(state)
            return False
        for file in self._increment.add_compaction(unit, outputs):
            self._delete(file)
        return True

    @property
    def must_wait(self) -> bool:
        return False

    def compact_due(self, executor: Executor | None = None, *, time: CompactionTime | None = None) -> None:
        if time is not None:
            return  # Readers do not wait for it.
        is_due = self._total_buckets != UNAWARE_BUCKET and not self._store.options.write_only
        if is_due and not has_newer_schema(self._store, self._files()):
            self.compact(full=False)

    def told(self) -> tuple[ToldRows, ToldRows]:
        return self._increment.append.told, ToldRows()

    def files_told(self) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
        return list(self._increment.append.new_files), []

    def take_message(self) -> CommitMessage:
        self._committed = self._increment.applied_to(self._committed)
        return self._increment.take_message(self._partition, self._bucket, self._total_buckets)

    def rebase(self, state: BucketState) -> None:
        for file in self._increment.drop_unfit(state.data_files):
            self._delete(file)
        self._committed = state.data_files
        if self._is_ordered:
            self._next_sequence = max(self._next_sequence, state.next_sequence)

    def abort(self) -> None:
        self._chunks.clear()
        self._chunk_bytes = 0
        if self._open_file is not None:
            self._open_file.abort()
            self._open_file = None
        own = self._increment.own_files()
        self._increment = Increment(is_ordered=False)
        for file in own:
            self._delete(file)

    def _files(self) -> list[DataFileMeta]:
        return self._increment.applied_to(self._committed)

    def _delete(self, file: DataFileMeta) -> None:
        delete_data_file(self._store, self._partition, self._bucket, file)
