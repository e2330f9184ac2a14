"""Reads one split: rows as they are at its snapshot, value columns only, each of kind +I.

    raw-convertible split    files one after the other, nothing merged
    any other split          sections one after the other; a section of several runs is merged, retracts are dropped

What filters may do before the merge:

| where | conjuncts used inside files (row groups that cannot match are not read) |
|---|---|
| section of several runs | on key columns only: all rows of a key pass or fail together |
| section of one run, raw split | all but those on partition columns, whose values in files are not trusted |

The whole filter is applied again, exactly, to what comes out. Rows that a deletion vector marks are left out as files
are read, before anything else.

Merging decodes the columns that it looks at, but for what manifest entries say of whole files: that no row is a
retract, and that the rows of a run are all newer than those of another one, so that their numbers decide nothing. Of
1.65 M rows in five runs and ten columns the two system columns took 10 of 210 ms of decoding.

What merging costs above decoding, in processor time of one thread: to read and merge these five files takes 247 ms, to
read them as they are 200 ms (282 and 211 with those columns, keys compared one by one to find where rounds end, and a
stable sort).

Memory: a section of n runs holds about `memory_bytes` of rows, n open files and one round of merging.

Source: MERGING.md §6.3; FORMAT.md §7.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Final

import pyarrow as pa
from pyarrow.types import is_decimal, is_primitive

from freshet._frozen import Frozen, field
from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.files.data_file_reader import DataFileRead, data_files_ahead
from freshet.storage.files.file_columns import SYSTEM_FIELDS
from freshet.storage.filters.predicate import Predicate
from freshet.storage.merge.engine import merge_function, row_order
from freshet.storage.merge.key_order import KeyComparator, RowOrder
from freshet.storage.merge.merge_function import MergeFunction
from freshet.storage.merge.merge_reader import merge_section
from freshet.storage.merge.merged_table import MergeMetrics
from freshet.storage.merge.read_ahead import read_ahead
from freshet.storage.merge.row_levels import with_levels
from freshet.storage.merge.sorted_runs import Section, SortedRun, interval_partition, older_first
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema, arrow_type
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN, column_named
from freshet.storage.model.split import Split
from freshet.storage.scan.pruning import ScanFilter

MEMORY_BYTES: Final = 64 * 1024 * 1024
"""Rows held while a section is merged, unless the caller says otherwise."""

BATCH_ROWS_MAX: Final = 16 * 1024
"""Rows decoded at a time. Smaller batches cost more calls, larger ones leave the caches: to read and merge 2 M rows in
10 columns takes 0.63 s of processor time by 8 K rows, 0.58 s by 16 K, 0.70 s by 32 K."""

GATHERING_CPUS_MIN: Final = 3
"""With fewer processors those that decode leave none idle, and columns handed to threads cost more than they gain: with
two, 348 ms of processor time instead of 369 to read and merge 1.65 M rows, and no more time."""

_BATCH_ROWS_MIN: Final = 64
_ROUND_ROWS_MAX: Final = 128 * 1024
_MEMORY_PER_FILE_BYTE: Final = 2.5
_TEXT_BYTES: Final = 24


class SplitReader(Frozen, dict=True):
    """Reads splits of one table with one projection and filter. May be shared by threads."""

    store: TableStore
    columns: tuple[str, ...]
    scan_filter: ScanFilter | None = None
    memory_bytes: int = MEMORY_BYTES
    merge_metrics: MergeMetrics = field(default_factory=MergeMetrics)
    system_columns: tuple[str, ...] = ()
    """Of a keyed table: system columns that come out too, first. Then rows of all kinds do, also deletes that are
    still stored, with the kinds and numbers that they are stored with."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the batches that come out."""
        table = arrow_schema((*SYSTEM_FIELDS, *self.store.schema.fields))
        return pa.schema([table.field(name) for name in (*self.system_columns, *self.columns)])

    def with_fewest_columns(self) -> SplitReader:
        """A reader of the same rows in one column, of those that are read anyway if there are any."""
        schema = self.store.schema
        filtered = self.scan_filter.predicate.columns() if self.scan_filter else frozenset()
        candidates = [name for name in schema.column_names if name in filtered] or list(schema.trimmed_primary_keys)
        return replace(self, columns=(min(candidates or self.columns, key=self._width),))

    def _width(self, column: str) -> int:
        kind = arrow_type(self.store.schema.by_name[column].type)
        return kind.bit_width if is_primitive(kind) else _TEXT_BYTES * 8

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """Columns that come out and those that only the filter looks at, in the table's order."""
        wanted = set(self.columns) | (self.scan_filter.predicate.columns() if self.scan_filter else frozenset())
        return tuple(name for name in self.store.schema.column_names if name in wanted)

    @cached_property
    def _merged(self) -> tuple[str, ...]:
        """Columns that merging looks at too."""
        order = self._order
        wanted = {*self._function.columns_needed(self.needed), *order.key_columns, *order.sequence_columns}
        return tuple(name for name in self.store.schema.column_names if name in wanted)

    @cached_property
    def _order(self) -> RowOrder:
        return row_order(self.store.schema, self.store.options)

    @cached_property
    def _function(self) -> MergeFunction:
        return merge_function(self.store.schema, self.store.options, self.merge_metrics, table=self.store.location)

    def read(self, split: Split, executor: Executor | None = None) -> Iterator[pa.RecordBatch]:
        """Rows of the split, section by section (append tables: as written). An executor decodes files ahead."""
        is_raw = split.raw_convertible and not self.system_columns
        rows = self._raw(split, executor) if is_raw else self._sections(split, executor)
        with self.ahead([split]):
            for batch in rows:
                finished = self._finished(batch)
                if finished.num_rows:
                    yield finished

    @contextmanager
    def ahead(self, splits: Iterable[Split]) -> Iterator[None]:
        """While the block runs, these splits are about to be read, in this order."""
        given = tuple(splits)
        files = ((split.partition, split.bucket, file) for split in given for file in split.files)
        marks = (file for split in given for file in (*split.index_files, *(split.marked_by or ())))
        vectors = self.store.vectors.ahead(marks)
        with vectors, data_files_ahead(self.store, files):
            yield

    def _raw(self, split: Split, executor: Executor | None) -> Iterator[pa.RecordBatch]:
        file_part = self.scan_filter.file_part if self.scan_filter else None
        for file in split.files:
            source = DataFileRead(
                self.store,
                split.partition,
                split.bucket,
                file,
                self.needed,
                file_part,
                batch_rows=BATCH_ROWS_MAX,
                deleted_rows=self._left_out(split, file),
                use_threads=executor is not None,
            ).batches()
            yield from source if executor is None else read_ahead(source, executor, _ROUND_ROWS_MAX)

    def _left_out(self, split: Split, file: DataFileMeta) -> Bitmap32 | None:
        """Rows of a file that do not count."""
        vectors = self.store.vectors
        deleted = vectors.read(split.index_files, file.file_name)
        if split.marked_by is None:
            return deleted
        marked = vectors.read(split.marked_by, file.file_name) or Bitmap32()
        return (Bitmap32(range(file.row_count)) - marked) | (deleted or Bitmap32())

    def _sections(self, split: Split, executor: Executor | None) -> Iterator[pa.RecordBatch]:
        comparator = KeyComparator(self.store.key_types)
        for section in interval_partition(split.files, comparator):
            yield from self._section(split, section, executor)

    def _section(self, split: Split, section: Section, executor: Executor | None) -> Iterator[pa.RecordBatch]:
        runs = older_first(section)
        pushed = self._pushed(len(runs))
        round_rows = self._round_rows(runs)
        batch_rows = min(BATCH_ROWS_MAX, round_rows)
        is_by_run = self._is_by_run(runs)
        sources = [self._run(split, run, pushed, batch_rows, is_by_run=is_by_run) for run in runs]
        if executor is not None:
            sources = [read_ahead(source, executor, round_rows) for source in sources]
        yield from merge_section(
            sources,
            self._order,
            self._function,
            drop_delete=not self.system_columns,
            columns=(*self.system_columns, *self.needed),
            fill_rows=round_rows,
            executor=executor if pa.cpu_count() >= GATHERING_CPUS_MIN else None,
        )

    def _pushed(self, run_count: int) -> Predicate | None:
        if self.scan_filter is None:
            return None
        return self.scan_filter.key_part if run_count > 1 else self.scan_filter.file_part

    def _is_by_run(self, runs: Sequence[SortedRun]) -> bool:
        """Whether of two rows of one key the one in the later run has the larger sequence number, by the manifest.

        `sequence.snapshot-ordering` has other numbers there.
        """
        oldest_to_newest = [
            (min(file.min_sequence_number for file in run.files), max(file.max_sequence_number for file in run.files))
            for run in runs
        ]
        in_order = all(before[1] <= after[0] for before, after in pairwise(oldest_to_newest))
        return in_order and not self.store.options.sequence_snapshot_ordering

    def _run(
        self, split: Split, run: SortedRun, pushed: Predicate | None, batch_rows: int, *, is_by_run: bool
    ) -> Iterator[pa.RecordBatch]:
        for file in run.files:
            batches = DataFileRead(
                self.store,
                split.partition,
                split.bucket,
                file,
                self._merged,
                pushed,
                system_columns=True,
                known={} if self.system_columns else _known(file, is_by_run=is_by_run),
                batch_rows=batch_rows,
                deleted_rows=self.store.vectors.read(split.index_files, file.file_name),
            ).batches()
            yield from with_levels(batches, file.level) if self._function.reads_levels else batches

    def _round_rows(self, runs: Sequence[SortedRun]) -> int:
        """Rows of each run in one round: a run holds as many again while it reads ahead, and merging copies them."""
        stored = max(file.file_size_bytes / max(1, file.row_count) for run in runs for file in run.files)
        row_bytes = max(self._row_bytes, _MEMORY_PER_FILE_BYTE * stored)
        rows = int(self.memory_bytes / (3 * len(runs) * row_bytes))
        return max(_BATCH_ROWS_MIN, min(_ROUND_ROWS_MAX, rows))

    @cached_property
    def _row_bytes(self) -> int:
        """A row in memory, by the types of its columns; sizes of files show where texts are long."""
        types = [arrow_type(kind) for kind in self.store.schema.types_of(self._merged)]
        return 9 + sum(
            kind.bit_width // 8 + 1 if is_primitive(kind) or is_decimal(kind) else _TEXT_BYTES for kind in types
        )

    def _finished(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The exact filter, and the columns wanted."""
        if self.scan_filter is not None:
            batch = batch.filter(self.scan_filter.predicate.to_arrow())
        return pa.RecordBatch.from_arrays([batch.column(name) for name in self.schema.names], schema=self.schema)


def _known(file: DataFileMeta, *, is_by_run: bool) -> dict[str, int]:
    """System columns that need not be read: what comes out has none of them, they only order and retract rows."""
    known = {VALUE_KIND_COLUMN: int(RowKind.INSERT)} if file.is_delete_free else {}
    return known | ({SEQUENCE_NUMBER_COLUMN: file.min_sequence_number} if is_by_run else {})


def check_columns(store: TableStore, columns: Sequence[str] | None) -> tuple[str, ...]:
    """The columns to read of a table: all, or those named, each once."""
    return named_columns(store.schema.column_names, columns, store.location)


def named_columns(known: tuple[str, ...], columns: Sequence[str] | None, place: str) -> tuple[str, ...]:
    """All columns of a place, or those named, each once; the case of letters is that of filters (`column_named`)."""
    if columns is None:
        return known
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise InvalidRequestError(f"columns is a list of column names such as ['id'], not {columns!r}")
    found = []
    for given in columns:
        name = column_named(given, known)
        if name is None:
            raise InvalidRequestError(f"there is no column {given!r} in {place}; columns are {', '.join(known)}")
        found.append(name)
    if not columns:
        raise InvalidRequestError("name at least one column, or None for all of them")
    if len(set(found)) != len(found):
        raise InvalidRequestError(f"a column is named twice in {list(columns)}; name it once")
    return tuple(found)
