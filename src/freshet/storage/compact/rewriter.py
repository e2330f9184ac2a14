"""Runs one compaction unit: moves files between levels, merges the rest into new files at the output level.

    1. cut the unit's files into sections of overlapping keys, plan what moves and what is rewritten
    2. rewrite: sections in key order through one writer, which rolls at the target size; deletes are dropped where no
       older row can lie below: output level above 0 and not below the highest level that has files; in tables that need
       lookup, keys of level 0 are merged with the row found above the output level (`lookup`), also lone ones
    3. before = files moved or rewritten, after = the same files at their new level and the outputs

Sequence numbers, statistics and delete counts of outputs come from the rows kept; moved files keep theirs. Rows stream
(`section_merge`).

Where a -D may not be merged with what follows it (`kept_apart`), a unit has two outputs: the rows at the output level,
and at the level behind it, of keys with rows after a -D, what is merged up to that.

A file of level 0 that could only change its level is rewritten in tables that need lookup, because keys of it may exist
above; not if nothing lies above the output level, nor where the newest row is all that counts (deduplicate without
sequence fields).

With deletion vectors, rows of inputs that are marked are passed over, and the row found above for a key of level 0 is
marked: what is written takes its place, so that readers need not merge. Deletes go no further than level 0 then. A file
of level 0 that only changes its level is read and looked up for that. Positions marked are part of the result.

Rows that have expired (`record_expiry`) are left out as they are read, and where they are looked up; one that is found
above is marked all the same.

Rewrites emit their changes where the table has a changelog producer that asks for it (`changelog.producer`). A file
that only changes its level is then read and looked up all the same, for its changelog alone.

Source: MERGING.md §2.1, §3.3, §4.2 to §4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

import pyarrow as pa

from freshet._frozen import Frozen, field
from freshet.storage.changelog.producer import CompactionChangelog, compaction_changelog
from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.compact.picker import CompactionUnit
from freshet.storage.compact.record_expiry import RecordExpiry, record_expiry
from freshet.storage.compact.section_merge import CompactionPlan, MergeRule, Section, SectionMerge, plan_task
from freshet.storage.files.data_file_paths import delete_data_file
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.files.data_file_writer import ChangelogFileWriter, KeyValueFileWriter
from freshet.storage.files.file_columns import SMALL_BYTES, HeldRows
from freshet.storage.files.rolling_file_writer import NewCompanion
from freshet.storage.io.env import CrashPoint
from freshet.storage.io.removal import undone_on_failure
from freshet.storage.lookup.cached_lookup import bucket_lookup
from freshet.storage.lookup.file_lookup import NotedRows, UnmarkedRows
from freshet.storage.lookup.lookup_metrics import LookupMetrics
from freshet.storage.lookup.run_lookup import HigherLevels, RunLookup
from freshet.storage.lookup.store_cache import StoreCache
from freshet.storage.merge.key_order import KeyComparator, RowOrder
from freshet.storage.merge.merge_function import MergeFunction
from freshet.storage.merge.read_ahead import made_ahead
from freshet.storage.merge.retract_layers import RetractLayers
from freshet.storage.merge.sorted_runs import Levels, SortedRun, files_of, interval_partition
from freshet.storage.metadata.deletion_vector_store import BucketVectors
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_facts import CompactionFacts, CompactionReason
from freshet.storage.model.data_file import DataFileMeta, FileSource
from freshet.storage.options.choices import MergeEngine

LOOKED_UP_LEVEL_MIN: Final = 2
"""Keys are looked up at these levels: what compacts level 0 takes level 1 along."""


class CompactedFiles(Frozen):
    """What changed: `before` leaves the bucket, `after` enters it. Keys were looked up in `lookups`, which stay.

    `changelog` are the changelog files of what this changed for readers, `marks` the rows of other files that newer
    rows replace, by name of the file. `held` are the rows of small files among `after`, by name.
    """

    before: tuple[DataFileMeta, ...]
    after: tuple[DataFileMeta, ...]
    lookups: tuple[DataFileMeta, ...] = ()
    changelog: tuple[DataFileMeta, ...] = ()
    marks: Mapping[str, Bitmap32] = field(default_factory=dict)
    held: Mapping[str, pa.Table] = field(default_factory=dict)

    def facts(self, reason: CompactionReason, duration_ms: int, *, to_level: int | None) -> CompactionFacts:
        """The same for people; levels only where `to_level` is one."""
        from_level = None if to_level is None else min((file.level for file in self.before), default=None)
        counts = (*_counts(self.before), *_counts(self.after))
        return CompactionFacts(reason, from_level, to_level, *counts, duration_ms)


def _counts(files: Sequence[DataFileMeta]) -> tuple[int, int, int]:
    return len(files), sum(file.file_size_bytes for file in files), sum(file.row_count for file in files)


NOTHING_HELD: Final[Mapping[str, pa.Table]] = MappingProxyType({})

OnChanges = Callable[[pa.Table], None]
"""Is shown the rows of changelog files as they are written."""


class _Target(Frozen):
    """Where the outputs of a unit go; `levels` are the bucket before, `vectors` its deletion vectors, None where the
    table has none.
    """

    partition: bytes
    bucket: int
    levels: Levels
    level: int
    vectors: BucketVectors | None
    held: Mapping[str, pa.Table]
    """Rows of files just written, by name of the file."""
    expiry: RecordExpiry | None
    """Which rows are left out because they are old, as of when the unit began."""
    retract_level: int | None = None
    """Where a -D and what lies before it goes, if rows of its key follow."""

    @property
    def drops_deletes(self) -> bool:
        """True when no older row can lie below the outputs, or those that do are marked."""
        return self.level != 0 and (self.level >= self.levels.highest_level or self.vectors is not None)


class _Rewritten(NamedTuple):
    rows: list[DataFileMeta]
    changelog: list[DataFileMeta]
    held: pa.Table | None
    """The rows of the only file, where they are few."""


class Rewriter(Frozen):
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
    layers: RetractLayers | None = None
    """How rows of a key are kept apart, in tables where a retract may not be merged with any other row."""
    lookup_metrics: LookupMetrics = field(default_factory=LookupMetrics)

    def compact(
        self,
        partition: bytes,
        bucket: int,
        levels: Levels,
        unit: CompactionUnit,
        executor: Executor | None = None,
        vectors: BucketVectors | None = None,
        on_changes: OnChanges | None = None,
        on_computed: Callable[[], None] = lambda: None,
        held: Mapping[str, pa.Table] = NOTHING_HELD,
        *,
        is_repair: bool = False,
    ) -> CompactedFiles:
        """Compacts the unit of a bucket whose files are `levels`. On failure nothing new is left behind.

        `is_repair`: the unit is a level whose files overlap; it emits no changes.

        `on_computed` is called at most once, when all inputs are read and all changes shown, before the last files are
        complete. `vectors` are the deletion vectors of the bucket, None in a table without. `held` are the rows of
        files just written (`files.file_columns`), which are not read again, by name of the file.
        """
        options, expiry = self.store.options, record_expiry(self.store)
        plan = plan_task(
            unit,
            interval_partition(unit.files, self.comparator),
            max_level=levels.max_level,
            small_file_bytes=options.compaction_file_size_bytes,
            force_rewrite=options.compaction_force_rewrite_all_files,
            rewrites_moves=lambda file: self._rewrites_move(file, unit.output_level, levels.max_level),
            has_expired=lambda file: expiry is not None and expiry.has_expired(file),
        )
        target = _Target(partition, bucket, levels, unit.output_level, vectors, held, expiry, unit.retract_level)
        self.store.env.reach(CrashPoint.COMPACT_BEFORE_OUTPUT)
        before, after = list(plan.moves), list(plan.moved)
        lookups: list[DataFileMeta] = []
        outputs: list[DataFileMeta] = []
        changelog: list[DataFileMeta] = []
        marks: dict[str, Bitmap32] = {}
        kept: dict[str, pa.Table] = {}

        def discard() -> None:
            for file in (*outputs, *changelog):
                delete_data_file(self.store, partition, bucket, file)

        with undone_on_failure(discard):
            parts = list(_to_read(plan))
            for number, (sections, has_rows) in enumerate(parts, 1):
                files = [file for section in sections for file in files_of(section)]
                producer = None if is_repair else self._producer(target, files)
                higher = self._higher(target, files, producer, executor)
                marked = None if higher is None else higher.marks
                if not has_rows and producer is None and marked is None:
                    continue
                lookups += [] if higher is None else higher.files_looked_into(files)
                # A file that moves keeps its rows as they are, so its changelog says the same: lone rows pass.
                function = self.function if higher is None or not has_rows else self.lookup_function
                rule = MergeRule(function, higher, producer)
                shown = on_computed if number == len(parts) else lambda: None
                rewritten = self._rewrite(target, sections, rule, executor, on_changes, shown, has_rows=has_rows)
                before += files if has_rows else []
                outputs += rewritten.rows
                if rewritten.held is not None:
                    kept[rewritten.rows[0].file_name] = rewritten.held
                changelog += rewritten.changelog
                for name, rows in (marked or {}).items():
                    marks[name] = rows | marks.get(name, Bitmap32())
        for file in plan.moved:
            self._keep(target, file, held.get(file.file_name))
        if plan.rewrites:
            self.store.env.reach(CrashPoint.COMPACT_OUTPUT_WRITTEN)
        return CompactedFiles(tuple(before), (*after, *outputs), tuple(lookups), tuple(changelog), marks, kept)

    def _producer(self, target: _Target, files: Sequence[DataFileMeta]) -> CompactionChangelog | None:
        """What emits the changes of merging these files."""
        return compaction_changelog(
            self.store.schema,
            self.store.options,
            output_level=target.level,
            max_level=target.levels.max_level,
            takes_level_0=any(file.level == 0 for file in files),
        )

    def _rewrites_move(self, file: DataFileMeta, output_level: int, max_level: int) -> bool:
        """True if a file cannot just change its level."""
        options = self.store.options
        if options.format_at_level(file.level) != options.format_at_level(output_level):
            return True
        if options.deletion_vectors_enabled and file.level == 0 and not file.is_delete_free:
            return True
        if not options.needs_lookup or file.level != 0:
            return False
        if output_level == max_level:
            # Lone rows would stay unmerged until the next compaction, which emits nothing of untouched keys.
            emits = options.changelog_producer.emits
            return emits.by_lookup and options.merge_engine in (MergeEngine.PARTIAL_UPDATE, MergeEngine.AGGREGATE)
        return options.merge_engine is not MergeEngine.DEDUPLICATE or bool(options.sequence_field)

    def _higher(
        self,
        target: _Target,
        files: Sequence[DataFileMeta],
        producer: CompactionChangelog | None,
        executor: Executor | None,
    ) -> HigherLevels | None:
        """What is above the output level; None if the rewrite is none with lookup."""
        if not self.store.options.needs_lookup or target.level == 0 or all(file.level != 0 for file in files):
            return None
        runs = tuple(run for run in target.levels.runs if run.level > target.level)
        files_lookup = bucket_lookup(
            self.store, target.partition, target.bucket, self.lookup_metrics, use_threads=executor is not None
        )
        files_lookup.stores.keep_only(target.levels.files)
        if target.vectors is None:
            lookup = RunLookup(files_lookup, self.order.key_columns, self.store.key_types, self.comparator)
            return HigherLevels(lookup, self.order, self.store.options, runs, expiry=target.expiry)
        noted = NotedRows(UnmarkedRows(files_lookup, target.vectors))
        lookup = RunLookup(noted, self.order.key_columns, self.store.key_types, self.comparator)
        needs_rows = producer is not None or not self._newest_row_is_all()
        marks = noted.rows if runs else None
        return HigherLevels(lookup, self.order, self.store.options, runs, needs_rows, marks, target.expiry)

    def _newest_row_is_all(self) -> bool:
        """True where the row written last is the result, whatever the old row was."""
        options = self.store.options
        is_plain = not options.sequence_field and not options.ignore_delete
        return options.merge_engine is MergeEngine.DEDUPLICATE and is_plain

    def _rewrite(
        self,
        target: _Target,
        sections: Sequence[Section],
        rule: MergeRule,
        executor: Executor | None,
        on_changes: OnChanges | None,
        on_computed: Callable[[], None],
        *,
        has_rows: bool,
    ) -> _Rewritten:
        """Merges the sections into new files, or, without `has_rows`, into changelog files only."""
        bucket = (target.partition, target.bucket)
        level_of_bucket = (*bucket, target.level)
        kept = self._new_store(target, sections) if has_rows and self._is_looked_up(target) else None
        writer = KeyValueFileWriter(
            self.store, *level_of_bucket, FileSource.COMPACT, new_companion=kept, executor=executor
        )
        changelog = None if rule.producer is None else ChangelogFileWriter(self.store, *level_of_bucket)
        apart, retracts = None, None
        if target.retract_level is not None:
            apart = self.layers
            retracts = KeyValueFileWriter(self.store, *bucket, target.retract_level, FileSource.COMPACT)
        merge = SectionMerge(self.store.schema, self.order, self.merge_bytes, self.new_spill_path, apart)
        held = HeldRows(self.store.schema, SMALL_BYTES if has_rows else 0)
        # A file that moves keeps its rows, old ones too.
        read = partial(self._read, target, target.expiry if has_rows else None)
        undo = [each.abort for each in (writer, changelog, retracts) if each is not None]
        with undone_on_failure(*undo):
            for section in sections:
                pieces = merge.pieces(section, rule, read, drop_delete=target.drops_deletes)
                for rows, changes, depth in made_ahead(pieces, executor):
                    if has_rows:
                        (retracts if retracts is not None and depth else writer).write(rows)
                        held.add(rows)
                    if changelog is not None and changes is not None:
                        changelog.write(changes)
                        if on_changes is not None:
                            on_changes(changes)
            on_computed()
            if changelog is None or not has_rows:
                files = [*writer.close(), *(retracts.close() if retracts is not None else ())]
                emitted = [] if changelog is None else changelog.close()
            else:
                files, emitted = self.store.env.together([writer.close, changelog.close])
            return _Rewritten(files, emitted, held.take(files[0].file_name) if len(files) == 1 else None)

    def _new_store(self, target: _Target, sections: Sequence[Section]) -> NewCompanion:
        """Lookup stores of outputs, made as these are written."""
        input_bytes = sum(file.file_size_bytes for section in sections for file in files_of(section))
        file_bytes = min(input_bytes, self.store.options.target_file_size_bytes)
        return lambda file_name: self._stores(target).begin(file_name, file_bytes)

    def _is_looked_up(self, target: _Target) -> bool:
        """True when batches will look keys up in the outputs."""
        return self.store.options.needs_lookup and target.level >= LOOKED_UP_LEVEL_MIN

    def _keep(self, target: _Target, file: DataFileMeta, rows: pa.Table | None) -> None:
        """Makes the lookup store of a file that has moved, if its rows are at hand."""
        if rows is not None and self._is_looked_up(target):
            self._stores(target).keep(file, rows)

    def _stores(self, target: _Target) -> StoreCache:
        return StoreCache(self.store, target.partition, target.bucket, self.lookup_metrics)

    def _read(
        self, target: _Target, expiry: RecordExpiry | None, file: DataFileMeta, batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        rows = self._stored(target, file, batch_rows)
        return rows if expiry is None else expiry.live_batches(rows)

    def _stored(self, target: _Target, file: DataFileMeta, batch_rows: int) -> Iterator[pa.RecordBatch]:
        deleted = None if target.vectors is None else target.vectors.of(file.file_name)
        held = None if deleted else target.held.get(file.file_name)
        if held is not None:
            return iter(held.to_batches(batch_rows))
        return DataFileRead(
            self.store,
            target.partition,
            target.bucket,
            file,
            self.store.schema.column_names,
            system_columns=True,
            batch_rows=batch_rows,
            deleted_rows=deleted,
        ).batches()


def _to_read(plan: CompactionPlan) -> Iterator[tuple[Sequence[Section], bool]]:
    """What is merged together, and whether rows come of it; of a file that only moves at most a changelog does, or
    marks."""
    for sections in plan.rewrites:
        yield sections, True
    for file in plan.moves:
        yield [[SortedRun((file,))]], False
