"""Writers that put rows into the files of a bucket as they come, neither sorted nor merged.

write        buffers rows
release      hands them to the open data file, which rolls at the target size
flush        closes it

Of an append table (`AppendBucketWriter`):

    take_message with deletion vectors, also the index files without the vectors of files that were joined
    compact_due  tables with buckets: joins the oldest `compaction.min.file-num` small files; tables without: nothing,
                 because their buckets are one, and a compaction of its own joins them in the background of a stream

Sequence numbers of a bucketed table continue after the largest of its files; without buckets they start at 0 in each
writer.

Of rows that wait for their bucket (`PostponedBucketWriter`, `bucket=-2`), in one partition: nothing is numbered or
looked up, and no changelog is made: the compaction that puts the rows into buckets does all that. Files are Avro,
whatever `file.format` says, where Avro can hold the columns; they have no statistics. Their name says who wrote them
(`Staging`):

    data--u-<commit user>-s-<number of the writer>-w-<uuid>-<n>.avro

Rows of files whose names agree up to `-w-` are merged in the order in which the files were made, and those of others
in no order that a program can rely on: so all rows of a key go to the writer of one number. The name is parsed, so the
user is spelled there with letters, digits and underscores.

Source: MERGING.md §8.2; FORMAT.md §1, §7.4, §7.6.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Final, Generic, TypeVar

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.compact.append_compaction import in_sequence, join_files
from freshet.storage.compact.bucket_plan import plan_append
from freshet.storage.compact.rewriter import CompactedFiles
from freshet.storage.exceptions import CorruptDataError
from freshet.storage.files.data_file_paths import FileTraits, data_file_traits
from freshet.storage.files.data_file_writer import AppendFileWriter, KeyValueFileWriter
from freshet.storage.io.env import CrashPoint
from freshet.storage.io.removal import undone_on_failure
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_facts import CompactionReason
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta, FileId, FileSource
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN
from freshet.storage.options.choices import UNAWARE_BUCKET
from freshet.storage.schema.data_files import can_be_avro
from freshet.storage.write.bucket_state import BucketState
from freshet.storage.write.bucket_writer import BucketTools, BucketWriter
from freshet.storage.write.commit_compaction import CompactionTime
from freshet.storage.write.increment import AppendIndex, Logged
from freshet.storage.write.records import Kinds
from freshet.storage.write.write_buffer import own_copy

FileWriterT = TypeVar("FileWriterT", AppendFileWriter, KeyValueFileWriter)


class UnmergedBucketWriter(BucketWriter, Generic[FileWriterT]):
    """Writer of one bucket; a subclass says what its files are, and what compaction does with them."""

    def __init__(self, tools: BucketTools, partition: bytes, bucket: int, total_buckets: int) -> None:
        super().__init__(tools, partition, bucket, total_buckets, is_ordered=False)
        self._chunks: list[pa.Table] = []
        self._chunk_bytes = 0
        self._open_file: FileWriterT | None = None

    @property
    def memory_bytes(self) -> int:
        return self._chunk_bytes

    @property
    def has_changes(self) -> bool:
        return bool(self._chunks) or self._open_file is not None or not self._increment.is_empty

    def own_memory(self) -> None:
        if self._chunks:
            self._chunks = [own_copy(self._chunks)]

    def release_memory(self) -> None:
        if not self._chunks:
            return
        if self._open_file is None:
            self._open_file = self._new_file()
        chunks, self._chunks, self._chunk_bytes = self._chunks, [], 0
        for rows in chunks:
            self._write_to(self._open_file, rows)

    def flush(self, executor: Executor | None = None) -> None:
        self.release_memory()
        writer, self._open_file = self._open_file, None
        if writer is None:
            return
        with undone_on_failure(writer.abort):
            self._increment.log_ahead()
            self._increment.add_new_files(writer.close())
        self._store.env.reach(CrashPoint.WRITE_FLUSHED)

    def abort(self) -> None:
        self._chunks.clear()
        self._chunk_bytes = 0
        if self._open_file is not None:
            self._open_file.abort()
            self._open_file = None
        self._delete(self._increment.give_up())

    def _buffer(self, rows: pa.Table) -> None:
        self._chunks.append(rows)
        self._chunk_bytes += rows.nbytes

    @abstractmethod
    def _new_file(self) -> FileWriterT:
        """What the next rows go into."""

    @abstractmethod
    def _write_to(self, file: FileWriterT, rows: pa.Table) -> None:
        """Rows in the order they came."""


class AppendBucketWriter(UnmergedBucketWriter[AppendFileWriter]):
    """The writer of one bucket of a table without a primary key."""

    def __init__(
        self, tools: BucketTools, partition: bytes, bucket: int, total_buckets: int, state: BucketState
    ) -> None:
        super().__init__(tools, partition, bucket, total_buckets)
        self._committed = state.data_files
        self._is_ordered = total_buckets != UNAWARE_BUCKET and tools.store.options.bucket_append_ordered
        self._next_sequence = self._live_end = state.next_sequence if self._is_ordered else 0
        self._index = AppendIndex(tools.store, state.index_files)

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

    def compact(
        self, *, full: bool, executor: Executor | None = None, reason: CompactionReason = CompactionReason.FORCED
    ) -> bool:
        self._check_schema_ids(self._files())
        has_buckets = self._total_buckets != UNAWARE_BUCKET
        marked = self._index.vectors.marked_files
        units = plan_append(self._files(), self._store.options, has_buckets=has_buckets, full=full, marked=marked)
        why = reason if full else CompactionReason.SMALL_FILES
        return bool(units) and all(self._join(unit, why) for unit in units)

    def compact_files(
        self,
        inputs: frozenset[FileId],
        output_level: int,
        reason: CompactionReason,
        executor: Executor | None = None,
    ) -> bool:
        files = [file for file in self._files() if file.file_id in inputs]
        self._check_schema_ids(files)
        return len(files) == len(inputs) and self._join(in_sequence(files), reason)

    def _join(self, unit: Sequence[DataFileMeta], reason: CompactionReason) -> bool:
        env = self._store.env
        started_ms = env.now_ms()
        try:
            outputs = join_files(self._store, self._partition, self._bucket, unit, self._index.vectors)
        except CorruptDataError:
            if not self._was_overtaken(unit):
                raise
            return False
        result = CompactedFiles(tuple(unit), tuple(outputs))
        facts = result.facts(reason, env.now_ms() - started_ms, to_level=None)
        self._delete(self._increment.add_compaction(result, self._index.names, facts=facts))
        return True

    def compact_due(self, executor: Executor | None = None, *, time: CompactionTime | None = None) -> None:
        if time is not None:
            return  # Readers do not wait for it.
        is_due = self._total_buckets != UNAWARE_BUCKET and not self._store.options.write_only
        if is_due and not self.has_newer_schema:
            self.compact(full=False)

    def take_message(self) -> CommitMessage:
        self._committed = self._increment.applied_to(self._committed)
        rounds = self._increment.compact.rounds
        message = super().take_message()
        return self._index.completed(message, rounds)

    def rebase(self, state: BucketState) -> None:
        index_names = frozenset(file.file_name for file in state.index_files)
        self._delete(self._increment.drop_unfit(state.data_files, index_names))
        self._index = AppendIndex(self._store, state.index_files)
        self._committed = state.data_files
        if self._is_ordered:
            self._live_end = state.next_sequence
            self._next_sequence = max(self._next_sequence, state.next_sequence)

    def _files(self) -> list[DataFileMeta]:
        return self._increment.applied_to(self._committed)


NO_NUMBER: Final = -1
"""The sequence number of rows that wait: the writer of their bucket numbers them."""

_UNNAMED: Final = re.compile(r"[^A-Za-z0-9]")


class Staging(Frozen):
    """Who writes rows that wait: a commit user, and the number of one of its writers."""

    commit_user: str
    number: int = 0

    def traits(self, store: TableStore) -> FileTraits:
        """How files of waiting rows are named and encoded."""
        options, traits = store.options, data_file_traits(store.options, 0)
        prefix = f"{options.data_file_prefix}-u-{_UNNAMED.sub('_', self.commit_user)}-s-{self.number}-w-"
        if not can_be_avro(store.schema, traits.compression):
            return replace(traits, prefix=prefix)
        file_format = dict(options.file_format_per_level).get("0", "avro")
        stats_mode = dict(options.metadata_stats_mode_per_level).get("0", "none")
        return replace(traits, prefix=prefix, file_format=file_format.lower(), stats_mode=stats_mode)


class PostponedBucketWriter(UnmergedBucketWriter[KeyValueFileWriter]):
    """The writer of the rows of a partition that wait."""

    def __init__(
        self,
        tools: BucketTools,
        staging: Staging,
        partition: bytes,
        bucket: int,
        total_buckets: int,
        state: BucketState,
    ) -> None:
        super().__init__(tools, partition, bucket, total_buckets)
        self._traits = staging.traits(tools.store)

    def write(self, rows: pa.Table, kinds: Kinds | None) -> None:
        codes = np.zeros(rows.num_rows, np.int8) if kinds is None else kinds
        self._buffer(rows.append_column(pa.field(VALUE_KIND_COLUMN, pa.int8(), nullable=False), pa.array(codes)))

    def _new_file(self) -> KeyValueFileWriter:
        level_0 = (self._store, self._partition, self._bucket, 0)
        return KeyValueFileWriter(*level_0, FileSource.APPEND, traits=self._traits)

    def _write_to(self, file: KeyValueFileWriter, rows: pa.Table) -> None:
        number = pa.field(SEQUENCE_NUMBER_COLUMN, pa.int64(), nullable=False)
        numbers = pa.array(np.full(rows.num_rows, NO_NUMBER, np.int64))
        file.write(rows.add_column(0, number, numbers))

    def renumber(self) -> None:
        pass

    def _shift(self, by: int) -> None:
        raise AssertionError("rows that wait have no numbers")

    def compact_due(self, executor: Executor | None = None, *, time: CompactionTime | None = None) -> None:
        pass

    def rebase(self, state: BucketState) -> None:
        pass
