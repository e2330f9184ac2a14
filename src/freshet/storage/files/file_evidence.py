"""What the indexes of data files say about a filter: evidence beside the statistics, of what need not be read.

Two phases: what manifest entries hold is asked first (`may_match_by_manifest`), files next to data files are read only
for those that are left (`may_match`), requested `ahead` for all of them.
An index is of the columns that the file was written with. They are mapped by field id; where the type of a column has
changed so that values change when they are read, the index says nothing.

The answer is "no" only where it is certain. An index that is missing or damaged is reported, and says nothing: data
files are read then.

Each node of a bound filter has two answers, the rows for which it may be TRUE and those for which it may be FALSE; for
rows in neither it is NULL. An answer is a set of positions that may have too many rows but never too few, or None,
which is all rows. AND of TRUE is what both sides have in common, so that two columns exclude a file that neither of
them excludes.

| index | answers |
|---|---|
| bloom filter | `=` and IN: no row, or all |
| bitmap | `=`, IN, `!=`, NOT IN, IS NULL, IS NOT NULL; `<`, `<=`, `>`, `>=` of few values, of many: no row, or all |
| range bitmap | all of these |

Where values share a key (nanoseconds cut to microseconds) only `=` and IN are answered. NaN is above all numbers and
equals itself, -0.0 equals 0.0, as filters compare.

Source: FORMAT.md §11.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.casts.evolution import keeps_bounds
from freshet.storage.codec.bitmap_index import BitmapIndex
from freshet.storage.codec.bloom_filter import BloomFilter, mixed, value_hashes
from freshet.storage.codec.file_index import BITMAP, BLOOM_FILTER, INDEX_SUFFIX, RANGE_BITMAP, decode_file_index
from freshet.storage.codec.index_keys import Key, KeyForm
from freshet.storage.codec.range_bitmap import RangeBitmap
from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.codec.stats import ColumnStats
from freshet.storage.exceptions import CorruptDataError, StorageError
from freshet.storage.filters.literal import Literal, canonical
from freshet.storage.filters.predicate import And, Comparison, IsIn, IsNull, Not, Or, Predicate, conjunction
from freshet.storage.io.file_cache import CacheKind
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.data_type import DataType, TypeRoot
from freshet.storage.model.manifest import BucketId
from freshet.storage.paths import file_format_of
from freshet.storage.schema.data_files import INDEX_TYPES

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
        if form is None or kind not in _READERS or not INDEX_TYPES[kind](data_type):
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


Rows: TypeAlias = Bitmap32 | None
ColumnIndex: TypeAlias = BloomFilter | BitmapIndex | RangeBitmap

_NO_STATS: Final[Mapping[str, ColumnStats]] = MappingProxyType({})
_OPPOSITE: Final = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


class IndexOfColumn(Frozen):
    """One index of a column, as the file's schema has the column."""

    form: KeyForm
    index: ColumnIndex | None
    """None for an index that was left empty: no row has a value, but it may be NULL."""


ColumnIndexes: TypeAlias = Mapping[str, Sequence[IndexOfColumn]]
"""Indexes by the name that the column has in the filter; a column may have none."""


def rows_that_may_match(
    predicate: Predicate, indexes: ColumnIndexes, row_count: int, stats: Mapping[str, ColumnStats] = _NO_STATS
) -> Rows:
    """Rows of a file for which a bound filter may be true; None is all of them. `stats` are what is known of its
    columns besides."""
    return _Evaluation(indexes, row_count, stats).rows(predicate, wanted=True)


class _Evaluation(Frozen):
    indexes: ColumnIndexes
    row_count: int
    stats: Mapping[str, ColumnStats]

    def rows(self, node: Predicate, *, wanted: bool) -> Rows:
        match node:
            case And(children=children):
                return self._joined(children, wanted, common=wanted)
            case Or(children=children):
                return self._joined(children, wanted, common=not wanted)
            case Not(child=child):
                return self.rows(child, wanted=not wanted)
        if not node.may_be(wanted, self.stats, self.row_count):
            return Bitmap32()
        match node:
            case Comparison(column=column, op=op, value=literal):
                op = op if wanted else _OPPOSITE[op]
                return self._of_column(column, lambda one: self._compared(one, op, literal))
            case IsIn(column=column, values=literals):
                return self._of_column(column, lambda one: self._listed(one, literals, wanted=wanted))
            case IsNull(column=column):
                return self._of_column(column, lambda one: self._null(one, wanted=wanted))
        return None

    def _joined(self, children: Sequence[Predicate], wanted: bool, *, common: bool) -> Rows:
        """The rows that all children have, or any of them."""
        joined: Rows = None if common else Bitmap32()
        for child in children:
            rows = self.rows(child, wanted=wanted)
            if common:
                joined = _common(joined, rows)
                if joined is not None and not joined:
                    return joined
            elif rows is None:
                return None
            else:
                joined = rows if joined is None else joined | rows
        return joined

    def _of_column(self, column: str, answer: Callable[[IndexOfColumn], Rows]) -> Rows:
        return reduce(_common, map(answer, self.indexes.get(column, ())), None)

    def _compared(self, one: IndexOfColumn, op: str, literal: Literal) -> Rows:
        if op in ("==", "!="):
            return self._listed(one, (literal,), wanted=op == "==")
        index = one.index
        if index is None:
            return Bitmap32()
        if isinstance(index, BloomFilter) or not one.form.is_exact:
            return None
        keys = one.form.literal_keys(literal.value, literal.type)
        match op:
            case ">":
                return index.rows_above(keys[-1], inclusive=False)
            case ">=":
                return index.rows_above(keys[0], inclusive=True)
            case "<":
                return index.rows_below(keys[0], inclusive=False)
            case _:
                return index.rows_below(keys[-1], inclusive=True)

    def _listed(self, one: IndexOfColumn, literals: Sequence[Literal], *, wanted: bool) -> Rows:
        keys = [key for literal in literals for key in one.form.literal_keys(literal.value, literal.type)]
        index = one.index
        if index is None:
            return Bitmap32()
        if isinstance(index, BloomFilter):
            return Bitmap32() if wanted and not _any_may_be(index, one.form, keys) else None
        if wanted:
            return index.rows_with(keys)
        return index.valid - index.rows_with(keys) if one.form.is_exact else None

    def _null(self, one: IndexOfColumn, *, wanted: bool) -> Rows:
        if one.index is None:
            return None if wanted else Bitmap32()
        if isinstance(one.index, BloomFilter):
            return None
        return one.index.nulls if wanted else one.index.valid


def _common(first: Rows, second: Rows) -> Rows:
    if first is None or second is None:
        return second if first is None else first
    return first & second


def _any_may_be(index: BloomFilter, form: KeyForm, keys: Sequence[Key]) -> bool:
    if not keys:
        return False
    if form.is_bytes:
        hashes = value_hashes(pa.array(keys, pa.binary()), form.kind)
    else:
        hashes = mixed(form.hashed(np.array(keys, np.int64)))
    return bool(index.may_have(hashes).any())
