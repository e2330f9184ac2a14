"""What the indexes of data files say about a filter: evidence beside the statistics, of what need not be read.

Two phases: what manifest entries hold is asked first, files next to data files are read only for those that are left.
An index is of the columns that the file was written with. They are mapped by field id; where the type of a column has
changed so that values change when they are read, the index says nothing.

The answer is "no" only where it is certain. An index that is missing or damaged is reported, and says nothing: data
files are read then.

Source: FORMAT.md §11.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
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
from freshet.storage.io.cache_settings import CacheKind
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

_LOG: Final = logging.getLogger(__name__)


class FileEvidence:
    """The indexes of the files of one table. `may_match` is for files of one bucket."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._is_on = store.options.file_index_read_enabled

    def may_match(
        self, bucket_id: BucketId, file: DataFileMeta, predicate: Predicate, stats: Mapping[str, ColumnStats]
    ) -> bool:
        """False if no row of the file can be TRUE; reads the file next to it where there is one. `stats` are what is
        known of its columns besides."""
        if not self._is_on or not (file.embedded_index or any(map(_is_index, file.extra_files))):
            return True
        if file.embedded_index is not None and not self._may_be_true(
            file, file.embedded_index, "its manifest entry", predicate, stats
        ):
            return False
        for path in self._paths(bucket_id, file):
            data = self._beside(path)
            if data is not None and not self._may_be_true(file, data, path, predicate, stats):
                return False
        return True

    def may_have_keys(self, bucket_id: BucketId, file: DataFileMeta, keys: pa.Table) -> bool:
        """False if none of these keys, which have the types of the table, is in the file."""
        if not self._is_on or not (file.embedded_index or file.extra_files) or keys.num_rows > KEYS_MAX:
            return True
        columns = (
            IsIn(name, tuple(Literal(canonical(value), column.type) for value in column))
            for name, column in zip(keys.column_names, keys.columns, strict=True)
        )
        predicate = conjunction(columns)
        return predicate is None or self.may_match(bucket_id, file, predicate, {})

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
        """Of the files next to it that hold indexes."""
        partition, bucket = bucket_id
        folder, paths = self._store.partition_path(partition), self._store.paths
        names = filter(_is_index, file.extra_files)
        return [paths.extra_file(folder, bucket, name, file.external_path) for name in names]

    def _beside(self, path: str) -> bytes | None:
        try:
            return self._store.env.immutable_bytes(path, CacheKind.FILE_INDEX)
        except StorageError as error:
            _LOG.warning("the index %s of a data file is not used, its rows are read: %s", path, error)
            return None

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
