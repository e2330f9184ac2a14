"""A scan: which rows of which snapshot, planned from metadata and read as Arrow data.

    scan = table.scan(columns=["id"], filter=col("total") > 10, limit=100)
    scan.plan()        splits: what can be read independently, in this or another process
    scan.read_split(s) the rows of one of them
    scan.to_arrow()    everything at once; splits are read in parallel
    scan.to_batches()  one batch after the other in bounded memory, whatever the size of the table
    scan.to_reader()   the same as a RecordBatchReader
    scan.count()       the number of rows, from metadata where that is exact
    scan.to_pandas()   everything for another library, which has to be installed; also to_polars, to_duckdb

The snapshot is chosen when the scan is made and rows are those of that snapshot, in the columns it had. Batches come in
the order of the splits whatever the number of threads; a limit stops reading early. A scan can be pickled: another
process plans the same splits and reads them.

Files are decoded by threads that all scans of a process share, so a scan that is left half read holds none of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cached_property, lru_cache
from typing import Any, Final, SupportsIndex

import pyarrow as pa

from freshet.storage.codec.metadata_json import decode_snapshot, encode_snapshot
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.column import from_lists
from freshet.storage.filters.predicate import Predicate
from freshet.storage.io.shown_work import advance_work
from freshet.storage.merge.gather import limited
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arguments import TimeGiven
from freshet.storage.model.data_type import DataField
from freshet.storage.model.shown import facts_html, note_html
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.split import Split
from freshet.storage.scan.frame_outputs import FrameOutputs
from freshet.storage.scan.planner import plan_scan
from freshet.storage.scan.preview import TOO_LARGE, is_cheap_to_plan, rows_of_scan
from freshet.storage.scan.pruning import PartitionPruning, ScanFilter
from freshet.storage.scan.read_snapshot import explained, find_in
from freshet.storage.scan.split_reader import SplitReader, check_columns

THREADS: Final = 2
"""Threads that decode files, concurrently with the caller's, which merges."""

STORE_THREADS: Final = 8
"""The same at a store where requests take their time: threads wait there for bytes."""


class TableScan(FrameOutputs):
    """One read of a table; nothing is read before rows are requested. `Table.scan` gives it.

        scan = table.scan(["id", "total"], "total > 10", limit=100)
        scan.to_pandas()
        for batch in scan.to_batches():  # in bounded memory
            print(batch.num_rows)

    All rows: `to_arrow`, `to_pandas`, `to_polars`, `to_duckdb`; bit by bit: `to_batches`, `to_reader`; `count`.
    For other processes: `plan` gives splits, `read_split` the rows of one.
    """

    def __init__(
        self,
        store: TableStore,
        *,
        columns: Sequence[str] | None = None,
        filter: Predicate | Sequence[Any] | None = None,  # noqa: A002  # the word every reader library uses
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp_ms: TimeGiven | None = None,
        limit: int | None = None,
        snapshot: Snapshot | None = None,
        threads: int = THREADS,
    ) -> None:
        """`snapshot` is for a caller that has one already: its rows are read in the columns of `store`, not in those
        that it had, as with the three ways to travel in time.
        """
        if limit is not None and (not isinstance(limit, SupportsIndex) or limit < 0):
            raise InvalidRequestError(f"limit is a number of rows and cannot be {limit!r}")
        travels = snapshot_id is not None or tag is not None or timestamp_ms is not None
        if travels and snapshot is not None:
            raise InvalidRequestError("a scan reads one snapshot: give the snapshot, or say which one, not both")
        self.snapshot: Snapshot | None = snapshot or find_in(
            store, snapshot_id=snapshot_id, tag=tag, timestamp_ms=timestamp_ms
        )
        self._store = _at_schema_of(store, self.snapshot) if travels else store
        self._place = store.location
        self._limit = limit
        self._threads = threads
        self._filter = ScanFilter.bind(self._store.schema, from_lists(filter))
        self._reader = SplitReader(self._store, check_columns(self._store, columns), self._filter)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows that come out."""
        return self._reader.schema

    @property
    def fields(self) -> tuple[DataField, ...]:
        """The same columns with the types of the table."""
        return tuple(self._store.schema.by_name[name] for name in self._reader.columns)

    def plan(self) -> list[Split]:
        """Splits that together hold every row that can match; a limit does not show here.

        This and everything that reads raises `RetryableError` when the snapshot has expired meanwhile, and
        `NotFoundError` when the table was dropped.
        """
        return list(self._splits)

    def read_split(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Rows of one split of this scan's plan, in the calling thread only; a limit counts within the split."""
        return limited(self._read(split, None), self._limit)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in bounded memory. Files stay open until the last batch, or until the generator is closed."""
        return limited(self._batches(), self._limit)

    def to_arrow(self) -> pa.Table:
        """All rows."""
        if self._limit is not None or len(self._splits) < 2 or self._threads < 2:
            return super().to_arrow()
        with self._reader.ahead(self._splits), ThreadPoolExecutor(self._decoding_threads, "freshet-scan") as executor:
            parts = executor.map(lambda split: list(self._read(split, None)), self._splits)
            return pa.Table.from_batches([batch for part in parts for batch in part], self.schema)

    def count(self) -> int:
        """The number of rows. Files are read only where they have to be merged or filtered, and few columns of them."""
        reader = self._reader.with_fewest_columns()
        known = [self._known_count(split) for split in self._splits]
        to_read = [split for split, count in zip(self._splits, known, strict=True) if count is None]
        total = 0
        with reader.ahead(to_read if self._limit is None else ()):
            for split, count in zip(self._splits, known, strict=True):
                if self._limit is not None and total >= self._limit:
                    break
                if count is None:
                    with explained(self._store, self.snapshot):
                        count = sum(batch.num_rows for batch in reader.read(split, self._executor))
                total += count
        return total if self._limit is None else min(self._limit, total)

    def _known_count(self, split: Split) -> int | None:
        """The rows of a split, where its files need not be read for that."""
        marked = split.marked_row_count
        is_known = split.raw_convertible and marked is not None and self._keeps_all_of(split)
        return split.row_count_max - (marked or 0) if is_known else None

    def _keeps_all_of(self, split: Split) -> bool:
        """Whether the filter is known to be true for every row."""
        if self._filter is None:
            return True
        pruning = PartitionPruning(self._filter, self._store.partition_types)
        return self._filter.is_on_partitions_only and pruning.holds(split.partition)

    def __repr__(self) -> str:
        at = "no snapshot yet" if self.snapshot is None else f"snapshot {self.snapshot.id}"
        told = [("columns", str(len(self._reader.columns))), ("filter on", self._filtered), ("limit", self._limit)]
        facts = "".join(f", {label} {value}" for label, value in told if value not in (None, ""))
        return f"TableScan({self._store.name!r}, {at}{facts})"

    def _html(self) -> str:
        """Reads the first rows where that is cheap (`preview`)."""
        facts = (("filter on", self._filtered), ("limit", self._limit))
        if self.snapshot is None:
            return facts_html(f"Scan of {self._store.name}", facts, note_html("no snapshot yet: nothing was committed"))
        title = f"Scan of {self._store.name} at snapshot {self.snapshot.id}"
        with explained(self._store, self.snapshot):
            is_planned = "_splits" in vars(self)
            if not is_planned and not is_cheap_to_plan(self._store, self.snapshot):
                return facts_html(title, facts, note_html(TOO_LARGE))
            return facts_html(title, facts, rows_of_scan(self._reader, self._splits, self._limit))

    @property
    def _filtered(self) -> str:
        """The columns that the filter looks at."""
        return "" if self._filter is None else ", ".join(sorted(self._filter.predicate.columns()))

    def __reduce__(self) -> tuple[Any, ...]:
        predicate = None if self._filter is None else self._filter.predicate
        snapshot = None if self.snapshot is None else encode_snapshot(self.snapshot)
        return _reopened, (self._store, self._reader.columns, predicate, snapshot, self._limit, self._threads)

    @cached_property
    def _splits(self) -> list[Split]:
        with explained(self._store, self.snapshot):
            return plan_scan(self._store, self.snapshot, self._filter)

    @property
    def _executor(self) -> Executor | None:
        return decoders(self._decoding_threads) if self._threads > 1 else None

    @property
    def _decoding_threads(self) -> int:
        return self._threads if self._store.env.reads is None else max(self._threads, STORE_THREADS)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        with self._reader.ahead(self._splits if self._limit is None else ()):
            for number, split in enumerate(self._splits, 1):
                yield from self._read(split, self._executor)
                advance_work(number, len(self._splits))

    def _read(self, split: Split, executor: Executor | None) -> Iterator[pa.RecordBatch]:
        with explained(self._store, self.snapshot):
            yield from self._reader.read(split, executor)


def decoders(threads: int = THREADS) -> Executor:
    """Threads that decode files for all readers of this process."""
    return _decoders(os.getpid(), max(threads, os.cpu_count() or 1))


@lru_cache(4)
def _decoders(process_id: int, threads: int) -> Executor:
    """Threads that decode files for all scans of the process; a forked child starts threads of its own.

    What they are given never waits for other work, so that no scan can block another one.
    """
    return ThreadPoolExecutor(threads, "freshet-scan")


def _reopened(
    store: TableStore,
    columns: tuple[str, ...],
    predicate: Predicate | None,
    encoded_snapshot: bytes | None,
    limit: int | None,
    threads: int,
) -> TableScan:
    """A scan that was pickled; the snapshot is the one chosen then."""
    snapshot = None if encoded_snapshot is None else decode_snapshot(encoded_snapshot, store.location)
    scan = TableScan(store, columns=columns, filter=predicate, snapshot=snapshot, limit=limit, threads=threads)
    scan.snapshot = snapshot  # also where there was none yet
    return scan


def _at_schema_of(store: TableStore, snapshot: Snapshot | None) -> TableStore:
    """The table as it was: rows of an old snapshot are read with the columns it had."""
    if snapshot is None or snapshot.schema_id == store.schema.id:
        return store
    return store.at_schema(snapshot.schema_id)
