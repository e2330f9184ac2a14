"""What the indexes of data files say about a filter: evidence beside the statistics, of what need not be read.

Two phases: what manifest entries hold is asked first (`may_match_by_manifest`), files next to data files are read only
for those that are left (`may_match`), requested `ahead` for all of them.
An index is of the columns that the file was written with. They are mapped by field id; where the type of a column has
changed so that values change when they are read, the index says nothing.

The answer is "no" only where it is certain. An index that is missing or damaged is reported, and says nothing: data
files are read then.

Source: FORMAT.md §11.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import pyarrow as pa

from freshet.storage.casts.evolution import keeps_bounds
from freshet.storage.codec.bitmap_index import BitmapIndex
from freshet.storage.codec.bloom_filter import BloomFilter
from freshet.storage.codec.file_index import BITMAP, BLOOM_FILTER, INDEX_SUFFIX, RANGE_BITMAP, decode_file_index
from freshet.storage.codec.index_keys import KeyForm
from freshet.storage.codec.range_bitmap import RangeBitmap
from freshet.storage.codec.stats import ColumnStats
from freshet.storage.exceptions import CorruptDataError, StorageError
from freshet.storage.filters.indexed_rows import ColumnIndex, ColumnIndexes, IndexOfColumn, rows_that_may_match
from freshet.storage.filters.literal import Literal, canonical
from freshet.storage.filters.predicate import IsIn, Predicate, conjunction
from freshet.storage.io.file_cache import CacheKind
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.data_type import DataType, TypeRoot
from freshet.storage.model.manifest import BucketId
from freshet.storage.paths import file_format_of
from freshet.storage.schema.file_indexes import TYPES

_READERS: Final[Mapping[str, Callable[[KeyForm, bytes], ColumnIndex]]] = {
    BLOOM_FILTER: lambda _, data: BloomFilter.decode(data),
    BITMAP: BitmapIndex,
    RANGE_BITMAP: RangeBitmap,
}

KEYS_MAX: Final = 1000
"""Of more keys that are looked up together, hardly a file has none."""

INDEX_BYTES_GUESS: Final = 1024 * 1024
"""How long an index file may be, which no manifest says: a bloom filter of a million values has 0.6 MB by default."""

_LOG: Final = logging.getLogger(__name__)


class FileEvidence:
    """The indexes of the files of one table."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._is_on = store.options.file_index_read_enabled
        self._newest: tuple[str, bytes | None] = ("", None)
        """The index file read last, for the next question about the same data file."""

    def may_match_by_manifest(self, file: DataFileMeta, predicate: Predicate, stats: Mapping[str, ColumnStats]) -> bool:
        """False if no row of the file can be TRUE, by the index in its manifest entry. `stats` are what is known of its
        columns besides."""
        if not self._is_on or file.embedded_index is None:
            return True
        return self._may_be_true(file, file.embedded_index, "its manifest entry", predicate, stats)

    def may_match(
        self, bucket_id: BucketId, file: DataFileMeta, predicate: Predicate, stats: Mapping[str, ColumnStats]
    ) -> bool:
        """The same, also by the indexes next to the file, which are read."""
        if not self.may_match_by_manifest(file, predicate, stats):
            return False
        for path in self._paths(bucket_id, file) if self._is_on else ():
            data = self._beside(path)
            if data is not None and not self._may_be_true(file, data, path, predicate, stats):
                return False
        return True

    def has_files_beside(self, file: DataFileMeta) -> bool:
        """Whether `may_match` reads files for it."""
        return self._is_on and any(map(_is_index, file.extra_files))

    def ahead(self, files: Iterable[tuple[BucketId, DataFileMeta]]) -> AbstractContextManager[None]:
        """While the block runs, these files are about to be tested, in this order: at a store where requests take their
        time, their index files are requested ahead."""
        env = self._store.env
        if env.reads is None:
            return nullcontext()
        return env.reads.ahead(
            env.coming_bytes(path, INDEX_BYTES_GUESS, CacheKind.FILE_INDEX)
            for bucket_id, file in files
            for path in self._paths(bucket_id, file)
        )

    def files_with_keys(
        self, bucket_id: BucketId, asked: Iterable[tuple[DataFileMeta, pa.Table]]
    ) -> list[DataFileMeta]:
        """The files of a bucket, each with the keys that are looked up in it, that may have one of them. The keys
        have the types of the table."""
        left: list[tuple[DataFileMeta, Predicate | None]] = []
        for file, keys in asked:
            predicate = self._key_predicate(file, keys)
            if predicate is None or self.may_match_by_manifest(file, predicate, {}):
                left.append((file, predicate))
        tested = [(bucket_id, file) for file, predicate in left if predicate is not None]
        with self.ahead(tested):
            return [
                file for file, predicate in left if predicate is None or self.may_match(bucket_id, file, predicate, {})
            ]

    def _key_predicate(self, file: DataFileMeta, keys: pa.Table) -> Predicate | None:
        """What is asked of the indexes of a file; None where they are not asked."""
        if not self._is_on or not (file.embedded_index or file.extra_files) or keys.num_rows > KEYS_MAX:
            return None
        return conjunction(
            IsIn(name, tuple(Literal(canonical(value), column.type) for value in column))
            for name, column in zip(keys.column_names, keys.columns, strict=True)
        )

    def names(self, bucket_id: BucketId, file: DataFileMeta) -> dict[str, list[str]]:
        """The types of indexes by column, as far as they can be read."""
        found: dict[str, list[str]] = {}
        for data in (file.embedded_index, *(self._beside(path) for path in self._paths(bucket_id, file))):
            try:
                for name, indexes in ({} if data is None else decode_file_index(data)).items():
                    found.setdefault(name, []).extend(sorted(indexes))
            except StorageError as error:
                _LOG.warning("an index of data file %s cannot be read: %s", file.file_name, error)
        return found

    def _paths(self, bucket_id: BucketId, file: DataFileMeta) -> list[str]:
        """The paths of the files next to it that hold indexes."""
        partition, bucket = bucket_id
        folder, paths = self._store.partition_path(partition), self._store.paths
        names = filter(_is_index, file.extra_files)
        return [paths.extra_file(folder, bucket, name, file.external_path) for name in names]

    def _beside(self, path: str) -> bytes | None:
        known, data = self._newest
        if known == path:
            return data
        try:
            data = self._store.env.immutable_bytes(path, CacheKind.FILE_INDEX)
        except StorageError as error:
            _LOG.warning("the index %s of a data file is not used, its rows are read: %s", path, error)
            data = None
        self._newest = path, data
        return data

    def _may_be_true(
        self, file: DataFileMeta, data: bytes, place: str, predicate: Predicate, stats: Mapping[str, ColumnStats]
    ) -> bool:
        try:
            indexes = self._indexes(file, data, predicate.columns())
            rows = rows_that_may_match(predicate, indexes, file.row_count, stats)
        except StorageError as error:
            self._store.env.forget_immutable(place, CacheKind.FILE_INDEX)
            _LOG.warning(
                "the index of data file %s in %s is not used, its rows are read: %s", file.file_name, place, error
            )
            return True
        return rows is None or bool(rows)

    def _indexes(self, file: DataFileMeta, data: bytes, columns: frozenset[str]) -> ColumnIndexes:
        """By column of the table. Partition columns inside files are not trusted."""
        schema, found = self._store.schema, {}
        written = schema if file.schema_id == schema.id else self._store.schemas.schema(file.schema_id)
        stored = decode_file_index(data)
        for name in (columns & schema.by_name.keys()).difference(schema.partition_keys):
            field = schema.by_name[name]
            old = written.by_id.get(field.id)
            if old is not None and old.name in stored and _is_same(old.type, field.type, file.file_name):
                found[name] = _opened(stored[old.name], old.type, file.row_count)
        return found


def _opened(stored: Mapping[str, bytes | None], data_type: DataType, row_count: int) -> list[IndexOfColumn]:
    """The indexes of a column; kinds that are not known are passed over."""
    form, found = KeyForm.of(data_type), []
    for kind, data in stored.items():
        if form is None or kind not in _READERS or not TYPES[kind](data_type):
            continue
        index = None if data is None else _READERS[kind](form, data)
        if isinstance(index, BitmapIndex | RangeBitmap) and index.row_count != row_count:
            raise CorruptDataError(f"the {kind} index is one of {index.row_count} rows, the file has {row_count}")
        found.append(IndexOfColumn(form, index))
    return found


def _is_same(old: DataType, new: DataType, file_name: str) -> bool:
    """Whether reading the file changes no value. CHAR in ORC files is padded by Apache Paimon, in indexes it is not."""
    is_padded = old.root is TypeRoot.CHAR and file_format_of(file_name) == "orc"
    return keeps_bounds(old, new) and not is_padded


def _is_index(name: str) -> bool:
    return name.endswith(INDEX_SUFFIX)
