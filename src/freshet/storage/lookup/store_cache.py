"""The stores of one table on this machine: found, built, kept within bounds, let go.

    <root>/<table>/<partition>-<bucket>/<data file>.<schema id>.rows     mapped columns
    <root>/<table>/<partition>-<bucket>/<data file>.<schema id>.rocks/   a RocksDB database

The root is `freshet-lookup-<user id>` below `lookup.cache-dir` (`metadata.local_caches`).

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
| its data file is not in the bucket yet (`begin`) | left for `BUSY_MS` by processes that have not used it |

A store that is removed while another process has it mapped stays usable there. Use is noted in the modification time,
once a minute. Without sync: the identity and the checksums in a store show what survived a crash.
"""  # noqa: E501 - a table

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Collection, Iterator
from functools import lru_cache, partial
from math import inf
from typing import Any, Final

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.exceptions import CorruptDataError, InvalidRequestError, RetryableError, StorageError
from freshet.storage.io.local_cache import CacheFolder, LocalCache
from freshet.storage.lookup.kept_rows import KeptStore, rows_of_file, store_schema
from freshet.storage.lookup.lookup_cost import FileCosts
from freshet.storage.lookup.lookup_metrics import LookupMetrics
from freshet.storage.lookup.lookup_store import BrokenStoreError, LookupStore, StoreKind, StoreWriter
from freshet.storage.lookup.open_stores import (
    BUSY_MS,
    FREE_SHARE,
    NOTE_MS,
    OpenStore,
    StoreRoom,
    build_later,
    forget_wanted,
    stores_of,
)
from freshet.storage.lookup.rocks_store import RocksKind, is_rocksdb_installed
from freshet.storage.lookup.store_file import MappedKind
from freshet.storage.metadata.local_caches import local_cache
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.options.choices import LookupStoreChoice
from freshet.storage.options.core import CoreOptions

FOLDER: Final = CacheFolder("freshet-lookup", re.compile(r"[0-9a-f]{24}/[0-9a-f]{24}-\d+/[^/]+\.\d+\.(rows|rocks)"))
VERSION: Final = 2
"""Another number for every change of what the rows of a store mean."""

RETRY_MS: Final = 5 * 60 * 1000
"""After a store could not be written, none is tried for so long."""
UNASKED_BYTES_MAX: Final = 64 * 1024 * 1024
"""A compaction makes smaller stores as if they were asked for: the next batch will."""
OPEN_MAX: Final = 512
"""Stores that a process keeps mapped."""
FILES_MAX: Final = 10_000
"""Files whose cost of reading a process remembers."""
BUILD_ROWS: Final = 2048
"""Behind so many rows a lookup that waits for the interpreter has it. Measured, gathers of 3 ms beside a RocksDB store
that is built: 183 in 1.4 s, the slowest of a hundred in 14 ms; without, and 65,536 rows at a time, 122 and 37 ms."""
PIECE_BYTES_MIN: Final = 1024 * 1024
PIECE_BYTES_MAX: Final = 64 * 1024 * 1024

_LOG: Final = logging.getLogger(__name__)


class StoreCache(Frozen):
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
        stores, name, now_ms = stores_of(self.table.env), self._name(file.file_name, kind), self.table.env.now_ms()
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
        is_packed = isinstance(self._kinds[0], RocksKind)
        return FileCosts(file.row_count, file.file_size_bytes, is_packed)

    def build(self, file: DataFileMeta, spent_s: float = inf) -> LookupStore | None:
        """Makes the store of a file; None when that is not possible now, or costs more than was spent on reading."""
        for _ in self.building(file, spent_s):
            pass
        return self.find(file)

    def build_later(self, file: DataFileMeta) -> None:
        """Has the store of a file made in the background."""
        build_later(self.table.env, self._stem(file), partial(self._building_alone, file))

    def building(self, file: DataFileMeta, spent_s: float = inf) -> Iterator[None]:
        """Makes the store of a file, some rows at each step, or does nothing; see `build`."""
        writer = self._begin(file.file_name, FileCosts(file.row_count, file.file_size_bytes), spent_s)
        if writer is None:
            return
        try:
            for rows in rows_of_file(self.table, self.partition, self.bucket, file):
                for start in range(0, rows.num_rows, BUILD_ROWS):
                    writer.add(rows.slice(start, BUILD_ROWS))
                    self.table.env.sleep_s(0)
                yield
            writer.publish()
            self._note_made(file.file_name)
        except CorruptDataError:  # the data file: the caller reads it too, and says so
            raise
        except StorageError as error:
            self._give_up(error)
        else:
            self.metrics.add(stores_built=1)
        finally:
            writer.discard()

    def _building_alone(self, file: DataFileMeta) -> Iterator[None]:
        """The same, unless the store is there, or another process is at it."""
        folder, _, base = self._stem(file).rpartition("/")
        with self._cache.locked(f"{folder}/.{base}", file_stays=False) as is_ours:
            if is_ours and self.find(file) is None:
                yield from self.building(file)

    def begin(self, file_name: str, size_bytes: int) -> KeptStore | None:
        """A store for a data file that is about to be written, of about so many bytes; None: none is to be kept."""
        costs = FileCosts(1, size_bytes)
        writer = self._begin(file_name, costs, is_asked=False) if self.is_on else None
        if writer is None:
            return None

        def published() -> None:
            self._note_made(file_name)
            self.metrics.add(stores_kept=1)

        return KeptStore(self.table.schema, file_name, writer, published, self._give_up)

    def keep(self, file: DataFileMeta, rows: pa.Table) -> None:
        """Makes the store of a file that was just written, of its rows.

        Of few rows that costs less than opening the file once.
        """
        kept = self.begin(file.file_name, file.file_size_bytes)
        if kept is not None:
            kept.add(rows)
            kept.finish()

    def _begin(
        self, file_name: str, costs: FileCosts, spent_s: float = inf, *, is_asked: bool = True
    ) -> StoreWriter | None:
        """A store to be filled; None where there is no room, or it costs more than was spent."""
        now_ms = self.table.env.now_ms()
        if now_ms < stores_of(self.table.env).idle_until_ms.get(self._cache.root, 0):
            return None
        try:
            kind = self._kind_with_room(costs, now_ms, is_asked=is_asked)
            if kind is None or spent_s < costs.of_kind(is_packed=isinstance(kind, RocksKind)).build_s:
                return None
            schema, keys = store_schema(self.table.schema), self.table.schema.trimmed_primary_keys
            return kind.begin(self._cache, self._name(file_name, kind), self._identity(file_name), schema, keys)
        except StorageError as error:
            self._give_up(error)
            return None

    def _note_made(self, file_name: str) -> None:
        """A store of a large file took its time: it counts as used now."""
        for kind in self._kinds:
            self._cache.note_use(self._name(file_name, kind), self.table.env.now_ms())

    def _give_up(self, error: StorageError) -> None:
        """No store is tried for a while."""
        stores_of(self.table.env).idle_until_ms[self._cache.root] = self.table.env.now_ms() + RETRY_MS
        _LOG.warning(
            "lookups in %s read data files, since no store of their rows can be kept below %s: %s. Free some space "
            "there, give this user the right to write, or name another folder with lookup.cache-dir",
            self.table.location,
            self._cache.root,
            error,
        )

    def _kind_with_room(self, costs: FileCosts, now_ms: int, *, is_asked: bool) -> StoreKind | None:
        """The first kind that there is room for; for the last one stores that were used longest ago are removed, unless
        it is a large one that nobody has asked for.

        Raises `RetryableError` when the disk is too full for any.
        """
        room, kinds = StoreRoom(self.table, self._cache, self._table_folder, self._evict), self._kinds
        for kind in kinds:
            is_last = kind is kinds[-1]
            needed_bytes = costs.of_kind(is_packed=isinstance(kind, RocksKind)).store_bytes
            if not is_asked and needed_bytes > UNASKED_BYTES_MAX:
                if room.has_unasked(needed_bytes, now_ms):
                    return kind
                continue
            try:
                if room.has(needed_bytes, now_ms, may_evict=is_last):
                    return kind
            except RetryableError:
                if is_last:
                    raise
        return None

    def room_for(self, file: DataFileMeta) -> tuple[int, int] | None:
        """Bytes that a store of the file takes at least, and those that it may; None where no stores are allowed.

        Raises `StorageError` where the folder of stores cannot be used.
        """
        if not self.is_on:
            return None
        costs = FileCosts(file.row_count, file.file_size_bytes)
        needed = min(costs.of_kind(is_packed=isinstance(kind, RocksKind)).store_bytes for kind in self._kinds)
        free = self._cache.free_bytes() // FREE_SHARE
        return needed, min(self.table.options.lookup_cache_max_disk_size_bytes, free)

    def discard(self, file: DataFileMeta, error: BrokenStoreError) -> None:
        """Throws away a store that turned out to be broken; the next lookup in the file builds it again."""
        for kind in self._kinds:
            name = self._name(file.file_name, kind)
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

        A store that this process has not used, whose data file it has not seen either, may have been made ahead of
        that: it is left for a while. Those that another process has removed are let go: as long as one is mapped, its
        bytes are on the disk.
        """
        names, now_ms, cache = self._names(files), self.table.env.now_ms(), self._cache
        stores, folder = stores_of(self.table.env), f"{cache.root}/{self._folder}"
        before = stores.seen.get(folder) or names
        stores.seen.put(folder, names)
        forget_wanted(self.table.env, self._folder, {self._stem(file) for file in files})
        for stored in cache.files(now_ms, self._folder):
            is_known = stored.name in before or f"{cache.root}/{stored.name}" in stores.open
            if stored.name not in names and (is_known or now_ms - stored.used_ms > BUSY_MS):
                self._evict(stored.name)
        with stores.lock:
            kept = {self._key(name) for name in names}
            for key in [key for key in stores.open if key.startswith(f"{folder}/") and key not in kept]:
                del stores.open[key]

    def _opened(self, file: DataFileMeta, kind: StoreKind, now_ms: int) -> LookupStore | None:
        stores, name = stores_of(self.table.env), self._name(file.file_name, kind)
        try:
            store = kind.open(self._cache, name, self._identity(file.file_name), store_schema(self.table.schema))
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
            kinds = (MappedKind(self._piece_bytes, self.table.env.machine_start()),)
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
        return local_cache(self.table, FOLDER, CoreOptions.lookup_cache_dir)

    @property
    def _table_folder(self) -> str:
        return _digest(self.table.location.encode())

    @property
    def _folder(self) -> str:
        return f"{self._table_folder}/{_digest(self.partition)}-{self.bucket}"

    def _stem(self, file: DataFileMeta) -> str:
        return f"{self._folder}/{file.file_name}.{self.table.schema.id}"

    def _name(self, file_name: str, kind: StoreKind) -> str:
        return f"{self._folder}/{file_name}.{self.table.schema.id}{kind.suffix}"

    def _names(self, files: Collection[DataFileMeta]) -> set[str]:
        return {self._name(file.file_name, kind) for file in files for kind in self._kinds}

    def _key(self, name: str) -> str:
        return f"{self._cache.root}/{name}"

    def _identity(self, file_name: str) -> dict[str, Any]:
        return {
            "version": VERSION,
            "table": self.table.location,
            "schema": self.table.schema.id,
            "schema time": self.table.schema.time_ms,
            "partition": self.partition.hex(),
            "bucket": self.bucket,
            "file": file_name,
        }


@lru_cache(1024)
def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()
