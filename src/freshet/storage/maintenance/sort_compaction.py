"""Sorts the rows of an append table without buckets, so that filters on the columns sorted by read few files.

    order     by the columns, the first one first: for filters on the first column
    zorder    along a Z-order curve through all columns: for filters on any of them
    hilbert   along a Hilbert curve: the same with smaller boxes, at a little more processor time

Each partition is rewritten by itself, and committed by itself as a compaction of exactly the files that were read:
rows that are appended meanwhile stay, readers of the changes see nothing, and where another writer has rewritten one of
the files the commit is dropped. Paimon's action overwrites the partitions instead: rows that were appended meanwhile go
with what it replaces.

    1. a sample of the columns gives cuts of about equal numbers of rows, `BITS_MAX` bits of them a column, so that the
       distribution of values does not matter; for `order` the cuts are through all columns at once
    2. rows are read; the position of each on the curve is that of the cuts it lies between. Runs that fill the memory
       are sorted by position and put on scratch disk
    3. the runs are read together, range after range of positions that the sample makes about equal, each range is
       sorted in memory and written

NULL comes first, NaN last. Memory: `write-buffer-size`, for the rows of a run or of a range.

Rows that are near on a curve are near in every column.

    z_order   the bits of all coordinates in turn, the highest first
    hilbert   the Hilbert curve: neighbours on it are neighbours in space, so it makes no jumps

Coordinates are whole numbers of `bits` bits, one row of `coordinates` per column; the position on the curve is a number
of as many bits as all of them together, 64 at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.storage.compact.rewriter import CompactedFiles
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.files.data_file_writer import AppendFileWriter
from freshet.storage.io.env import CrashPoint
from freshet.storage.io.removal import undone_on_failure
from freshet.storage.io.spill_file import Scratch, SpillFile
from freshet.storage.maintenance.compaction_plan import BucketCompaction
from freshet.storage.maintenance.partition_choice import PartitionChoice, partition_test, warn_of_none
from freshet.storage.maintenance.table_compaction import (
    CompactionAccount,
    CompactionBudget,
    CompactionResult,
    ProgressCallback,
)
from freshet.storage.metadata.live_files import BucketFiles
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.commit_facts import CompactionReason
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta, FileSource
from freshet.storage.model.data_type import ScalarType
from freshet.storage.model.manifest import BucketId, IndexFileMeta
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.choices import UNAWARE_BUCKET
from freshet.storage.write.bucket_state import vector_files
from freshet.storage.write.increment import AppendIndex, CompactionRound

BITS_MAX: Final = 12
"""Bits of one column: 4096 ranges of values, more than any partition has files that matter."""
KEY_BITS_MAX: Final = 60
SAMPLE_ROWS: Final = 100_000
BATCH_ROWS: Final = 64 * 1024

_POSITION: Final = "_position"

UInt64s = npt.NDArray[np.uint64]


class SortStrategy(StrEnum):
    """How several columns make one order."""

    ORDER = "order"
    ZORDER = "zorder"
    HILBERT = "hilbert"


class _Cuts(Frozen):
    """Cuts of one dimension: rows of the columns that make it, in order, all different."""

    names: tuple[str, ...]
    rows: pa.Table

    @classmethod
    def of(cls, sample: pa.Table, names: Sequence[str], bits: int) -> _Cuts:
        """Cuts into 2 ** bits ranges of about equal numbers of rows, or fewer."""
        ordered = sample.select(list(names)).take(_order(sample, names))
        count = min(len(ordered), 1 << bits)
        at = np.unique(np.arange(1, count, dtype=np.int64) * len(ordered) // count)
        rows = ordered.take(pa.array(at))
        return cls(tuple(names), rows.group_by(list(names), use_threads=False).aggregate([]))

    def codes(self, rows: pa.Table) -> UInt64s:
        """For each row the number of cuts that are not after it."""
        both = pa.concat_tables([self.rows, rows.select(list(self.names))])
        order = _order(both, self.names).to_numpy()
        is_cut = order < len(self.rows)
        seen = np.cumsum(is_cut).astype(np.uint64)
        codes = np.empty(len(rows), np.uint64)
        codes[order[~is_cut] - len(self.rows)] = seen[~is_cut]
        return codes


class _Curve(Frozen):
    """Gives each row its position."""

    strategy: SortStrategy
    names: tuple[str, ...]
    bits: int
    dimensions: tuple[_Cuts, ...]

    @classmethod
    def of(cls, strategy: SortStrategy, names: tuple[str, ...], sample: pa.Table) -> _Curve:
        if strategy is SortStrategy.ORDER:
            return cls(strategy, names, BITS_MAX, (_Cuts.of(sample, names, BITS_MAX),))
        bits = min(BITS_MAX, KEY_BITS_MAX // len(names))
        return cls(strategy, names, bits, tuple(_Cuts.of(sample, [name], bits) for name in names))

    def positions(self, rows: pa.Table) -> UInt64s:
        codes = [cuts.codes(rows) for cuts in self.dimensions]
        if self.strategy is SortStrategy.ORDER:
            return codes[0]
        return (z_order if self.strategy is SortStrategy.ZORDER else hilbert)(codes, self.bits)

    def sorted(self, rows: pa.Table) -> pa.Table:
        """Rows with their position, in the order wanted."""
        names = [_POSITION, *self.names] if self.strategy is SortStrategy.ORDER else [_POSITION]
        return rows.take(_order(rows, names))


def sort_compact(
    store: TableStore,
    order_by: Sequence[str],
    strategy: str = SortStrategy.ORDER,
    *,
    partition: PartitionChoice | None = None,
    progress: ProgressCallback | None = None,
) -> CompactionResult:
    """Sorts the partitions chosen, one after the other, each with a commit of its own.

    Raises `InvalidRequestError` for tables with a primary key or with buckets, unknown columns, columns without an
    order and unknown strategies.
    """
    store, live, indexes = store.at_latest(partial(_live_files, store))
    store.check_writable()
    names, how = _checked(store, order_by, strategy)
    is_chosen = partition_test(store, partition)
    warn_of_none(store, [partition], "nothing is sorted")
    works = [
        BucketCompaction(name, bucket, True, tuple(entry.file for entry in entries.values()))
        for (name, bucket), entries in sorted(live.items())
        if is_chosen(name)
    ]
    account = CompactionAccount(store, works, CompactionBudget(), progress)

    def sort(batch: Sequence[BucketCompaction]) -> list[CommitMessage]:
        (work,) = batch
        message = _sorted(store, work, names, how, indexes.get(work.bucket_id, ()))
        account.on_end(work.bucket_id)
        return [message]

    result = account.committed(([work] for work in works), sort)
    store.env.finish_later()
    return result


def _live_files(
    store: TableStore, snapshot: Snapshot | None
) -> tuple[TableStore, Mapping[BucketId, BucketFiles], Mapping[BucketId, tuple[IndexFileMeta, ...]]]:
    """The files, those that mark rows of them, and the table at a schema that was read after the snapshot: it has all
    columns that they have."""
    newest = store.at_latest_schema()
    return newest, newest.live.at(snapshot).by_bucket, vector_files(newest, snapshot)


def _checked(store: TableStore, order_by: Sequence[str], strategy: str) -> tuple[tuple[str, ...], SortStrategy]:
    def refuse(reason: str, column: str | None = None) -> InvalidRequestError:
        return InvalidRequestError(
            f"table {store.location} cannot be sorted: {reason}", path=store.location, column=column
        )

    if store.schema.has_primary_key or store.options.bucket != UNAWARE_BUCKET:
        raise refuse("only append tables without buckets (bucket=-1) can; others keep an order of their own")
    if strategy not in list(SortStrategy):
        raise refuse(f"there is no strategy {strategy!r}; there are {', '.join(SortStrategy)}")
    if not order_by:
        raise refuse("name the columns to sort by")
    for name in order_by:
        if name not in store.schema.by_name:
            raise refuse(f"it has no column {name!r}; its columns are {', '.join(store.schema.column_names)}", name)
        if not isinstance(store.schema.by_name[name].type, ScalarType):
            raise refuse(f"column {name!r} is {store.schema.by_name[name].type}, which has no order", name)
    if len(set(order_by)) < len(order_by) or len(order_by) > KEY_BITS_MAX:
        raise refuse(f"name each column once, and {KEY_BITS_MAX} at most")
    return tuple(order_by), SortStrategy(strategy)


def _sorted(
    store: TableStore,
    work: BucketCompaction,
    names: tuple[str, ...],
    strategy: SortStrategy,
    index_files: tuple[IndexFileMeta, ...],
) -> CommitMessage:
    """New files with the rows of these in order, without those marked; nothing is left behind on failure."""
    files, bucket_id, index = work.inputs, work.bucket_id, AppendIndex(store, index_files)
    started_ms = store.env.now_ms()

    def batches(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for file in files:
            deleted = index.vectors.of(file.file_name)
            read = DataFileRead(store, *bucket_id, file, columns, batch_rows=BATCH_ROWS, deleted_rows=deleted)
            yield from read.batches()

    store.env.reach(CrashPoint.COMPACT_BEFORE_OUTPUT)
    sample = _sample(store, batches, files, names)
    curve = _Curve.of(strategy, names, sample)
    scratch = Scratch(store.env)
    writer = AppendFileWriter(store, *bucket_id, FileSource.COMPACT, min(f.min_sequence_number for f in files))
    try:
        with undone_on_failure(writer.abort):
            for rows in _in_order(batches(store.schema.column_names), curve, sample, scratch, store):
                writer.write(rows.drop_columns([_POSITION]))
            outputs = writer.close()
    finally:
        scratch.release()
    store.env.reach(CrashPoint.COMPACT_OUTPUT_WRITTEN)
    facts = CompactedFiles(files, tuple(outputs)).facts(
        CompactionReason.SORT, store.env.now_ms() - started_ms, to_level=None
    )
    message = CommitMessage(
        *bucket_id, UNAWARE_BUCKET, compact_before=files, compact_after=tuple(outputs), compactions=(facts,)
    )
    return index.completed(message, [CompactionRound({file.file_id: file for file in files}, outputs)])


def _sample(
    store: TableStore,
    batches: Callable[[Sequence[str]], Iterator[pa.RecordBatch]],
    files: Sequence[DataFileMeta],
    names: tuple[str, ...],
) -> pa.Table:
    """Every n-th row, of the columns that are sorted by."""
    columns = [name for name in store.schema.column_names if name in names]
    step = max(1, sum(file.row_count for file in files) // SAMPLE_ROWS)
    parts, at = [], 0
    for batch in batches(columns):
        parts.append(batch.take(pa.array(np.arange(-at % step, batch.num_rows, step))))
        at += batch.num_rows
    schema = pa.schema([arrow_schema(store.schema).field(name) for name in columns])
    return pa.Table.from_batches(parts, schema=schema)


def _in_order(
    batches: Iterator[pa.RecordBatch], curve: _Curve, sample: pa.Table, scratch: Scratch, store: TableStore
) -> Iterator[pa.Table]:
    """All rows with their positions, in order, a range at a time."""
    budget = store.options.write_buffer_size_bytes // 2  # rows are there twice while they are sorted
    buffered: list[pa.RecordBatch] = []
    runs: list[SpillFile] = []
    size = total = 0

    def sorted_run() -> pa.Table:
        rows = pa.Table.from_batches(buffered)
        return curve.sorted(rows.append_column(_POSITION, pa.array(curve.positions(rows))))

    for batch in batches:
        buffered.append(batch)
        size += batch.nbytes
        total += batch.nbytes
        if size >= budget:
            rows = sorted_run()
            runs.append(SpillFile(scratch.new_path(), rows.schema, [rows]))
            buffered.clear()
            size = 0
    if not runs:
        if buffered:
            yield sorted_run()
        return
    if buffered:
        rows = sorted_run()
        runs.append(SpillFile(scratch.new_path(), rows.schema, [rows]))
        buffered.clear()
    positions = np.sort(curve.positions(sample))
    count = max(1, -(-total // budget))
    ends = np.unique(positions[np.arange(1, count) * len(positions) // count])
    readers = [_SortedRun(run.read()) for run in runs]
    for end in [*ends.tolist(), None]:
        parts = [part for reader in readers for part in reader.until(end)]
        if parts:
            yield curve.sorted(pa.Table.from_batches(parts))


class _SortedRun:
    """A run read range by range."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest: pa.RecordBatch | None = None

    def until(self, end: int | None) -> Iterator[pa.RecordBatch]:
        """Rows with positions below the end; all that are left for None."""
        while True:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            self._rest = None
            if batch is None:
                return
            below = batch.num_rows
            if end is not None:
                below = int(np.searchsorted(batch.column(_POSITION).to_numpy(), np.uint64(end)))
            if below:
                yield batch.slice(0, below)
            if below < batch.num_rows:
                self._rest = batch.slice(below)
                return


def _order(rows: pa.Table, names: Sequence[str]) -> Any:
    """Positions of the rows in the order of the columns, NULL first; rows that are equal stay in theirs.

    Versions of pyarrow take the place of NULL in different ways: here a column says which values are there.
    """
    keys = {}
    for number, name in enumerate(names):
        column = rows.column(name)
        if column.null_count:
            keys[f"{number} is valid"] = column.is_valid()
        keys[f"{number}"] = column
    return pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])


def z_order(coordinates: Sequence[UInt64s], bits: int) -> UInt64s:
    """Places on the Z-order curve."""
    position = np.zeros(len(coordinates[0]), np.uint64)
    one = np.uint64(1)
    for bit in range(bits - 1, -1, -1):
        for values in coordinates:
            position = (position << one) | ((values >> np.uint64(bit)) & one)
    return position


def hilbert(coordinates: Sequence[UInt64s], bits: int) -> UInt64s:
    """Places on the Hilbert curve: the coordinates are turned bit by bit (Skilling's transform), then interleaved."""
    turned = [values.copy() for values in coordinates]
    zero = np.uint64(0)
    for bit in range(bits - 1, 0, -1):
        mask, below = np.uint64(1 << bit), np.uint64((1 << bit) - 1)
        for values in turned:
            is_set = (values & mask) != zero
            swapped = np.where(is_set, zero, (turned[0] ^ values) & below)
            turned[0] ^= np.where(is_set, below, swapped)
            if values is not turned[0]:
                values ^= swapped
    for before, values in pairwise(turned):
        values ^= before
    last = np.zeros(len(turned[0]), np.uint64)
    for bit in range(bits - 1, 0, -1):
        last ^= np.where((turned[-1] & np.uint64(1 << bit)) != zero, np.uint64((1 << bit) - 1), zero)
    return z_order([values ^ last for values in turned], bits)
