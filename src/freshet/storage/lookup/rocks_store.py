"""A store in RocksDB: one value for each row (`row_bytes`) under its key (`key_search.key_bytes`), in one table file.

The file is written in key order and ingested into an empty database, which is never written to again; any process opens
it read-only, without a lock. Blocks are compressed and have checksums, which RocksDB checks whenever it reads one; a
bloom filter keeps most keys that are not there from reading any. The empty key holds whose rows these are: it is in
the same file, so a database that has lost the file is known as broken.

All stores of a process share one cache of blocks, which indexes and filters count in: `lookup.cache-max-memory-size`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.exceptions import RetryableError, StorageError
from freshet.storage.io.local_cache import LocalCache, NewFolder
from freshet.storage.io.undo import undone_on_failure
from freshet.storage.lookup.file_lookup import FoundRows
from freshet.storage.lookup.key_search import key_bytes
from freshet.storage.lookup.lookup_store import BrokenStoreError, LookupStore
from freshet.storage.lookup.row_bytes import decode_rows, encode_rows

SUFFIX: Final = ".rocks"
PIECE_ROWS: Final = 2048
"""Rows that are encoded at a time, most of it without letting another thread have the interpreter."""
_BLOCK_BYTES: Final = 8 * 1024
_BLOOM_BITS: Final = 10
_IDENTITY_KEY: Final = b""

_cache_lock: Final = threading.Lock()
_caches: Final[dict[str, Any]] = {}


@cache
def is_rocksdb_installed() -> bool:
    """Whether the extra `rocksdb` is there."""
    return find_spec("rocksdict") is not None


def _block_cache(size_bytes: int) -> Any:
    """The one of this process; the last size asked for holds."""
    with _cache_lock:
        cache = _caches.get("blocks")
        if cache is None:
            import rocksdict as _rocksdict

            cache = _caches["blocks"] = _rocksdict.Cache(size_bytes)
        else:
            cache.set_capacity(size_bytes)
        return cache


def _options(cache_bytes: int) -> Any:
    import rocksdict as _rocksdict

    table = _rocksdict.BlockBasedOptions()
    table.set_block_cache(_block_cache(cache_bytes))
    table.set_block_size(_BLOCK_BYTES)
    table.set_bloom_filter(_BLOOM_BITS, False)
    table.set_cache_index_and_filter_blocks(True)
    table.set_index_type(_rocksdict.BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    options = _rocksdict.Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(_rocksdict.DBCompressionType.zstd())
    options.set_keep_log_file_num(1)
    return options


class RocksKind(Frozen):
    """A `StoreKind`."""

    cache_bytes: int
    suffix: str = SUFFIX

    def begin(
        self, cache: LocalCache, name: str, identity: Mapping[str, Any], schema: pa.Schema, key_columns: Sequence[str]
    ) -> RocksWriter:
        """The method of `StoreKind`."""
        folder = cache.new_folder(name)
        with undone_on_failure(folder.discard):
            return RocksWriter(folder, _options(self.cache_bytes), identity, key_columns)

    def open(self, cache: LocalCache, name: str, identity: Mapping[str, Any], schema: pa.Schema) -> LookupStore | None:
        """The method of `StoreKind`."""
        folder = cache.folder(name)
        if folder is None:
            return None
        try:
            import rocksdict as _rocksdict

            read_only = _rocksdict.AccessType.read_only()
            options = _options(self.cache_bytes)
            # Without this the options of the file OPTIONS hold, which name no shared cache.
            families = {"default": options}
            database = _rocksdict.Rdict(folder, options, column_families=families, access_type=read_only)
            found = database.get(_IDENTITY_KEY)
        except OSError as error:  # of the binding, which writes a file of its own at each opening; RocksDB has no such
            raise RetryableError(f"cannot open the RocksDB database {folder}: {error}") from error
        except Exception as error:
            raise BrokenStoreError(f"RocksDB cannot open it: {error}") from error
        if found != _identity_bytes(identity):
            raise BrokenStoreError(f"it is of another file: {found!r}")
        return RocksStore(database, schema)


class RocksWriter:
    """A `StoreWriter`. A piece is held in memory, encoded."""

    def __init__(
        self, folder: NewFolder, options: Any, identity: Mapping[str, Any], key_columns: Sequence[str]
    ) -> None:
        self._folder = folder
        self._key_columns = key_columns
        self._count = 0
        self._path = f"{folder.temporary}/rows.sst"
        self._database: Any = None
        with self._errors():
            import rocksdict as _rocksdict

            self._database = _rocksdict.Rdict(folder.temporary, options)
            self._sorted = _rocksdict.SstFileWriter(options)
            self._sorted.open(self._path)
            self._sorted[_IDENTITY_KEY] = _identity_bytes(identity)

    def add(self, rows: pa.Table) -> None:
        """The method of `StoreWriter`."""
        with self._errors():
            for batch in rows.to_batches(PIECE_ROWS):
                keys = key_bytes([batch.column(key) for key in self._key_columns])
                values = encode_rows(batch, self._count).to_numpy(zero_copy_only=False).tolist()
                deque(map(self._sorted.__setitem__, keys, values), maxlen=0)  # there is no call for many
                self._count += batch.num_rows

    def publish(self) -> None:
        """The method of `StoreWriter`."""
        with self._errors():
            import rocksdict as _rocksdict

            self._sorted.finish()
            moved = _rocksdict.IngestExternalFileOptions()
            moved.set_move_files(True)
            self._database.ingest_external_file([self._path], moved)
            self._close()
        self._folder.publish()

    def discard(self) -> None:
        """The method of `StoreWriter`."""
        with suppress(RetryableError), self._errors():
            self._close()
        self._folder.discard()

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except StorageError:
            raise
        except Exception as error:  # RocksDB has no other
            raise RetryableError(f"cannot write the RocksDB database {self._folder.path}: {error}") from error


class RocksStore(Frozen):
    """An open store."""

    database: Any
    schema: pa.Schema

    def find(self, keys: pa.Table, columns: Sequence[str] | None) -> FoundRows:
        """The method of `LookupStore`."""
        positions = np.full(keys.num_rows, -1, np.int64)
        file_rows = positions.copy()
        values = self._values(keys)
        found = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        rows, file_rows[found] = decode_rows(values.drop_null(), self.schema, columns or ())
        if columns is None:
            return FoundRows(pa.table({}), np.where(file_rows >= 0, 0, -1), file_rows)
        positions[found] = np.arange(len(found))
        return FoundRows(rows, positions, file_rows)

    def _values(self, keys: pa.Table) -> pa.Array[Any]:
        if not keys.num_rows:
            return pa.array([], pa.large_binary())
        asked = key_bytes([pa.concat_arrays(column.chunks) for column in keys.columns])
        try:
            return pa.array(self.database.get(asked), pa.large_binary())
        except Exception as error:
            raise BrokenStoreError(f"RocksDB cannot read it: {error}") from error


def _identity_bytes(identity: Mapping[str, Any]) -> bytes:
    return orjson.dumps(dict(identity), option=orjson.OPT_SORT_KEYS)
