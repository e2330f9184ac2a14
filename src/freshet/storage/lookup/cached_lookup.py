"""Finds keys in the data files of one bucket the cheapest way: in a store made before, by reading, or in a store made
now (`lookup_cost`).

By reading is a semi-join of two sorted streams (`SemiJoin`):

    1. leave out row groups whose footer statistics exclude the keys
    2. read the key columns of the others, batch by batch, and match each batch with the keys of its range
    3. leave out row groups in which no key was found, read the wanted columns of the others, match again

Reading stops behind the last key. Held at a time: one batch of the file, the keys, the rows found. Nothing is
remembered from one call to the next.

Cost: decoding the key columns of the row groups within reach of the keys, then the wanted columns of those that have
one. Few keys prune well where they are near each other or files are large; many keys at random read every row group.

Row groups are chosen by the first key column only, and only for types that filters compare just as keys are ordered.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any, Final

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.files.data_file_reader import ROW_POSITION_COLUMN, DataFileRead
from freshet.storage.files.file_columns import SYSTEM_FIELDS
from freshet.storage.filters.column import col
from freshet.storage.filters.predicate import Predicate
from freshet.storage.lookup.file_lookup import FileLookup, FoundRows, no_rows_found
from freshet.storage.lookup.lookup_cost import ROWS_MIN, LookupWay, choose
from freshet.storage.lookup.lookup_metrics import LookupMetrics
from freshet.storage.lookup.lookup_store import BrokenStoreError, LookupStore
from freshet.storage.lookup.store_cache import StoreCache
from freshet.storage.merge.gather import take_rows
from freshet.storage.merge.key_order import RowOrder, row_key, sort_segments
from freshet.storage.merge.sort_words import Positions
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN


def key_join(left: pa.Table, right: pa.Table, key_columns: tuple[str, ...]) -> tuple[Positions, Positions]:
    """Positions of the equal keys on both sides; each side is in key order and holds each key once."""
    names = list(key_columns)
    both = pa.concat_tables([left.select(names), right.select(names)])
    both = both.append_column(SEQUENCE_NUMBER_COLUMN, pa.array(np.zeros(both.num_rows, np.int64)))
    segments = sort_segments(both, RowOrder(key_columns), [left.num_rows, right.num_rows])
    shared = segments.starts[~segments.lone]
    return segments.order[shared], segments.order[shared + 1] - left.num_rows


KEY_BATCH_ROWS: Final = 64 * 1024
"""Keys read at a time."""

ROW_BATCH_ROWS: Final = 8 * 1024
"""Whole rows read at a time."""

KEY_RANGES_MAX: Final = 64
"""Ranges of keys by which row groups are chosen: each costs a comparison per row group."""

SEARCH_SHARE: Final = 2000
"""Up to one key in so many rows, each key is searched for by halving: it costs about as much as sorting so many rows
together with the keys."""


class SemiJoin(Frozen):
    """A `FileLookup` that reads the files of one bucket; holds no state, threads may share it."""

    store: TableStore
    partition: bytes
    bucket: int
    key_columns: tuple[str, ...]
    use_threads: bool = False

    def find(self, file: DataFileMeta, keys: pa.Table, columns: Sequence[str] | None) -> FoundRows:
        """What the file has of these keys; see `FileLookup`."""
        batches, file_rows = self._batch_of_each(file, keys)
        found = np.flatnonzero(batches)
        if columns is None:
            return FoundRows(pa.table({}), np.where(batches > 0, 0, -1), file_rows)
        if not len(found):
            return no_rows_found(self._schema(columns), keys.num_rows)
        positions = np.full(keys.num_rows, -1, np.int64)
        positions[found] = np.arange(len(found))
        return FoundRows(self._rows(file, take_rows(keys, found), batches[found], columns), positions, file_rows)

    def _batch_of_each(self, file: DataFileMeta, keys: pa.Table) -> tuple[Positions, Positions]:
        """For each key 0 if the file does not have it, else the number, from 1, of the batch that has; and its row."""
        batches, file_rows = np.zeros(keys.num_rows, np.int64), np.full(keys.num_rows, -1, np.int64)
        if keys.num_rows:
            pruned_by = _within(keys, self.key_columns[0], equal_ranges(keys.num_rows))
            for number, (positions, rows) in enumerate(self._matched(file, keys, pruned_by, None), 1):
                batches[positions] = number
                file_rows[positions] = rows.column(ROW_POSITION_COLUMN).to_numpy()
        return batches, file_rows

    def _rows(self, file: DataFileMeta, keys: pa.Table, batches: Positions, columns: Sequence[str]) -> pa.Table:
        """The rows of keys that the file has, in these batches."""
        pruned_by = _within(keys, self.key_columns[0], batch_ranges(batches))
        read = tuple(dict.fromkeys((*self.key_columns, *columns)))
        rows = pa.Table.from_batches([part for _, part in self._matched(file, keys, pruned_by, read) if part.num_rows])
        return rows.select(self._schema(columns).names)

    def _matched(
        self, file: DataFileMeta, keys: pa.Table, pruned_by: Predicate | None, columns: Sequence[str] | None
    ) -> Iterator[tuple[Positions, pa.RecordBatch]]:
        """Batch by batch: positions of the keys that are in it, and their rows (their key columns, if no columns)."""
        passed = 0
        for batch in self._read(file, pruned_by, columns):
            if not batch.num_rows:
                continue
            last = row_key(batch, batch.num_rows - 1, self.key_columns)
            end = passed + self._count_up_to(keys.slice(passed), last)
            in_keys, in_batch = self._matches(keys.slice(passed, end - passed), batch)
            yield in_keys + passed, batch.take(pa.array(in_batch))
            passed = end
            if passed == keys.num_rows:
                return

    def _read(
        self, file: DataFileMeta, pruned_by: Predicate | None, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        return DataFileRead(
            self.store,
            self.partition,
            self.bucket,
            file,
            self.key_columns if columns is None else columns,
            pruned_by,
            system_columns=columns is not None,
            batch_rows=KEY_BATCH_ROWS if columns is None else ROW_BATCH_ROWS,
            is_numbered=columns is None,
            use_threads=self.use_threads,
        ).batches()

    def _count_up_to(self, keys: pa.Table, last: tuple[Any, ...]) -> int:
        """Number of keys that are not behind the last key of a batch."""
        if row_key(keys, keys.num_rows - 1, self.key_columns) <= last:
            return int(keys.num_rows)
        count = bisect_left(range(keys.num_rows), last, key=lambda row: row_key(keys, row, self.key_columns))
        return count + int(row_key(keys, count, self.key_columns) == last)

    def _matches(self, keys: pa.Table, batch: pa.RecordBatch) -> tuple[Positions, Positions]:
        """Positions of equal keys; both sides are in order and hold each key once."""
        if keys.num_rows * SEARCH_SHARE <= batch.num_rows:
            return self._searched(keys, batch)
        return key_join(keys, pa.Table.from_batches([batch]), self.key_columns)

    def _searched(self, keys: pa.Table, batch: pa.RecordBatch) -> tuple[Positions, Positions]:
        """The same by halving, for few keys in a large batch."""
        in_keys, in_batch = [], []
        for position in range(keys.num_rows):
            key = row_key(keys, position, self.key_columns)
            row = bisect_left(range(batch.num_rows), key, key=lambda at: row_key(batch, at, self.key_columns))
            if row < batch.num_rows and row_key(batch, row, self.key_columns) == key:
                in_keys.append(position)
                in_batch.append(row)
        return np.array(in_keys, np.int64), np.array(in_batch, np.int64)

    def _schema(self, columns: Sequence[str]) -> pa.Schema:
        """The schema of the rows found."""
        table = arrow_schema((*SYSTEM_FIELDS, *self.store.schema.fields))
        return pa.schema([table.field(name) for name in (*(field.name for field in SYSTEM_FIELDS), *columns)])


def equal_ranges(count: int) -> list[tuple[int, int]]:
    """First and last position of as many ranges of equal length as are compared at most."""
    bounds = np.linspace(0, count, min(count, KEY_RANGES_MAX) + 1).astype(np.int64).tolist()
    return [(first, end - 1) for first, end in pairwise(bounds)]


def batch_ranges(batches: Positions) -> list[tuple[int, int]]:
    """First and last position of keys that are in the same batch or, where there are many, in neighbouring batches."""
    parts = (batches - 1) * KEY_RANGES_MAX // max(KEY_RANGES_MAX, int(batches[-1]))
    ends = np.flatnonzero(np.diff(parts))
    return list(zip([0, *(ends + 1).tolist()], [*ends.tolist(), len(batches) - 1], strict=True))


def _within(keys: pa.Table, column: str, ranges: Sequence[tuple[int, int]]) -> Predicate | None:
    """True for all rows whose first key column lies between those of two keys of a range; None where not known."""
    if not _can_prune(keys.schema.field(column).type):
        return None
    values = keys.column(column)
    parts: list[Predicate] = [
        (col(column) >= values[first].as_py()) & (col(column) <= values[last].as_py()) for first, last in ranges
    ]
    return reduce(or_, parts)


def _can_prune(kind: pa.DataType) -> bool:
    """Types whose values filters compare just as keys are ordered, in Python without loss."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_string(kind) or types.is_binary(kind) or types.is_decimal(kind))


class CachedLookup(Frozen):
    """A `FileLookup`; holds no state of its own, threads may share it."""

    stores: StoreCache
    reading: FileLookup
    metrics: LookupMetrics

    def find(self, file: DataFileMeta, keys: pa.Table, columns: Sequence[str] | None) -> FoundRows:
        """What the file has of these keys; see `FileLookup`."""
        found = self._found(file, keys, columns)
        self.metrics.add(keys=keys.num_rows, found=int(found.is_found.sum()))
        return found

    def is_read(self, file: DataFileMeta) -> bool:
        """Whether the file has no store yet, so that it is likely to be read."""
        return not self.stores.is_on or self.stores.find(file) is None

    def _found(self, file: DataFileMeta, keys: pa.Table, columns: Sequence[str] | None) -> FoundRows:
        store = self._store(file, keys.num_rows)
        if store is not None:
            try:
                found = store.find(keys, None if columns is None else _with_system(columns))
            except BrokenStoreError as error:
                self.stores.discard(file, error)
            else:
                self.metrics.add(by_store=1)
                return found
        self.metrics.add(by_reading=1)
        return self.reading.find(file, keys, columns)

    def _store(self, file: DataFileMeta, key_count: int) -> LookupStore | None:
        """The store to ask; None: the file is to be read."""
        if not self.stores.is_on:
            return None
        store, costs = self.stores.find(file), self.stores.costs(file)
        if store is None and file.row_count < ROWS_MIN:
            return None
        read_so_far_s = self.stores.read_so_far_s(file)
        way = choose(costs, key_count, has_store=store is not None, read_so_far_s=read_so_far_s)
        if way is LookupWay.BUILD:
            store = self.stores.build(file, read_so_far_s + costs.read_s(key_count))
        elif way is LookupWay.READ_AND_BUILD_LATER:
            self.stores.build_later(file)
        if store is None:
            self.stores.note_read(file, costs.read_s(key_count))
        return store


def bucket_lookup(
    store: TableStore,
    partition: bytes,
    bucket: int,
    metrics: LookupMetrics | None = None,
    *,
    use_threads: bool = False,
) -> CachedLookup:
    """Lookups in the files of one bucket."""
    metrics = metrics or LookupMetrics()
    reading = SemiJoin(store, partition, bucket, store.schema.trimmed_primary_keys, use_threads)
    return CachedLookup(StoreCache(store, partition, bucket, metrics), reading, metrics)


def _with_system(columns: Sequence[str]) -> list[str]:
    system = [field.name for field in SYSTEM_FIELDS]
    return [*system, *columns]
