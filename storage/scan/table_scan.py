"""A scan: which rows of which snapshot, planned from metadata and read as Arrow data.

    scan = table.scan(columns=["id"], filter=col("total") > 10, limit=100)
    scan.plan()        splits: what can be read independently, in this or another process
    scan.to_arrow()    everything at once; splits are read side by side
    scan.to_batches()  one batch after the other in bounded memory, whatever the size of the table
    scan.to_reader()   the same as a RecordBatchReader

The snapshot is chosen when the scan is made and rows are those of that snapshot, in the columns it had. Batches come in
the order of the splits whatever the number of threads; a limit stops reading early.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, Final, SupportsIndex

import pyarrow as pa

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.split import Split
from freshet.storage.predicate import Predicate, from_lists
from freshet.storage.scan.planner import plan_scan
from freshet.storage.scan.pruning import ScanFilter
from freshet.storage.scan.split_reader import SplitReader, check_columns
from freshet.storage.scan.time_travel import find_snapshot

THREADS: Final = 2
"""Threads that decode files, beside the caller's which merges."""


class TableScan:
    """One read of a table; nothing is read before the rows are asked for."""

    def __init__(
        self,
        store: TableStore,
        *,
        columns: Sequence[str] | None = None,
        filter: Predicate | Sequence[Any] | None = None,  # noqa: A002  # the word every reader library uses
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp_ms: int | None = None,
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
        self.snapshot: Snapshot | None = snapshot or find_snapshot(
            store.snapshots, snapshot_id=snapshot_id, tag=tag, timestamp_ms=timestamp_ms
        )
        self._store = _at_schema_of(store, self.snapshot) if travels else store
        self._limit = limit
        self._threads = threads
        self._filter = ScanFilter.bind(self._store.schema, from_lists(filter))
        self._reader = SplitReader(self._store, check_columns(self._store, columns), self._filter)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows that come out."""
        return self._reader.schema

    def plan(self) -> list[Split]:
        """Splits that together hold every row that can match; a limit does not show here."""
        return list(self._splits)

    def read_split(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Rows of one split of this scan's plan, in the calling thread only; a limit counts within the split."""
        return _limited(self._reader.read(split), self._limit)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in bounded memory."""
        return _limited(self._batches(), self._limit)

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows, in bounded memory, for a consumer that pulls."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_arrow(self) -> pa.Table:
        """All rows."""
        if self._limit is not None or len(self._splits) < 2 or self._threads < 2:
            return pa.Table.from_batches(self.to_batches(), self.schema)
        with ThreadPoolExecutor(self._threads, "freshet-scan") as executor:
            parts = executor.map(lambda split: list(self._reader.read(split)), self._splits)
            return pa.Table.from_batches([batch for part in parts for batch in part], self.schema)

    @cached_property
    def _splits(self) -> list[Split]:
        return plan_scan(self._store, self.snapshot, self._filter)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._threads < 2:
            for split in self._splits:
                yield from self._reader.read(split)
            return
        with ThreadPoolExecutor(self._threads, "freshet-scan") as executor:
            for split in self._splits:
                yield from self._reader.read(split, executor)


def _limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """At most `limit` rows; nothing is read beyond them."""
    if limit is None:
        yield from batches
        return
    left = limit
    while left > 0:
        batch = next(batches, None)
        if batch is None:
            return
        batch = batch.slice(0, left)
        left -= batch.num_rows
        yield batch


def _at_schema_of(store: TableStore, snapshot: Snapshot | None) -> TableStore:
    """The table as it was: rows of an old snapshot are read with the columns it had."""
    if snapshot is None or snapshot.schema_id == store.schema.id:
        return store
    return store.at_schema(snapshot.schema_id)
