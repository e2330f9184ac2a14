"""Writes one bucket of a primary-key table: buffer, level-0 files, compaction (`bucket_tree`).

    write        buffers rows, numbered from 0 in input order
    release      the buffer becomes a sorted run on scratch disk, or, where it may not spill or the disk share is used
                 up, a level-0 file
    flush        the buffer, merged, becomes level-0 files, several where a retract must not be merged with what follows
                 it (`retract_layers`); only now its numbers become sequence numbers, after the largest of the bucket's
                 files
    compact_due  one round of compaction by the picking rule, and more while there are more runs than the stop trigger;
                 none for write-only tables, nor where another program has written files of a newer schema meanwhile:
                 rewriting them with the schema of this writer would lose their new columns. Where larger rounds run
                 in the background, only what is required or fits into the time (`commit_compaction`)

In tables that need lookup the picking rule compacts level 0 in any case (`lookup-compact=gentle`: now and then), so a
commit is the rows and the compaction of them: their readers may see level 1 and above only. With `lookup-wait=false`
commits do not wait for that: they compact by the rules of other tables, and level 0 is compacted when these or an
explicit compaction take it.

A compaction is given up when another writer has compacted its inputs away and they have expired; the writer goes on
with the files that are live now.

Of two writers of one bucket the one that commits last must win, so a writer is brought to the latest snapshot before it
flushes (`TaskWriter.rebase`). Paimon numbers rows when they are written: there the one that commits last loses to the
one that wrote last, and a delete that it commits may do nothing.

Source: MERGING.md §1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.changelog.producer import input_rows
from freshet.storage.compact.joint_changes import emits_jointly_by_lookup
from freshet.storage.compact.picker import CompactionUnit
from freshet.storage.compact.rewriter import Rewriter
from freshet.storage.exceptions import CorruptDataError
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.files.data_file_writer import ChangelogFileWriter, KeyValueFileWriter
from freshet.storage.files.file_columns import SMALL_BYTES, HeldRows
from freshet.storage.io.env import CrashPoint
from freshet.storage.io.removal import undone_on_failure
from freshet.storage.merge.overlaps import overlapping_levels
from freshet.storage.model.commit_facts import CompactionReason
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta, FileId, FileSource
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN
from freshet.storage.options.retracts import RETRACTS
from freshet.storage.write.bucket_state import BucketState
from freshet.storage.write.bucket_tree import BucketTree
from freshet.storage.write.bucket_writer import BucketTools, BucketWriter
from freshet.storage.write.commit_compaction import CompactionTime
from freshet.storage.write.increment import Logged
from freshet.storage.write.records import Kinds
from freshet.storage.write.write_buffer import WriteBuffer

_SYSTEM_FIELDS: Final = (
    pa.field(SEQUENCE_NUMBER_COLUMN, pa.int64(), nullable=False),
    pa.field(VALUE_KIND_COLUMN, pa.int8(), nullable=False),
)

HELD_BYTES_MAX: Final = 8 * 1024 * 1024
"""Rows just flushed, in memory, that the compaction right behind need not read and decode again."""

GIVE_BACK_BYTES_MIN: Final = 16 * 1024 * 1024
"""After less than this the memory is kept for the next piece of work."""


class KeyValueBucketWriter(BucketWriter):
    """The writer of one bucket of a table with a primary key."""

    def __init__(
        self,
        tools: BucketTools,
        rewriter: Rewriter,
        partition: bytes,
        bucket: int,
        total_buckets: int,
        state: BucketState,
    ) -> None:
        super().__init__(tools, partition, bucket, total_buckets, is_ordered=True)
        self._emits_input = tools.store.options.changelog_producer.emits.at_flush
        self._buffer = WriteBuffer(
            rewriter.order, rewriter.function, rewriter.new_spill_path, keeps_raw_rows=self._emits_input
        )
        self._function = rewriter.function
        self._layers = rewriter.layers
        self._buffered_count = 0
        self._has_retracts = False
        self._tree = BucketTree(tools, rewriter, self.bucket_id, self._increment, state)
        self._next_sequence = self._live_end = state.next_sequence

    @property
    def memory_bytes(self) -> int:
        return self._buffer.size_bytes

    @property
    def spilled_bytes(self) -> int:
        return self._buffer.spilled_bytes

    @property
    def has_changes(self) -> bool:
        return not (self._buffer.is_empty and self._increment.is_empty)

    def write(self, rows: pa.Table, kinds: Kinds | None) -> None:
        count = rows.num_rows
        numbers = np.arange(self._buffered_count, self._buffered_count + count, dtype=np.int64)
        self._buffered_count += count
        codes = np.zeros(count, np.int8) if kinds is None else kinds
        self._has_retracts |= kinds is not None and bool(np.isin(kinds, RETRACTS).any())
        system = [pa.chunked_array([pa.array(numbers)]), pa.chunked_array([pa.array(codes)])]
        schema = pa.schema([*_SYSTEM_FIELDS, *rows.schema])
        self._buffer.add(pa.Table.from_arrays([*system, *rows.columns], schema=schema))

    def own_memory(self) -> None:
        self._buffer.own_memory()

    def release_memory(self) -> None:
        if not self._tools.may_spill():
            self.flush()
            self.compact_due()
            return
        self._store.env.reach(CrashPoint.WRITE_BEFORE_SPILL)
        size_bytes = self._buffer.size_bytes
        self._buffer.spill()
        _give_back(size_bytes)
        self._store.env.reach(CrashPoint.WRITE_SPILLED)

    def flush(self, executor: Executor | None = None) -> None:
        if self._buffer.is_empty:
            return
        level_0 = (self._store, self._partition, self._bucket, 0)
        writers: dict[int, KeyValueFileWriter] = {}
        layer_count = self._layers.count if self._layers is not None and self._has_retracts else 1
        changelog = ChangelogFileWriter(*level_0) if self._emits_input else None
        self._next_sequence += self._tools.contention.room(self._buffered_count)
        size_bytes = self._buffer.size_bytes + self._buffer.spilled_bytes
        held = HeldRows(self._store.schema, self._held_bytes)
        with undone_on_failure(lambda: _abort(writers.values()), None if changelog is None else changelog.abort):
            for depth, rows, changes in self._taken(executor):
                if changelog is not None and changes is not None:
                    changelog.write(_numbered(changes, self._next_sequence))
                self._keep_logged(rows, changes)
                if depth not in writers:
                    writers[depth] = KeyValueFileWriter(*level_0, FileSource.APPEND, executor=executor)
                above = (layer_count - 1 - depth) * self._buffered_count
                numbered = _numbered(rows, self._next_sequence + above)
                writers[depth].write(numbered)
                held.add(numbered)
            if self._increment.compact.is_empty:  # else rounds may still be given up (`renumber`)
                self._increment.log_ahead()
            changelog_files = [] if changelog is None else changelog.close()
            files = [file for depth in sorted(writers, reverse=True) for file in writers[depth].close()]
        self._next_sequence += layer_count * self._buffered_count
        self._buffered_count, self._has_retracts = 0, False
        self._increment.add_new_files(files, changelog_files)
        self._tree.add(files, held.take(files[0].file_name) if len(files) == 1 else None)
        _give_back(size_bytes)
        self._store.env.reach(CrashPoint.WRITE_FLUSHED)

    @property
    def _held_bytes(self) -> int:
        options = self._store.options
        if options.compacts_elsewhere:
            return 0
        return HELD_BYTES_MAX if options.commits_empty_level_0 else SMALL_BYTES

    def take_back(self, message: CommitMessage, headroom: int) -> None:
        super().take_back(message, headroom)
        self._tree.add(message.new_files)

    def _shift(self, by: int) -> None:
        append = self._increment.append
        old = (*append.new_files, *append.changelog)
        level_0 = (self._store, self._partition, self._bucket, 0)
        written: list[DataFileMeta] = []
        with undone_on_failure(lambda: self._delete(written)):
            files = [
                each
                for file in append.new_files
                for each in self._rewritten(file, by, KeyValueFileWriter(*level_0, FileSource.APPEND), written)
            ]
            changelog = [
                each
                for file in append.changelog
                for each in self._rewritten(file, by, ChangelogFileWriter(*level_0), written)
            ]
        append.new_files, append.changelog = files, changelog
        self._next_sequence = max(file.max_sequence_number for file in files) + 1
        self._tree.rebuild()
        self._store.env.reach(CrashPoint.WRITE_NUMBERED)
        self._delete(old)

    def _rewritten(
        self, file: DataFileMeta, by: int, writer: KeyValueFileWriter, written: list[DataFileMeta]
    ) -> list[DataFileMeta]:
        """The rows of a file with numbers so much larger; what was written is noted among `written`."""
        columns = self._store.schema.column_names
        read = DataFileRead(self._store, *self.bucket_id, file, columns, system_columns=True)
        with undone_on_failure(writer.abort):
            for rows in read.batches():
                writer.write(_numbered(rows, by))
            files = writer.close()
        written += files
        return files

    def _keep_logged(self, rows: pa.Table | pa.RecordBatch, changes: pa.Table | None) -> None:
        """Keeps what is logged of rows that are flushed; nothing of those whose changes a compaction emits."""
        match self._tools.logged:
            case Logged.ROWS:
                self._increment.append.emitted.add(rows)
            case Logged.CHANGELOG if changes is not None:
                self._increment.append.emitted.add(changes)

    def _taken(self, executor: Executor | None) -> Iterator[tuple[int, pa.Table | pa.RecordBatch, pa.Table | None]]:
        """The merged rows of the buffer, each with the depth of its file, and the changelog of the input where there
        is to be one."""
        layers = self._layers if self._has_retracts else None
        if layers is None and not self._emits_input:
            for rows in self._buffer.take_merged(executor):
                yield 0, rows, None
            return
        for segments in self._buffer.take_segments(executor):
            changes = input_rows(segments) if self._emits_input else None
            if layers is not None:
                segments = replace(segments, rows=layers.blanked(segments.rows))
            for depth, own in [(0, segments)] if layers is None else layers.of(segments):
                yield depth, self._function.merge(own, executor=executor).rows, changes
                changes = None

    def _files(self) -> Sequence[DataFileMeta]:
        return self._tree.levels.files

    def compact(
        self, *, full: bool, executor: Executor | None = None, reason: CompactionReason = CompactionReason.FORCED
    ) -> bool:
        self._check_schema_ids(self._files())
        unit = self._tree.full(reason) if full else self._tree.due(takes_level_0=self._store.options.needs_lookup)
        return self._run(unit, executor)

    def compact_files(
        self,
        inputs: frozenset[FileId],
        output_level: int,
        reason: CompactionReason,
        executor: Executor | None = None,
    ) -> bool:
        self._check_schema_ids(self._files())
        return self._run(self._tree.exactly(inputs, output_level, reason), executor)

    def repair(self, executor: Executor | None = None) -> bool:
        """Merges levels whose files overlap, each level with its files as runs of their own; False where none does.

        No changes are emitted: which of two rows of a key readers were shown is not known.
        """
        self._check_schema_ids(self._files())
        levels = sorted(overlapping_levels(self._tree.levels))
        for level in levels:
            self._rewrite(self._tree.whole_level(level), executor, is_repair=True)
        return bool(levels)

    def _run(self, unit: CompactionUnit | None, executor: Executor | None) -> bool:
        # Rows that the next commit will number are compacted after it.
        is_unnumbered = self._store.options.sequence_snapshot_ordering and bool(self._increment.append.new_files)
        if unit is None or is_unnumbered:
            self._tree.drop_held()
            return False
        self._tree.check_overlaps()
        return self._rewrite(unit, executor)

    def _rewrite(self, unit: CompactionUnit, executor: Executor | None, *, is_repair: bool = False) -> bool:
        try:
            self._delete(self._tree.compact(unit, executor, is_repair=is_repair))
        except CorruptDataError:
            read = self._files() if self._store.options.needs_lookup else unit.files
            if not self._was_overtaken(read):
                raise
            return False
        _give_back(unit.input_bytes)
        return True

    @property
    def must_wait(self) -> bool:
        return self._tree.levels.run_count > self._store.options.stop_trigger

    def compact_due(self, executor: Executor | None = None, *, time: CompactionTime | None = None) -> None:
        options = self._store.options
        if options.compacts_elsewhere or self.has_newer_schema:
            return
        takes_level_0 = options.commits_empty_level_0 or emits_jointly_by_lookup(self._store)
        if time is not None and not self.must_wait:
            self._run(self._tree.due_in(time, takes_level_0=takes_level_0), executor)
            return
        if time is not None:
            time.wait_for_bucket()
        while self._run(self._tree.due(takes_level_0=takes_level_0), executor) and self.must_wait:
            pass

    def take_message(self) -> CommitMessage:
        rounds = self._increment.compact.rounds
        return self._tree.completed(super().take_message(), rounds)

    def rebase(self, state: BucketState) -> None:
        self._delete(self._tree.rebase(state))
        self._live_end = state.next_sequence
        # Without changes nothing has been numbered since the last commit: numbers follow the largest that is stored.
        is_unused = self._increment.is_empty
        self._next_sequence = state.next_sequence if is_unused else max(self._next_sequence, state.next_sequence)

    def abort(self) -> None:
        self._buffer.clear()
        self._tree.drop_held()
        self._buffered_count, self._has_retracts = 0, False
        self._delete(self._increment.give_up())


def _abort(writers: Iterable[KeyValueFileWriter]) -> None:
    for writer in writers:
        writer.abort()


def _give_back(size_bytes: int) -> None:
    """Returns what the allocator of this thread keeps for reuse, after work on that many bytes.

    Without it a process with 125 MB of Arrow data at most holds 280 MB after each commit, with it 170 MB.
    """
    if size_bytes >= GIVE_BACK_BYTES_MIN:
        pa.default_memory_pool().release_unused()


def _numbered(rows: pa.Table | pa.RecordBatch, first: int) -> pa.Table | pa.RecordBatch:
    """The rows with their numbers counted from `first` on."""
    if first == 0:
        return rows
    position = rows.schema.get_field_index(SEQUENCE_NUMBER_COLUMN)
    numbers = pc.add(rows.column(position), pa.scalar(first, pa.int64()))
    return rows.set_column(position, rows.schema.field(position), numbers)
