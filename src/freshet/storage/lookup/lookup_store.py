"""The port of lookup stores: what holds the rows of one immutable data file so that keys are found without reading it.

| kind | module | holds |
|---|---|---|
| mapped | `store_file` | the columns, uncompressed, as a file that is mapped |
| rocksdb | `rocks_store` | one value for each row, in compressed blocks, as a RocksDB database, read-only |

A store is made of rows as they come, in the order of their data file: by a compaction that writes the file, or from the
file (`kept_rows`). `store_cache` has the stores of a bucket. `tests/storage/lookup/test_store_contract.py` runs over
both kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from freshet.storage.io.local_cache import LocalCache
from freshet.storage.lookup.file_lookup import FoundRows


class BrokenStoreError(Exception):
    """A store that is cut short, damaged, or not of the data file asked for."""


class LookupStore(Protocol):
    """An open store. Threads may share it."""

    def find(self, keys: pa.Table, columns: Sequence[str] | None) -> FoundRows:
        """What the file has of the keys: see `FileLookup`; the columns of `keys` are the key columns.

        Raises `BrokenStoreError`.
        """
        ...


class StoreWriter(Protocol):
    """A store that is being made, in bounded memory. Raises `StorageError` when the disk does not take it."""

    def add(self, rows: pa.Table) -> None:
        """Appends rows, with the columns of the store."""
        ...

    def publish(self) -> None:
        """The rows are complete: others find the store."""
        ...

    def discard(self) -> None:
        """Removes what is not published; does nothing behind `publish`."""
        ...


class StoreKind(Protocol):
    """A way to keep rows."""

    @property
    def suffix(self) -> str:
        """Last part of the names of its stores in the folder."""
        ...

    def begin(
        self, cache: LocalCache, name: str, identity: Mapping[str, Any], schema: pa.Schema, key_columns: Sequence[str]
    ) -> StoreWriter:
        """A new store of rows of this schema. Raises `StorageError` when the disk does not take it."""
        ...

    def open(self, cache: LocalCache, name: str, identity: Mapping[str, Any], schema: pa.Schema) -> LookupStore | None:
        """A store for reading; None if there is none. Raises `BrokenStoreError`, and `StorageError` of the disk.

        `schema` has the system columns and those of the table.
        """
        ...
