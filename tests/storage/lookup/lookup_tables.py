"""Tables of one bucket whose lookups keep stores in a folder of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import freshet.storage.lookup.lookup_cost as lookup_cost
from freshet.storage.io.env import Env
from freshet.storage.lookup import cached_lookup
from freshet.storage.lookup.cached_lookup import CachedLookup, SemiJoin, bucket_lookup
from freshet.storage.lookup.open_stores import forget_open_stores
from freshet.storage.model.data_file import EMPTY_ROW, DataFileMeta
from tests.kit.cache_roots import files_of_cache, lookup_stores
from tests.storage.scan.scan_tables import PlacedTable, Rows

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string()), pa.field("w", pa.int32())])


class LookupTable:
    """A placed table; each call of `lookup` makes a new one, as every compaction does."""

    def __init__(
        self,
        folder: Path,
        rows: Rows | pa.Table | None = None,
        *,
        columns: pa.Schema = SCHEMA,
        env: Env | None = None,
        **options: str,
    ) -> None:
        self.cache = lookup_stores(folder / "cache")
        keys = [field.name for field in columns if not field.nullable]
        spelled = {f"lookup.{name.replace('_', '-')}": text for name, text in options.items()}
        every = {"write-only": "true", "lookup.cache-dir": str(self.cache.parent), **spelled}
        self.placed = PlacedTable(folder, columns, keys=keys, options=every, env=env)
        self.place(even_rows(10) if rows is None else rows)

    def place(self, rows: Rows | pa.Table) -> DataFileMeta:
        """Commits a file at the last level and returns it."""
        before = {file.file_name for file in self.files} if self.placed.identifier else set()
        self.placed.place(rows, level=5)
        (new,) = [file for file in self.files if file.file_name not in before]
        return new

    @property
    def files(self) -> list[DataFileMeta]:
        store = self.placed.store
        return list(store.live.at(store.snapshots.latest()).files_of(EMPTY_ROW, 0))

    @property
    def file(self) -> DataFileMeta:
        (file,) = self.files
        return file

    def lookup(self, **options: str) -> CachedLookup:
        store = self.placed.store
        spelled = {f"lookup.{name.replace('_', '-')}": text for name, text in options.items()}
        return bucket_lookup(store.with_options(spelled) if options else store, EMPTY_ROW, 0)

    def reading(self) -> SemiJoin:
        store = self.placed.store
        return SemiJoin(store, EMPTY_ROW, 0, store.schema.trimmed_primary_keys)

    def restart(self) -> None:
        """What a new process would know."""
        forget_open_stores(self.placed.env)

    @property
    def stores(self) -> list[Path]:
        """The files below the cache's folder, unfinished ones too."""
        return files_of_cache(self.cache)


def even_rows(count: int) -> list[dict[str, Any]]:
    """The keys 0, 2, 4, …"""
    return [{"k": 2 * n, "v": f"v{n}" if n % 3 else None, "w": n} for n in range(count)]


def keys(*values: Any) -> pa.Table:
    return pa.table({"k": list(values)}, schema=pa.schema([SCHEMA.field("k")]))


@contextmanager
def eager() -> Iterator[None]:
    """A store is built at the first lookup in any file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cached_lookup, "ROWS_MIN", 0)
        patch.setattr(lookup_cost, "ROWS_MIN", 0)
        patch.setattr(lookup_cost, "_BUILD_S", 0.0)
        patch.setattr(lookup_cost, "_BUILD_PER_READ", 0.0)
        patch.setattr(lookup_cost, "_PACKED_BUILD_S", 0.0)
        patch.setattr(lookup_cost, "_PACKED_BUILD_PER_READ", 0.0)
        yield
