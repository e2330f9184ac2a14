"""The LSM tree of one bucket as its writer sees it, committed files and changes, and compactions of it.

Source: MERGING.md §1.4, §3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final

import pyarrow as pa

from freshet.storage.compact.bucket_plan import last_full_ms, level_0_reason, plan_due, plan_full
from freshet.storage.compact.joint_changes import below_highest, emits_jointly, emits_jointly_in_full
from freshet.storage.compact.picker import CompactionUnit, kept_apart, pick_level_0_alone
from freshet.storage.compact.record_expiry import expired_files
from freshet.storage.compact.rewriter import Rewriter
from freshet.storage.io.spill_file import Scratch
from freshet.storage.lookup.lookup_metrics import LookupMetrics
from freshet.storage.merge.engine import lookup_merge_function, merge_function, row_order
from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.merge.merged_table import MergeMetrics
from freshet.storage.merge.overlaps import overlap_error, overlapping_levels
from freshet.storage.merge.retract_layers import RetractLayers
from freshet.storage.merge.sorted_runs import Levels, build_levels
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_facts import CompactionReason
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta, FileId
from freshet.storage.model.manifest import BucketId
from freshet.storage.options.choices import LookupCompact
from freshet.storage.schema.record_expiry import time_column
from freshet.storage.write.bucket_state import BucketState
from freshet.storage.write.bucket_writer import BucketTools
from freshet.storage.write.commit_compaction import CompactionTime
from freshet.storage.write.increment import CompactionRound, EmittedRows, Increment, KeyValueIndex, Logged

MERGE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Rows that a round of merging in compaction holds, a quarter of the write buffer at most."""


class BucketTree:
    """The tree of one bucket; belongs to its writer, whose `increment` it shares."""

    def __init__(
        self, tools: BucketTools, rewriter: Rewriter, bucket_id: BucketId, increment: Increment, state: BucketState
    ) -> None:
        self._tools = tools
        self._store = tools.store
        self._rewriter = rewriter
        self._bucket_id = bucket_id
        self._increment = increment
        self._held: dict[str, pa.Table] = {}
        """Rows of the file flushed last, until it is compacted, by name of the file."""
        self._index = (
            KeyValueIndex(tools.store, state.index_files) if tools.store.options.deletion_vectors_enabled else None
        )
        self._memory = state.memory
        self._data_files = state.data_files
        self.levels = self._build_levels()

    def add(self, files: Sequence[DataFileMeta], held: pa.Table | None = None) -> None:
        """New files of the increment at level 0; `held` are the rows of a single one, where they are at hand."""
        self.levels = self.levels.changed((), files)
        if held is not None:
            self._held = {files[0].file_name: held}
            self._keep(files[0], held)

    def rebuild(self) -> None:
        """The increment has other files than before, and no compactions."""
        self._held = {}
        self.levels = self._build_levels()
        if self._index is not None:
            self._index.rebase(self._index.vectors.index_files, ())

    def rebase(self, state: BucketState) -> list[DataFileMeta]:
        """Goes on with other committed files; returns the files of compactions that do not fit on them."""
        index_files = frozenset(file.file_name for file in state.index_files)
        self._data_files = state.data_files
        unfit = self._increment.drop_unfit(state.data_files, index_files)
        if self._index is not None:
            self._index.rebase(state.index_files, self._increment.compact.rounds)
        self._memory = state.memory
        self.levels = self._build_levels()
        return unfit

    def completed(self, message: CommitMessage, rounds: Sequence[CompactionRound]) -> CommitMessage:
        """The message of these rounds, with the deletion vectors that belong to it."""
        if self._index is None:
            return message
        return self._index.completed(message, rounds, max_level=self.levels.max_level)

    def full(self, reason: CompactionReason) -> CompactionUnit | None:
        """Everything."""
        marked = frozenset[str]() if self._index is None else self._index.vectors.marked_files
        expired = expired_files(self._store, self.levels.files)
        return plan_full(self.levels, self._store.options, marked=marked, expired=expired, reason=reason)

    def exactly(self, inputs: frozenset[FileId], output_level: int, reason: CompactionReason) -> CompactionUnit | None:
        """These files; None when one of them is gone, or more of them would be needed by now."""
        files = tuple(file for file in self.levels.files if file.file_id in inputs)
        if len(files) != len(inputs):
            return None
        is_full = len(files) == len(self.levels.files)
        unit = CompactionUnit(output_level, files, is_full=is_full, reason=reason)
        if self._store.options.needs_lookup:
            return unit
        rule, runs_max = self._store.retract_rule, self._store.options.stop_trigger
        apart = kept_apart(unit, self.levels, rule, runs_max=runs_max)
        return apart if apart is not None and len(apart.files) == len(files) else None

    def whole_level(self, level: int) -> CompactionUnit:
        """The files of a level, to stay there."""
        files = tuple(file for file in self.levels.files if file.level == level)
        return CompactionUnit(level, files, is_full=False, reason=CompactionReason.REPAIR)

    def due(self, *, takes_level_0: bool) -> CompactionUnit | None:
        """What the picking rule asks for, less what emits changes that belong with those of other buckets."""
        options, memory = self._store.options, self._memory
        times = [at for at in (last_full_ms(self.levels), memory.last_full_ms) if at is not None]
        is_patient = options.lookup_compact is LookupCompact.GENTLE and not emits_jointly(self._store)
        is_gentle = takes_level_0 and is_patient
        unit = plan_due(
            self.levels,
            options,
            takes_level_0=takes_level_0,
            now_ms=self._store.env.creation_time_ms(),
            last_full_ms=max(times, default=None),
            is_due=memory.patience_of(options.lookup_compact_max_interval).is_over if is_gentle else lambda: True,
            retracts=self._store.retract_rule,
        )
        return below_highest(self._store, self.levels, unit) if emits_jointly_in_full(self._store) else unit

    def due_in(self, time: CompactionTime, *, takes_level_0: bool) -> CompactionUnit | None:
        """What the rule asks for where it is done in time, else what is required."""
        reason = level_0_reason(self._store.options)
        required = pick_level_0_alone(self.levels, reason) if takes_level_0 else None
        if self._bucket_id in time.limit.busy:
            return required
        due = self.due(takes_level_0=takes_level_0)
        if due is None or required is None:
            extra_bytes = 0 if due is None else due.input_bytes
        else:
            extra_bytes = due.input_bytes - required.input_bytes
        is_in_time = due is not None and (extra_bytes == 0 or time.take(self._tools.speed.ms_of(extra_bytes)))
        return due if is_in_time else required

    def check_overlaps(self) -> None:
        """Raises `CorruptDataError` where files of a level overlap: only a repair merges those."""
        for reason in overlapping_levels(self.levels).values():
            raise overlap_error(self._store.bucket_folder(*self._bucket_id), reason)

    def drop_held(self) -> None:
        """No compaction follows: rows that are at hand are let go."""
        self._held = {}

    def compact(
        self, unit: CompactionUnit, executor: Executor | None, *, is_repair: bool = False
    ) -> list[DataFileMeta]:
        """One round, added to the increment; returns the files whose bytes are no longer needed."""
        held = self._tools.small_files.of(unit.files, self._store.schema) | self._held
        self._held = {}
        env, options = self._store.env, self._store.options
        if unit.is_full:
            self._memory.last_full_ms = env.creation_time_ms()
        started_ms = env.now_ms()
        emitted = EmittedRows()
        is_logged = self._tools.logged is Logged.CHANGELOG and options.changelog_producer.emits.in_compactions
        result = self._rewriter.compact(
            *self._bucket_id,
            self.levels,
            unit,
            executor,
            None if self._index is None else self._index.vectors,
            emitted.add if is_logged else None,
            partial(self._increment.log_ahead, emitted),
            held,
            is_repair=is_repair,
        )
        for file in result.after:
            rows = result.held.get(file.file_name, held.get(file.file_name))
            if rows is not None:
                self._keep(file, rows)
        self.levels = self.levels.changed(result.before, result.after)
        names = frozenset[str]() if self._index is None else self._index.names
        facts = result.facts(unit.reason, env.now_ms() - started_ms, to_level=unit.output_level)
        obsolete = self._increment.add_compaction(result, names, emitted, facts)
        if self._index is not None:
            self._index.vectors = self._index.vectors.marking(result.marks)
        self._tools.speed.note(unit.input_bytes, env.now_ms() - started_ms)
        return obsolete

    def _keep(self, file: DataFileMeta, rows: pa.Table) -> None:
        """Keeps the rows of a small file for the compaction that takes it."""
        if not self._store.options.sequence_snapshot_ordering:  # there a commit gives them their numbers
            self._tools.small_files.keep(file, rows)

    def _build_levels(self) -> Levels:
        files = self._increment.applied_to(self._data_files)
        return build_levels(files, self._store.options.num_levels, self._rewriter.comparator.sort_key)


def table_rewriter(
    store: TableStore, scratch: Scratch, metrics: MergeMetrics, lookup_metrics: LookupMetrics
) -> Rewriter:
    """The compaction of a primary-key table."""
    options, rule = store.options, store.retract_rule
    time_column(store.schema, options)  # of a table made elsewhere it may be none: reported at once
    return Rewriter(
        store=store,
        order=row_order(store.schema, options),
        function=merge_function(store.schema, options, metrics, table=store.location),
        lookup_function=lookup_merge_function(store.schema, options, metrics, table=store.location),
        comparator=KeyComparator(store.key_types),
        merge_bytes=min(MERGE_BYTES_MAX, options.write_buffer_size_bytes // 4),
        new_spill_path=scratch.new_path,
        layers=None if rule is None else RetractLayers(store.schema, rule, cuts=not options.sequence_snapshot_ordering),
        lookup_metrics=lookup_metrics,
    )
