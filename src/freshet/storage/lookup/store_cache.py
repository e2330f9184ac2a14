"""The stores of one table on this machine: found, built, kept within bounds, let go.

    <lookup.cache-dir>/<table>/<partition>-<bucket>/<data file>.<schema id>.rows     mapped columns
    <lookup.cache-dir>/<table>/<partition>-<bucket>/<data file>.<schema id>.rocks/   a RocksDB database

With `lookup.cache.store=auto` stores are mapped columns as long as all of them have room, and RocksDB, which takes half of
the disk and more time, where they have not.

All processes of a user share them, and so do restarts of a query. Nothing depends on them: whatever is wrong with the
folder, the disk or a store, the caller reads the data file instead.

| | |
|---|---|
| two processes build one store | both succeed, the later one replaces the other |
| a store is cut short, damaged, of another file or version | it is removed and built again |
| the disk is full, the folder cannot be written | one warning; nothing is built for `RETRY_MS` |
| not used for `lookup.cache-file-retention` (stores of other tables: a day at least) | removed when the next is built |
| all together above `lookup.cache-max-disk-size` | those used longest ago go, but none that was used in the last `BUSY_MS`: then the new one is not built |
| its data file is no longer in the bucket | removed by the next compaction with lookup of the bucket (`keep_only`) |
| its data file is not in the bucket yet (`build_ahead`) | left for `BUSY_MS` by processes that have not used it |

A store that is removed while another process has it mapped stays usable there. Use is noted in the modification time,
once a minute. Without sync: the identity and the checksums in a store show what survived a crash.
"""  # noqa: E501 - a table

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from typing import Any, Final

import pyarrow as pa

from freshet.storage.exceptions import CorruptDataError, InvalidRequestError, RetryableError, StorageError
from freshet.storage.io.local_cache import LocalCache
from freshet.storage.lookup.lookup_cost import ROWS_MIN, FileCosts
from freshet.storage.lookup.lookup_metrics import LookupMetrics
from freshet.storage.lookup.lookup_store import BrokenStoreError, LookupStore, StoreKind, StoreRows
from freshet.storage.lookup.open_stores import OpenStore, SpareRoom, stores_of
from freshet.storage.lookup.rocks_store import RocksKind, is_rocksdb_installed
from freshet.storage.lookup.store_file import MappedKind
from freshet.storage.lookup.store_rows import FileRows, RowsInMemory, store_schema
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.options.choices import LookupStoreChoice

FOLDER_NAME: Final = "freshet-lookup"
VERSION: Final = 1
"""Another number for every change of what the rows of a store mean."""

NOTE_MS: Final = 60 * 1000
"""Use of a store is noted on disk this often."""
BUSY_MS: Final = 2 * NOTE_MS
OTHERS_RETENTION_MS: Final = 24 * 60 * 60 * 1000
RETRY_MS: Final = 5 * 60 * 1000
"""After a store could not be written, none is tried for so long."""
OPEN_MAX: Final = 512
"""Stores that a process keeps mapped."""
FILES_MAX: Final = 10_000
"""Files whose cost of reading a process remembers."""
FREE_SHARE: Final = 2
"""A store is made where so many times its bytes are free."""
FRAME_BYTES: Final = 8 * 1024
"""What a store of few rows takes besides them."""
SPARE_PARTS: Final = 16
SPARE_MS: Final = 60_000
"""For so long, this part of the room that was found is taken without another look; others take theirs meanwhile."""
PIECE_BYTES_MIN: Final = 1024 * 1024
PIECE_BYTES_MAX: Final = 64 * 1024 * 1024

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreCache:
    """The stores of one bucket. Holds no state of its own, threads may share it."""

    table: TableStore
    partition: bytes
    bucket: int
    metrics: LookupMetrics

    @property
    def is_on(self) -> bool:
        """False when the table's options allow no stores."""
        return self.table.options.lookup_cache_max_disk_size_bytes > 0

    def read_so_far_s(self, file: DataFileMeta) -> float:
        """What reading the file for lookups has cost in this process, in seconds."""
        return stores_of(self.table.env).read_s.get(self._stem(file), 0.0)

    def note_read(self, file: DataFileMeta, seconds: float) -> None:
        """Adds to that."""
        stores = stores_of(self.table.env)
        with stores.lock:
            name = self._stem(file)
            stores.read_s[name] = stores.read_s.get(name, 0.0) + seconds
            stores.read_s.move_to_end(name)
            if len(stores.read_s) > FILES_MAX:
                stores.read_s.popitem(last=False)

    def find(self, file: DataFileMeta) -> LookupStore | None:
        """The store of a file, if there is one."""
        found = (self._found(file, kind) for kind in self._kinds)
        return next((store for store in found if store is not None), None)

    def _found(self, file: DataFileMeta, kind: StoreKind) -> LookupStore | None:
        stores, name, now_ms = stores_of(self.table.env), self._name(file, kind), self.table.env.now_ms()
        key = self._key(name)
        with stores.lock:
            store = stores.open.get(key)
            if store is not None:
                stores.open.move_to_end(key)
        if store is None:
            return self._opened(file, kind, now_ms)
        if now_ms - store.noted_ms > NOTE_MS:
            store.noted_ms = now_ms
            if not self._cache.note_use(name, now_ms):  # it was evicted: its room on the disk shall be free
                self._close(name)
                return None
        return store.file

    def costs(self, file: DataFileMeta) -> FileCosts:
        """What lookups in a file cost, with a store of the kind that is tried first."""
        return _costs(file, self._kinds[0])

    def build(self, file: DataFileMeta, spent_s: float = inf) -> LookupStore | None:
        """Makes the store of a file; None when that is not possible now, or costs more than was spent on reading."""
        now_ms = self.table.env.now_ms()
        kind = self._write(file, now_ms, spent_s=spent_s)
        return None if kind is None else self._opened(file, kind, now_ms)

    def build_ahead(self, replaced: Collection[DataFileMeta], files: Collection[DataFileMeta]) -> None:
        """Makes the stores of files that are about to take the place of others, if any of those has one.

        Else the first lookup after the change would have to make them, and its commit wait.
        """
        if not self.is_on or not replaced:
            return
        now_ms = self.table.env.now_ms()
        there = {stored.name for stored in self._cache.files(now_ms, self._folder)}
        if there.isdisjoint(self._names(replaced)):
            return
        for file in files:
            if file.row_count >= ROWS_MIN and there.isdisjoint(self._names([file])):
                self._write(file, now_ms)

    def keep(self, file: DataFileMeta, rows: pa.Table) -> None:
        """Makes the store of a file that was just written, of its rows, as reading it would give them.

        Of few rows that costs less than opening the file once.
        """
        if self.is_on:
            self._write(file, self.table.env.now_ms(), rows)

    def _write(
        self, file: DataFileMeta, now_ms: int, rows: pa.Table | None = None, spent_s: float = inf
    ) -> StoreKind | None:
        """Makes the store of a file, of these rows, or of what is read from it, and says of which kind it is."""
        stores = stores_of(self.table.env)
        if now_ms < stores.idle_until_ms.get(self._cache.root, 0):
            return None
        source: StoreRows = FileRows(self.table, self.partition, self.bucket, file)
        if rows is not None:
            source = RowsInMemory(rows, self.table.schema)
        try:
            kind = self._kind_with_room(file, rows, now_ms)
            if kind is None or spent_s < _costs(file, kind).build_s:
                return None
            name = self._name(file, kind)
            kind.write(self._cache, name, self._identity(file), source, self.table.schema.trimmed_primary_keys)
            self._cache.note_use(name, self.table.env.now_ms())  # that of a large file took its time
        except CorruptDataError:  # the data file: the caller reads it too, and says so
            raise
        except StorageError as error:
            stores.idle_until_ms[self._cache.root] = now_ms + RETRY_MS
            _LOG.warning(
                "lookups in %s read data files, since no store of their rows can be kept below %s: %s. Free some space "
                "there, give this user the right to write, or name another folder with lookup.cache-dir",
                self.table.location,
                self._cache.root,
                error,
            )
            return None
        self.metrics.add(**{"stores_built" if rows is None else "stores_kept": 1})
        return kind

    def _kind_with_room(self, file: DataFileMeta, rows: pa.Table | None, now_ms: int) -> StoreKind | None:
        """The first kind that there is room for; for the last one stores that were used longest ago are removed.

        Raises `RetryableError` when the disk is too full for any.
        """
        kinds = self._kinds
        for kind in kinds:
            is_last = kind is kinds[-1]
            needed_bytes = _costs(file, kind).store_bytes
            if rows is not None:
                needed_bytes = rows.nbytes + FRAME_BYTES
            if self._has_spare_room(needed_bytes, now_ms):
                return kind
            try:
                if self._make_room(needed_bytes, now_ms, may_evict=is_last):
                    return kind
            except RetryableError:
                if is_last:
                    raise
        return None

    def discard(self, file: DataFileMeta, error: BrokenStoreError) -> None:
        """Throws away a store that turned out to be broken; the next lookup in the file builds it again."""
        for kind in self._kinds:
            name = self._name(file, kind)
            if self._key(name) in stores_of(self.table.env).open:
                self._discard(file, name, error)
                return

    def _discard(self, file: DataFileMeta, name: str, error: BrokenStoreError) -> None:
        self._close(name)
        self.metrics.add(stores_broken=1)
        _LOG.info("the lookup store %s is thrown away: %s", self._key(name), error)
        self.note_read(file, self.costs(file).build_s)
        self._remove(name)

    def keep_only(self, files: Collection[DataFileMeta]) -> None:
        """Removes the stores of the bucket whose data files are not among these.

        A store that this process has not used may have been made ahead of its data file: it is left for a while.
        """
        names, now_ms = self._names(files), self.table.env.now_ms()
        opened = stores_of(self.table.env).open
        for stored in self._cache.files(now_ms, self._folder):
            is_ahead = self._key(stored.name) not in opened and now_ms - stored.used_ms <= BUSY_MS
            if stored.name not in names and not is_ahead:
                self._evict(stored.name)

    def _opened(self, file: DataFileMeta, kind: StoreKind, now_ms: int) -> LookupStore | None:
        stores, name = stores_of(self.table.env), self._name(file, kind)
        try:
            store = kind.open(self._cache, name, self._identity(file), store_schema(self.table.schema))
            if store is None:
                return None
        except BrokenStoreError as error:
            self._discard(file, name, error)
            return None
        except StorageError as error:
            _LOG.info("the lookup store %s is not used: %s", self._key(name), error)
            return None
        self._cache.note_use(name, now_ms)
        with stores.lock:
            stores.open[self._key(name)] = OpenStore(store, now_ms)
            while len(stores.open) > OPEN_MAX:
                stores.open.popitem(last=False)
        return store

    def _make_room(self, needed_bytes: int, now_ms: int, *, may_evict: bool) -> bool:
        """Removes what is too old or too much; False when others need the room.

        Raises `RetryableError` when the disk is too full.
        """
        options = self.table.options
        retention_ms = options.lookup_cache_file_retention_ms
        kept = []
        for file in sorted(self._cache.files(now_ms), key=lambda file: file.used_ms):
            is_ours = file.name.startswith(f"{self._table_folder}/")
            limit_ms = retention_ms if is_ours else max(retention_ms, OTHERS_RETENTION_MS)
            if now_ms - file.used_ms > limit_ms:
                self._evict(file.name)
            else:
                kept.append(file)
        excess = sum(file.size_bytes for file in kept) + needed_bytes - options.lookup_cache_max_disk_size_bytes
        for file in kept:
            if excess <= 0 or not may_evict or now_ms - file.used_ms <= BUSY_MS:
                break
            self._evict(file.name)
            excess -= file.size_bytes
        if excess > 0:
            return False
        free_bytes = self._cache.free_bytes()
        if free_bytes < FREE_SHARE * needed_bytes:
            raise RetryableError(f"its disk has {free_bytes} bytes left, and a store of {needed_bytes} is to be made")
        spare_bytes = min(-excess, free_bytes // FREE_SHARE - needed_bytes) // SPARE_PARTS
        stores_of(self.table.env).spare[self._cache.root] = SpareRoom(spare_bytes, now_ms + SPARE_MS)
        return True

    def _has_spare_room(self, needed_bytes: int, now_ms: int) -> bool:
        """True when a look at the folder a moment ago has found that there is room for many of this size.

        To look costs as much as to write a small store: all stores below the root are listed.
        """
        stores = stores_of(self.table.env)
        with stores.lock:
            spare = stores.spare.get(self._cache.root)
            if spare is None or now_ms >= spare.until_ms or spare.bytes_left < needed_bytes:
                return False
            spare.bytes_left -= needed_bytes
            return True

    def _evict(self, name: str) -> None:
        self._close(name)
        self._remove(name)
        self.metrics.add(stores_evicted=1)

    def _remove(self, name: str) -> None:
        try:
            self._cache.remove(name)
        except StorageError as error:
            _LOG.info("a lookup store stays: %s", error)

    def _close(self, name: str) -> None:
        stores = stores_of(self.table.env)
        with stores.lock:
            stores.open.pop(self._key(name), None)

    @property
    def _kinds(self) -> tuple[StoreKind, ...]:
        """The kinds of stores that the table uses, those that are tried first in front."""
        options = self.table.options
        choice = options.lookup_cache_store
        kinds: tuple[StoreKind, ...] = ()
        if choice is not LookupStoreChoice.ROCKSDB:
            kinds = (MappedKind(self._piece_bytes),)
        if choice is LookupStoreChoice.MAPPED:
            return kinds
        if is_rocksdb_installed():
            return (*kinds, RocksKind(options.lookup_cache_max_memory_size_bytes))
        if not kinds:
            raise InvalidRequestError(
                f"{self.table.location} has lookup.cache.store=rocksdb, and rocksdict is not installed: "
                f'pip install "freshet-lake[rocksdb]", or choose auto'
            )
        return kinds

    @property
    def _piece_bytes(self) -> int:
        """A piece is in memory twice while it is written."""
        share = self.table.options.lookup_cache_max_memory_size_bytes // 4
        return max(PIECE_BYTES_MIN, min(PIECE_BYTES_MAX, share))

    @property
    def _cache(self) -> LocalCache:
        return self.table.env.local_cache(FOLDER_NAME, self.table.options.lookup_cache_dir)

    @property
    def _table_folder(self) -> str:
        return _digest(self.table.location.encode())

    @property
    def _folder(self) -> str:
        return f"{self._table_folder}/{_digest(self.partition)}-{self.bucket}"

    def _stem(self, file: DataFileMeta) -> str:
        return f"{self._folder}/{file.file_name}.{self.table.schema.id}"

    def _name(self, file: DataFileMeta, kind: StoreKind) -> str:
        return f"{self._stem(file)}{kind.suffix}"

    def _names(self, files: Collection[DataFileMeta]) -> set[str]:
        return {self._name(file, kind) for file in files for kind in self._kinds}

    def _key(self, name: str) -> str:
        return f"{self._cache.root}/{name}"

    def _identity(self, file: DataFileMeta) -> dict[str, Any]:
        return {
            "version": VERSION,
            "table": self.table.location,
            "schema": self.table.schema.id,
            "schema time": self.table.schema.time_ms,
            "partition": self.partition.hex(),
            "bucket": self.bucket,
            "file": file.file_name,
            "rows": file.row_count,
            "bytes": file.file_size_bytes,
        }


def _costs(file: DataFileMeta, kind: StoreKind) -> FileCosts:
    return FileCosts(file.row_count, file.file_size_bytes, is_packed=isinstance(kind, RocksKind))


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()
