"""What the indexes of data files say about a filter: evidence beside the statistics, of what need not be read.

Two phases: what manifest entries hold is asked first, files next to data files are read only for those that are left.
An index is of the columns that the file was written with. They are mapped by field id; where the type of a column has
changed the index says nothing, but for integers and text, which stay the same numbers and bytes.

The answer is "no" only where it is certain. An index that is missing or damaged is reported, and says nothing: data
files are read then.

Source: FORMAT.md §11.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from freshet.storage.codec.bitmap_index import ColumnValues, decode_bitmap_index, decode_range_bitmap, plain_value
from freshet.storage.codec.bloom_filter import BloomFilter
from freshet.storage.codec.file_index import BITMAP, BLOOM_FILTER, INDEX_SUFFIX, RANGE_BITMAP, decode_file_index
from freshet.storage.codec.index_hashes import FLOATS, NUMBERS, TEXTS, TIMESTAMPS, value_hashes
from freshet.storage.codec.stats import ColumnStats
from freshet.storage.exceptions import StorageError
from freshet.storage.filters.literal import Literal, canonical
from freshet.storage.filters.predicate import And, Comparison, IsIn, IsNull, Or, Predicate, conjunction
from freshet.storage.io.cache_settings import CacheKind
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.data_type import DataType, ScalarType, TypeRoot
from freshet.storage.model.manifest import BucketId

_READ: Final = frozenset({BLOOM_FILTER, BITMAP, RANGE_BITMAP})
_INTEGERS: Final = NUMBERS - {TypeRoot.DATE, TypeRoot.TIME}

KEYS_MAX: Final = 1000
"""Of more keys that are looked up together, hardly a file has none."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ColumnEvidence:
    """The indexes of one column of one file."""

    data_type: ScalarType
    """Of the column in the file."""
    bloom: BloomFilter | None = None
    values: tuple[ColumnValues, ...] = ()

    def may_have(self, literal: Literal) -> bool:
        """False if no row has the value."""
        return any(self._may_have(form) for form in _forms(literal, self.data_type))

    def may_be(self, op: str, literal: Literal) -> bool:
        """False if no row has a value that compares so."""
        if op == "==":
            return self.may_have(literal)
        if op == "!=" or self.data_type.root in FLOATS or self._is_cut:
            return True
        wanted = plain_value(literal.scalar, self.data_type)
        for known in self.values:
            if known.values is not None and not known.values:
                return False
            bounds = known.bounds
            if bounds is None and known.values:
                bounds = min(known.values), max(known.values)
            if bounds is None:
                continue
            low, high = bounds
            if (op == "<" and low >= wanted) or (op == "<=" and low > wanted):
                return False
            if (op == ">" and high <= wanted) or (op == ">=" and high < wanted):
                return False
        return True

    @property
    def _is_cut(self) -> bool:
        """Whether indexes have the values less finely than the column: nanoseconds as microseconds."""
        return self.data_type.root in TIMESTAMPS and (self.data_type.precision or 0) > 6

    @property
    def may_be_null(self) -> bool:
        """False if no row is NULL there."""
        return all(known.has_nulls is not False for known in self.values)

    def _may_have(self, value: pa.Array[Any]) -> bool:
        if self.bloom is not None and not self.bloom.may_have(value_hashes(value, self.data_type))[0]:
            return False
        if not self.values or self.data_type.root in FLOATS:
            return True
        plain = plain_value(value[0], self.data_type)
        for known in self.values:
            if known.values is not None and plain not in known.values:
                return False
            if known.bounds is not None and not known.bounds[0] <= plain <= known.bounds[1]:
                return False
        return True


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
        columns = predicate.columns()
        if file.embedded_index is not None:
            evidence = self._evidence(file, file.embedded_index, columns, "its manifest entry")
            if not may_be_true(predicate, evidence, stats, file.row_count):
                return False
        for path in self._paths(bucket_id, file):
            data = self._beside(path)
            if data is None:
                continue
            if not may_be_true(predicate, self._evidence(file, data, columns, path), stats, file.row_count):
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

    def _evidence(
        self, file: DataFileMeta, data: bytes, columns: frozenset[str], place: str
    ) -> Mapping[str, ColumnEvidence]:
        """By column of the table."""
        schema, found = self._store.schema, {}
        try:
            written = schema if file.schema_id == schema.id else self._store.schemas.schema(file.schema_id)
            indexes = decode_file_index(data)
            for name in columns & schema.by_name.keys():
                field = schema.by_name[name]
                old = written.by_id.get(field.id)
                if old is not None and old.name in indexes and _is_same(old.type, field.type):
                    assert isinstance(old.type, ScalarType)
                    found[name] = _decoded(indexes[old.name], old.type)
        except StorageError as error:
            _LOG.warning(
                "the index of data file %s in %s is not used, its rows are read: %s", file.file_name, place, error
            )
            return {}
        return found


def may_be_true(
    predicate: Predicate, evidence: Mapping[str, ColumnEvidence], stats: Mapping[str, ColumnStats], row_count: int
) -> bool:
    """False only if the bound filter is TRUE for no row of a file with these indexes and statistics."""
    match predicate:
        case And(children=children):
            return all(may_be_true(child, evidence, stats, row_count) for child in children)
        case Or(children=children):
            return any(may_be_true(child, evidence, stats, row_count) for child in children)
    if not predicate.may_match(stats, row_count):
        return False
    match predicate:
        case Comparison(column=column, op=op, value=literal) if column in evidence:
            return evidence[column].may_be(op, literal)
        case IsIn(column=column, values=literals) if column in evidence:
            return any(evidence[column].may_have(literal) for literal in literals)
        case IsNull(column=column) if column in evidence:
            return evidence[column].may_be_null
    return True


def _decoded(indexes: Mapping[str, bytes | None], data_type: ScalarType) -> ColumnEvidence:
    bloom, values = None, []
    for kind, data in indexes.items():
        if kind not in _READ or data_type.root is TypeRoot.DECIMAL:
            continue
        if data is None:  # no value but NULL, of whose number nothing is said
            values.append(ColumnValues(0, None, frozenset()))
        elif kind == BLOOM_FILTER:
            bloom = BloomFilter.decode(data)
        elif kind == BITMAP:
            values.append(decode_bitmap_index(data, data_type))
        else:
            values.append(decode_range_bitmap(data, data_type))
    return ColumnEvidence(data_type, bloom, tuple(values))


def _forms(literal: Literal, data_type: ScalarType) -> Sequence[pa.Array[Any]]:
    """The values that are equal to the literal, each as an array of one."""
    value = literal.value
    array: pa.Array[Any] = pa.array([value], literal.type)
    if data_type.root not in FLOATS:
        return [array]
    if math.isnan(value):
        return [array]
    return [pa.array([0.0, -0.0], literal.type)[index : index + 1] for index in range(2)] if value == 0 else [array]


def _is_same(old: DataType, new: DataType) -> bool:
    """Whether values of the column are the same in indexes of both types. CHAR may be padded, or not."""
    if not isinstance(old, ScalarType) or not isinstance(new, ScalarType) or TypeRoot.CHAR in (old.root, new.root):
        return False
    if old.root in _INTEGERS and new.root in _INTEGERS:
        return True
    if old.root in TEXTS and new.root in TEXTS:
        return True
    return (old.root, old.precision) == (new.root, new.precision)


def _is_index(name: str) -> bool:
    return name.endswith(INDEX_SUFFIX)
