"""Carries out one unit of compaction: moves files between levels, merges the rest into new files at the output level.

    1. cut the unit's files into sections of overlapping keys, plan what moves and what is rewritten
    2. rewrite: sections in key order through one writer, which rolls at the target size; deletes are dropped where no
       older row can lie below: output level above 0 and not below the highest level that has files; in tables that need
       lookup, keys of level 0 are merged with the row found above the output level (`lookup`), also lone ones
    3. before = files moved or rewritten, after = the same files at their new level and the outputs

Sequence numbers, statistics and delete counts of outputs come from the rows kept; moved files keep theirs. Rows stream:
a round of merging holds `merge_bytes` at most, whatever the number of files. What an open Parquet file holds beside its
rows grows with its columns, so of very many runs only the largest are read straight; the others are copied to scratch
disk first, the smallest first.

A file of level 0 that could only change its level is rewritten in tables that need lookup, because keys of it may exist
above; not if nothing lies above the output level, nor where the newest row is all that counts (deduplicate without
sequence fields).

Source: MERGING.md §2.1, §3.3, §4.3, §4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from freshet.storage.compact.levels import Levels
from freshet.storage.compact.picker import CompactionUnit
from freshet.storage.compact.prefetch import prefetched
from freshet.storage.compact.task import Section, plan_task
from freshet.storage.files.discard import delete_data_file
from freshet.storage.files.key_value_reader import read_key_value_file
from freshet.storage.files.key_value_writer import KeyValueFileWriter
from freshet.storage.files.parquet_schema import SYSTEM_FIELDS
from freshet.storage.io.env import CrashPoint
from freshet.storage.io.spill_file import SpillFile
from freshet.storage.lookup.cached_lookup import bucket_lookup
from freshet.storage.lookup.higher_levels import HigherLevels
from freshet.storage.lookup.lookup_metrics import LookupMetrics
from freshet.storage.lookup.run_lookup import RunLookup
from freshet.storage.merge.key_order import KeyComparator, RowOrder
from freshet.storage.merge.lookup_levels import LEVEL_FIELD, with_levels
from freshet.storage.merge.merge_function import MergeFunction
from freshet.storage.merge.merge_reader import merge_rounds, merge_section
from freshet.storage.merge.previous_row import row_of_lowest_level
from freshet.storage.merge.section import files_of, interval_partition, older_first
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_file import DataFileMeta, FileSource
from freshet.storage.model.sorted_run import SortedRun
from freshet.storage.options.core import MergeEngine

BATCH_ROWS_MAX: Final = 8 * 1024
"""Rows decoded at a time: larger batches leave the processor's caches."""
OPEN_COLUMNS_MAX: Final = 300
STRAIGHT_RUNS_MIN: Final = 9
"""Runs read straight from Parquet: as many as have this many columns together, and these at least. 50 runs of 23
columns took 490 MB without this bound."""
FILL_ROWS_MAX: Final = 64 * 1024
FILL_ROWS_MIN: Final = 2 * 1024
MEMORY_PER_FILE_BYTE: Final = 3
"""Rows in memory take about this much more than in their compressed file."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What changed: `before` leaves the bucket, `after` enters it. Keys were looked up in `lookups`, which stay."""

    before: tuple[DataFileMeta, ...]
    after: tuple[DataFileMeta, ...]
    lookups: tuple[DataFileMeta, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewriter:
    """Compacts buckets of one table; holds no state, threads may share it.

    `lookup_function` merges where level 0 is compacted in a table that needs lookup.
    """

    store: TableStore
    order: RowOrder
    function: MergeFunction
    lookup_function: MergeFunction
    comparator: KeyComparator
    merge_bytes: int
    new_spill_path: Callable[[], str]
    lookup_metrics: LookupMetrics = field(default_factory=LookupMetrics)

    def compact(
        self, partition: bytes, bucket: int, levels: Levels, unit: CompactionUnit, executor: Executor | None = None
    ) -> CompactionResult:
        """Compacts the unit of a bucket whose files are `levels`. On failure nothing new is left behind."""
        options = self.store.options
        plan = plan_task(
            unit,
            interval_partition(unit.files, self.comparator),
            max_level=levels.max_level,
            small_file_bytes=options.compaction_file_size_bytes,
            force_rewrite=options.compaction_force_rewrite_all_files,
            rewrites_moves=lambda file: self._rewrites_move(file, unit.output_level, levels.max_level),
        )
        drop_delete = unit.output_level != 0 and unit.output_level >= levels.highest_level
        self.store.env.reach(CrashPoint.COMPACT_BEFORE_OUTPUT)
        before, after = list(plan.moves), list(plan.moved)
        lookups: list[DataFileMeta] = []
        outputs: list[DataFileMeta] = []
        is_done = False
        try:
            for sections in plan.rewrites:
                files = [file for section in sections for file in files_of(section)]
                before += files
                higher = self._higher(partition, bucket, levels, unit.output_level, files, executor)
                lookups += [] if higher is None else higher.files_beside(files)
                outputs += self._rewrite(partition, bucket, sections, unit.output_level, drop_delete, higher, executor)
            is_done = True
        finally:
            if not is_done:
                for file in outputs:
                    delete_data_file(self.store, partition, bucket, file)
        if plan.rewrites:
            self.store.env.reach(CrashPoint.COMPACT_OUTPUT_WRITTEN)
        return CompactionResult(tuple(before), (*after, *outputs), tuple(lookups))

    def _rewrites_move(self, file: DataFileMeta, output_level: int, max_level: int) -> bool:
        """True if a file cannot just change its level."""
        options = self.store.options
        if options.format_at_level(file.level) != options.format_at_level(output_level):
            return True
        if not options.needs_lookup or file.level != 0 or output_level == max_level:
            return False
        return options.merge_engine is not MergeEngine.DEDUPLICATE or bool(options.sequence_field)

    def _higher(
        self,
        partition: bytes,
        bucket: int,
        levels: Levels,
        output_level: int,
        files: Sequence[DataFileMeta],
        executor: Executor | None,
    ) -> HigherLevels | None:
        """What is above the output level; None if the rewrite is none with lookup."""
        if not self.store.options.needs_lookup or output_level == 0 or all(file.level != 0 for file in files):
            return None
        runs = tuple(run for run in levels.runs if run.level > output_level)
        files_lookup = bucket_lookup(
            self.store, partition, bucket, self.lookup_metrics, use_threads=executor is not None
        )
        files_lookup.stores.keep_only(levels.files)
        lookup = RunLookup(files_lookup, self.order.key_columns, self.store.key_types, self.comparator)
        return HigherLevels(lookup, self.order, self.store.options, runs)

    def _rewrite(
        self,
        partition: bytes,
        bucket: int,
        sections: Sequence[Section],
        level: int,
        drop_delete: bool,
        higher: HigherLevels | None,
        executor: Executor | None,
    ) -> list[DataFileMeta]:
        writer = KeyValueFileWriter(self.store, partition, bucket, level, FileSource.COMPACT)
        is_done = False
        try:
            for section in sections:
                merged = self._merged(partition, bucket, section, drop_delete, higher)
                for batch in prefetched(merged, executor):
                    writer.write(batch)
            files = writer.close()
            is_done = True
        finally:
            if not is_done:
                writer.abort()
        return files

    def _merged(
        self, partition: bytes, bucket: int, section: Section, drop_delete: bool, higher: HigherLevels | None
    ) -> Iterator[pa.RecordBatch]:
        function = self.function if higher is None else self.lookup_function
        has_levels = function.reads_levels or higher is not None
        runs = older_first(section)
        rows = self._fill_rows(runs)
        spilled: list[SpillFile] = []
        readers: list[Iterator[pa.RecordBatch]] = []
        to_spill = self._runs_to_spill(runs)
        for run in runs:
            batches = self._read(partition, bucket, run.files, min(rows, BATCH_ROWS_MAX), has_levels)
            if run in to_spill:
                schema = arrow_schema((*SYSTEM_FIELDS, *self.store.schema.fields))
                schema = schema.append(LEVEL_FIELD) if has_levels else schema
                spilled.append(SpillFile(self.new_spill_path(), schema, batches))
                batches = spilled[-1].read()
            readers.append(batches)
        if higher is None:
            yield from merge_section(readers, self.order, function, drop_delete=drop_delete, fill_rows=rows)
        else:
            yield from self._looked_up(readers, higher, drop_delete, rows)
        for file in spilled:
            file.remove()

    def _looked_up(
        self, readers: Sequence[Iterator[pa.RecordBatch]], higher: HigherLevels, drop_delete: bool, fill_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Level 0 taken up: keys are completed with what stands above before they are merged."""
        for merged in merge_rounds(
            readers,
            self.order,
            self.lookup_function,
            drop_delete=drop_delete,
            completed=higher.complete,
            previous_row=row_of_lowest_level,
            fill_rows=fill_rows,
        ):
            rows = merged.rows
            del merged
            yield from rows.to_batches()
            del rows

    def _runs_to_spill(self, runs: Sequence[SortedRun]) -> list[SortedRun]:
        columns = len(self.store.schema.fields) + len(SYSTEM_FIELDS)
        straight = max(STRAIGHT_RUNS_MIN, OPEN_COLUMNS_MAX // columns)
        return sorted(runs, key=lambda run: run.size_bytes)[: max(0, len(runs) - straight)]

    def _fill_rows(self, runs: Sequence[SortedRun]) -> int:
        """Rows of each run in one round: half of the memory, since a run may hold a batch beyond what it was asked."""
        per_run = self.merge_bytes // (2 * len(runs))
        row_bytes = max(
            MEMORY_PER_FILE_BYTE * file.file_size_bytes // max(1, file.row_count) for run in runs for file in run.files
        )
        return max(FILL_ROWS_MIN, min(FILL_ROWS_MAX, per_run // max(1, row_bytes)))

    def _read(
        self, partition: bytes, bucket: int, files: Iterable[DataFileMeta], batch_rows: int, has_levels: bool
    ) -> Iterator[pa.RecordBatch]:
        columns = self.store.schema.column_names
        for file in files:
            batches = read_key_value_file(self.store, partition, bucket, file, columns, None, batch_rows=batch_rows)
            yield from with_levels(batches, file.level) if has_levels else batches
