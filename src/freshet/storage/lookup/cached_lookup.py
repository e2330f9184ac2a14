"""Finds keys in the data files of one bucket the cheapest way: in a store made before, by reading, or in a store made
now (`lookup_cost`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from freshet.storage.files.file_fields import SYSTEM_FIELDS
from freshet.storage.lookup.file_lookup import FileLookup, FoundRows
from freshet.storage.lookup.lookup_cost import ROWS_MIN, Way, choose
from freshet.storage.lookup.lookup_metrics import LookupMetrics
from freshet.storage.lookup.lookup_store import BrokenStoreError, LookupStore
from freshet.storage.lookup.semi_join import SemiJoin
from freshet.storage.lookup.store_cache import StoreCache
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta


@dataclass(frozen=True, slots=True)
class CachedLookup:
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
        if way is Way.BUILD:
            store = self.stores.build(file, read_so_far_s + costs.read_s(key_count))
        elif way is Way.READ_AND_BUILD_LATER:
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
