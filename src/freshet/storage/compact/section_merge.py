"""The sections of one compaction unit: planned, and merged in bounded memory.

`plan_task` says, purely, which files only change their level, which are merged together, which stay:

    section with several runs        merged with its neighbours that are to be merged
    file alone in its key range
      smaller than small_file_bytes  merged with its neighbours; alone after all: moved
      otherwise                      moved, and it ends the group before it
    moved                            to the highest level with retracts (or an unknown number): rewritten instead;
                                     or rows that have expired: rewritten in any case; at the output level already:
                                     untouched; otherwise only its level changes

Groups keep key order, so that the output of a group is one sorted stream.

`SectionMerge` merges sections, with their changes where a producer asks for them. A round of merging holds
`merge_bytes` at most, whatever the number of files. What an open Parquet file holds besides its rows grows with its
columns, so of very many runs only the largest are read straight; the others are copied to scratch disk first, the
smallest first.

Source: MERGING.md §2.1, §3.3, §4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.changelog.producer import CompactionChangelog
from freshet.storage.compact.picker import CompactionUnit
from freshet.storage.files.file_columns import SYSTEM_FIELDS
from freshet.storage.io.spill_file import SpillFile
from freshet.storage.lookup.run_lookup import HigherLevels
from freshet.storage.merge.key_order import RowOrder
from freshet.storage.merge.merge_function import MergeFunction, no_previous_row
from freshet.storage.merge.merge_reader import as_they_are, merge_rounds, merge_section, segment_rounds
from freshet.storage.merge.retract_layers import RetractLayers
from freshet.storage.merge.row_levels import LEVEL_FIELD, with_levels
from freshet.storage.merge.sorted_runs import SortedRun, older_first
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.schema import TableSchema

Section = Sequence[SortedRun]


class CompactionPlan(Frozen):
    """`moves` change only their level; each of `rewrites` is a list of sections merged into one sorted output."""

    output_level: int
    moves: tuple[DataFileMeta, ...]
    rewrites: tuple[tuple[Section, ...], ...]

    @property
    def moved(self) -> tuple[DataFileMeta, ...]:
        """The moved files at their new level."""
        return tuple(replace(file, level=self.output_level) for file in self.moves)


def plan_task(
    unit: CompactionUnit,
    sections: Sequence[Section],
    *,
    max_level: int,
    small_file_bytes: int,
    force_rewrite: bool = False,
    rewrites_moves: Callable[[DataFileMeta], bool] = lambda _: False,
    has_expired: Callable[[DataFileMeta], bool] = lambda _: False,
) -> CompactionPlan:
    """Plans the unit, whose files were cut into `sections` (`merge.sorted_runs`).

    `rewrites_moves` says of a file that would only change its level that it must be rewritten after all,
    `has_expired` that it has rows to be left out, at whatever level.
    """
    planner = _Planner(unit.output_level, max_level, force_rewrite, rewrites_moves, has_expired)
    if unit.rewrite_each:
        for file in unit.files:
            planner.rewrites.append((_alone(file),))
        return planner.plan()
    pending: list[Section] = []
    for section in sections:
        if len(section) > 1:
            pending.append(section)
            continue
        for file in section[0].files:
            if file.file_size_bytes < small_file_bytes:
                pending.append(_alone(file))
            else:
                planner.flush(pending)
                planner.move(file)
    planner.flush(pending)
    return planner.plan()


@dataclass(slots=True)
class _Planner:
    output_level: int
    max_level: int
    force_rewrite: bool
    rewrites_moves: Callable[[DataFileMeta], bool]
    has_expired: Callable[[DataFileMeta], bool]
    moves: list[DataFileMeta] = field(default_factory=list)
    rewrites: list[tuple[Section, ...]] = field(default_factory=list)

    def flush(self, pending: list[Section]) -> None:
        if len(pending) == 1 and len(pending[0]) == 1:
            for file in pending[0][0].files:
                self.move(file)
        elif pending:
            self.rewrites.append(tuple(pending))
        pending.clear()

    def move(self, file: DataFileMeta) -> None:
        drops_retracts = self.output_level == self.max_level and not file.is_delete_free
        changes_level = file.level != self.output_level
        must_rewrite = self.force_rewrite or drops_retracts or self.has_expired(file)
        if must_rewrite or (changes_level and self.rewrites_moves(file)):
            self.rewrites.append((_alone(file),))
        elif changes_level:
            self.moves.append(file)

    def plan(self) -> CompactionPlan:
        return CompactionPlan(self.output_level, tuple(self.moves), tuple(self.rewrites))


def _alone(file: DataFileMeta) -> Section:
    return (SortedRun((file,)),)


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


class MergedPiece(NamedTuple):
    """Merged rows, their changelog if there is one to write, and how many cuts are behind them (`retract_layers`)."""

    rows: pa.Table | pa.RecordBatch
    changes: pa.Table | None = None
    depth: int = 0


ReadFile = Callable[[DataFileMeta, int], Iterator[pa.RecordBatch]]
"""The rows of a file, with their system columns, so many at a time."""


class MergeRule(NamedTuple):
    """How sections are merged: keys completed with what is `higher`, changes emitted by the `producer`."""

    function: MergeFunction
    higher: HigherLevels | None
    producer: CompactionChangelog | None

    @property
    def is_plain(self) -> bool:
        """True when rows may pass by the merge, and what became of each key is not needed."""
        return self.higher is None and self.producer is None


class SectionMerge(Frozen):
    """Merges sections of one table; holds no state, threads may share it."""

    schema: TableSchema
    order: RowOrder
    merge_bytes: int
    new_spill_path: Callable[[], str]
    layers: RetractLayers | None = None
    """Keeps rows of a key apart; for plain rules."""

    def pieces(self, section: Section, rule: MergeRule, read: ReadFile, *, drop_delete: bool) -> Iterator[MergedPiece]:
        """The merged rows of the section in key order."""
        has_levels = rule.function.reads_levels or not rule.is_plain
        runs = older_first(section)
        fill_rows = self._fill_rows(runs)
        spilled: list[SpillFile] = []
        readers: list[Iterator[pa.RecordBatch]] = []
        to_spill = self._runs_to_spill(runs)
        for run in runs:
            batches = _read(run, read, min(fill_rows, BATCH_ROWS_MAX), has_levels=has_levels)
            if run in to_spill:
                schema = arrow_schema((*SYSTEM_FIELDS, *self.schema.fields))
                schema = schema.append(LEVEL_FIELD) if has_levels else schema
                spilled.append(SpillFile(self.new_spill_path(), schema, batches))
                batches = spilled[-1].read()
            readers.append(batches)
        if self.layers is not None and not all(file.is_delete_free for run in runs for file in run.files):
            yield from self._kept_apart(readers, rule, self.layers, fill_rows)
        elif rule.is_plain:
            for batch in merge_section(
                readers, self.order, rule.function, drop_delete=drop_delete, fill_rows=fill_rows
            ):
                yield MergedPiece(batch)
        else:
            yield from self._merged_with_changes(readers, rule, drop_delete, fill_rows)
        for file in spilled:
            file.remove()

    def _merged_with_changes(
        self, readers: Sequence[Iterator[pa.RecordBatch]], rule: MergeRule, drop_delete: bool, fill_rows: int
    ) -> Iterator[MergedPiece]:
        """Completes keys of level 0 with the row found above before they are merged; gives changes where needed."""
        producer = rule.producer
        for merged in merge_rounds(
            readers,
            self.order,
            rule.function,
            drop_delete=drop_delete,
            completed=as_they_are if rule.higher is None else rule.higher.complete,
            previous_row=no_previous_row if producer is None else producer.previous_row,
            fill_rows=fill_rows,
        ):
            changes = None if producer is None else producer.changes(merged)
            rows = merged.rows
            del merged
            yield MergedPiece(rows, changes)
            del rows, changes

    def _kept_apart(
        self, readers: Sequence[Iterator[pa.RecordBatch]], rule: MergeRule, layers: RetractLayers, fill_rows: int
    ) -> Iterator[MergedPiece]:
        for segments in segment_rounds(readers, self.order, fill_rows=fill_rows, keys_repeat=False):
            for depth, own in layers.of(segments):
                yield MergedPiece(rule.function.merge(own).rows, depth=depth)

    def _runs_to_spill(self, runs: Sequence[SortedRun]) -> list[SortedRun]:
        columns = len(self.schema.fields) + len(SYSTEM_FIELDS)
        straight = max(STRAIGHT_RUNS_MIN, OPEN_COLUMNS_MAX // columns)
        return sorted(runs, key=lambda run: run.size_bytes)[: max(0, len(runs) - straight)]

    def _fill_rows(self, runs: Sequence[SortedRun]) -> int:
        """Rows of each run in one round: half of the memory, since a run may hold a batch beyond what it was asked."""
        per_run = self.merge_bytes // (2 * len(runs))
        row_bytes = max(
            MEMORY_PER_FILE_BYTE * file.file_size_bytes // max(1, file.row_count) for run in runs for file in run.files
        )
        return max(FILL_ROWS_MIN, min(FILL_ROWS_MAX, per_run // max(1, row_bytes)))


def _read(run: SortedRun, read: ReadFile, batch_rows: int, *, has_levels: bool) -> Iterator[pa.RecordBatch]:
    for file in run.files:
        batches = read(file, batch_rows)
        yield from with_levels(batches, file.level) if has_levels else batches
