"""Decides from metadata alone what need not be read: partitions, buckets, files.

| level | by | when |
|---|---|---|
| manifest, partition | conjuncts on partition columns | always |
| bucket | equality or IN on every column of the bucket key | the partition has a fixed number of buckets |
| file | conjuncts on key columns, against key statistics | always: all rows of a key pass or fail together |
| file | any conjunct, against value statistics | append tables, and buckets whose files share no key |
| file | the same conjuncts, against its indexes (`file_evidence`) | after the statistics |
| whole bucket | any conjunct: every file of it fails | files overlap, and merging takes whole rows |

A file of an overlapping bucket must not be left out because of its values: it may hold the newest row of a key whose
older row, elsewhere, would then come back. Partial-update and aggregation make rows that are in no file: a sum, or
columns of several rows, may match where no file does.

Statistics of a file belong to the schema it was written with. They are mapped by field id; a column that the file does
not have is all NULL; a column whose type has changed keeps its bounds only where the values did not change (wider
integers, longer strings).

Which files of some buckets must be read for a filter: what metadata says of them first, files only of what is left.

| phase | asks | costs |
|---|---|---|
| 1, pure | statistics, and indexes in manifest entries, of all files of all buckets | no request |
| 2 | the index files next to those that are left, requested ahead together | a request each, many at a time |

Phase 2 asks the questions of phase 1 again: whether files of a bucket may be left out each by itself depends on which
of them are left.

Source: MERGING.md §6.1; FORMAT.md §6, §13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, Final

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.casts.evolution import keeps_bounds
from freshet.storage.codec.binary_row import decode_row
from freshet.storage.codec.binary_row_arrays import encode_rows
from freshet.storage.codec.bucket_function import bucket_ids
from freshet.storage.codec.stats import ColumnStats, decode_stats
from freshet.storage.files.file_evidence import FileEvidence
from freshet.storage.filters.predicate import Comparison, IsIn, Or, Predicate, conjunction
from freshet.storage.metadata.schema_store import SchemaStore
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema, arrow_type
from freshet.storage.model.data_file import EMPTY_ROW, DataFileMeta, SimpleStats
from freshet.storage.model.data_type import FLOAT_ROOTS, INTEGER_ROOTS, TEXT_ROOTS, DataType, TypeRoot
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.choices import MergeEngine
from freshet.storage.paths import file_format_of

_ONE_FORM: Final = frozenset({*INTEGER_ROOTS, *TEXT_ROOTS, TypeRoot.BOOLEAN, TypeRoot.DATE})

BUCKET_KEYS_MAX: Final = 1000
"""Combinations of bucket-key values up to which buckets are computed."""


class ScanFilter(Frozen, dict=True):
    """A filter bound to a table's schema, and its parts by what they look at."""

    schema: TableSchema
    predicate: Predicate

    @staticmethod
    def bind(schema: TableSchema, predicate: Predicate | None) -> ScanFilter | None:
        """Checks the filter against the columns; None stays None."""
        return None if predicate is None else ScanFilter(schema, predicate.bind(arrow_schema(schema)))

    @cached_property
    def partition_part(self) -> Predicate | None:
        """Conjuncts that look at partition columns only."""
        return conjunction(part for part in self._parts if part.columns() <= set(self.schema.partition_keys))

    @cached_property
    def key_part(self) -> Predicate | None:
        """Conjuncts that look at the trimmed primary key only: safe for each file of an overlapping section."""
        if not self.schema.has_primary_key:
            return None
        keys = set(self.schema.trimmed_primary_keys)
        return conjunction(part for part in self._parts if part.columns() <= keys)

    @cached_property
    def file_part(self) -> Predicate | None:
        """Conjuncts without partition columns, whose values inside files are not trusted."""
        return conjunction(part for part in self._parts if not part.columns() & set(self.schema.partition_keys))

    @property
    def is_on_partitions_only(self) -> bool:
        """Whether all rows of a partition pass or fail together."""
        return self.predicate.columns() <= set(self.schema.partition_keys)

    @property
    def _parts(self) -> tuple[Predicate, ...]:
        return self.predicate.conjuncts()


class PartitionPruning:
    """Tests partitions, and the bounds of the partitions of a manifest."""

    def __init__(self, scan_filter: ScanFilter, types: Sequence[DataType]) -> None:
        self._predicate = scan_filter.partition_part
        self._names = scan_filter.schema.partition_keys
        self._types = tuple(types)
        self._answers: dict[bytes, bool] = {}

    def keeps(self, partition: bytes) -> bool:
        """False if no row of the partition can match."""
        if self._predicate is None:
            return True
        answer = self._answers.get(partition)
        if answer is None:
            stats = partition_stats(partition, self._names, self._types, row_count=1)
            answer = self._answers[partition] = self._predicate.may_match(stats, 1)
        return answer

    def named(self) -> list[bytes] | None:
        """The only partitions whose rows can match, where the filter names them; None where it does not.

        Of types for which every writer of the format makes the same bytes.
        """
        if self._predicate is None or any(kind.root not in _ONE_FORM for kind in self._types):
            return None
        keys = _key_candidates(self._predicate, self._names, self._types)
        if not keys:
            return None if keys is None else []
        arrays = [pa.array([key[index] for key in keys], arrow_type(kind)) for index, kind in enumerate(self._types)]
        return encode_rows(arrays, self._types)

    def holds(self, partition: bytes) -> bool:
        """Whether the conjuncts on partition columns are true for the rows of the partition; exact."""
        if self._predicate is None:
            return True
        values = zip(self._names, decode_row(partition, self._types), self._types, strict=True)
        row = pa.table({name: pa.array([value], arrow_type(kind)) for name, value, kind in values})
        return bool(row.filter(self._predicate.to_arrow()).num_rows)

    def may_keep(self, stats: SimpleStats) -> bool:
        """False if no partition within these bounds can match; null counts there count entries, not rows."""
        if self._predicate is None or stats.min_values == EMPTY_ROW:
            return True
        bounds = decode_stats(stats, self._types)
        known = {
            name: _comparable(column, kind)
            for name, column, kind in zip(self._names, bounds, self._types, strict=True)
            if column.null_count == 0
        }
        return self._predicate.may_match(known, 1)


def partition_stats(
    partition: bytes, names: Sequence[str], types: Sequence[DataType], row_count: int
) -> dict[str, ColumnStats]:
    """Statistics of the partition columns in some rows of one partition."""
    values = decode_row(partition, types)
    return {
        name: _comparable(ColumnStats(value, value, row_count if value is None else 0), kind)
        for name, value, kind in zip(names, values, types, strict=True)
    }


class BucketPruning:
    """The buckets that rows matching a filter can be in."""

    def __init__(
        self, scan_filter: ScanFilter, bucket_key: Sequence[str], types: Sequence[DataType], function: str
    ) -> None:
        self._types = tuple(types)
        self._function = function
        self._keys = _key_candidates(scan_filter.predicate, bucket_key, types)
        self._buckets: dict[int, frozenset[int]] = {}

    def keeps(self, bucket: int, total_buckets: int) -> bool:
        """False if no row of the bucket can match."""
        if self._keys is None or total_buckets <= 0:
            return True
        if total_buckets not in self._buckets:
            self._buckets[total_buckets] = self._compute(self._keys, total_buckets)
        return bucket in self._buckets[total_buckets]

    def _compute(self, keys: Sequence[tuple[Any, ...]], total_buckets: int) -> frozenset[int]:
        if not keys:
            return frozenset()
        arrays = [pa.array([key[index] for key in keys], arrow_type(kind)) for index, kind in enumerate(self._types)]
        return frozenset(map(int, bucket_ids(arrays, self._types, total_buckets, self._function)))


class CurrentStatistics:
    """Statistics of files in terms of the table's current columns."""

    def __init__(self, schemas: SchemaStore, schema: TableSchema) -> None:
        self._schemas = schemas
        self._schema = schema
        self._plans: dict[tuple[int, tuple[str, ...] | None], _StatsPlan] = {}

    def of(self, file: DataFileMeta) -> dict[str, ColumnStats]:
        """What is known of each column of the file."""
        plan_key = (file.schema_id, file.value_stats_cols)
        plan = self._plans.get(plan_key)
        if plan is None:
            plan = self._plans[plan_key] = self._plan(*plan_key)
        stats = {name: ColumnStats(None, None, file.row_count) for name in plan.absent}
        if plan.types and file.value_stats.min_values != EMPTY_ROW:
            decoded = decode_stats(file.value_stats, plan.types)
            stats.update((name, _comparable(decoded[index], plan.types[index], file)) for index, name in plan.columns)
        stats.update(self.keys_of(file))
        return stats

    def keys_of(self, file: DataFileMeta) -> dict[str, ColumnStats]:
        """What is known of the key columns of the file; their types never change."""
        names = self._schema.trimmed_primary_keys
        if not names or file.key_stats.min_values == EMPTY_ROW:
            return {}
        types = self._schema.types_of(names)
        decoded = decode_stats(file.key_stats, types)
        return {name: _comparable(stats, kind, file) for name, stats, kind in zip(names, decoded, types, strict=True)}

    def _plan(self, schema_id: int, covered: tuple[str, ...] | None) -> _StatsPlan:
        written = self._schema if schema_id == self._schema.id else self._schemas.schema(schema_id)
        names = written.column_names if covered is None else covered
        columns = []
        for index, name in enumerate(names):
            old = written.by_name[name]
            new = self._schema.by_id.get(old.id)
            if new is not None and keeps_bounds(old.type, new.type):
                columns.append((index, new.name))
        absent = tuple(field.name for field in self._schema.fields if field.id not in written.by_id)
        return _StatsPlan(written.types_of(names), tuple(columns), absent)


class _StatsPlan(Frozen):
    """Types of the statistics row, which of its columns are used under which name, columns the file does not have."""

    types: tuple[DataType, ...]
    columns: tuple[tuple[int, str], ...]
    absent: tuple[str, ...]


IndexTest = Callable[[DataFileMeta, Predicate, Mapping[str, ColumnStats]], bool]


def bucket_files(
    files: Sequence[DataFileMeta],
    scan_filter: ScanFilter | None,
    statistics: CurrentStatistics,
    of_partition: Mapping[str, ColumnStats],
    *,
    keys_are_unique: bool = False,
    makes_rows: bool = False,
    by_index: IndexTest = lambda _file, _predicate, _stats: True,
) -> list[DataFileMeta]:
    """The files of one bucket that must be read. `of_partition` are the constants of the partition columns.

    `by_index` is false where the indexes of a file show that no row of it can pass a filter; it is asked last, and what
    there is to ask of one file together.

    `keys_are_unique`: no key is in two of the files, although their ranges may overlap. `makes_rows`: merged rows may
    have values that no row in a file has.
    """
    if scan_filter is None:
        return list(files)
    key_part, answers = scan_filter.key_part, dict[str, bool]()

    def may_match(file: DataFileMeta) -> bool:
        if file.file_name not in answers:
            stats = statistics.of(file)
            for name, constant in of_partition.items():
                is_null = constant.null_count != 0
                stats[name] = ColumnStats(constant.min_value, constant.max_value, file.row_count if is_null else 0)
            answers[file.file_name] = scan_filter.predicate.may_match(stats, file.row_count) and by_index(
                file, scan_filter.predicate, stats
            )
        return answers[file.file_name]

    is_each_alone = not scan_filter.schema.has_primary_key or keys_are_unique
    may_overlap = not is_each_alone and files_may_overlap(files)
    kept: list[DataFileMeta] = []
    has_match = False
    for file in files:
        if key_part is not None:
            of_keys = statistics.keys_of(file)
            if not (key_part.may_match(of_keys, file.row_count) and by_index(file, key_part, of_keys)):
                continue
        kept.append(file)
        if not may_overlap or not (makes_rows or has_match):  # both questions while the index of the file is at hand
            has_match = may_match(file) or has_match
    if is_each_alone or not files_may_overlap(kept):
        return [file for file in kept if may_match(file)]
    return kept if makes_rows or has_match else []


def files_may_overlap(files: Sequence[DataFileMeta]) -> bool:
    """False only for a single file, or files of one level above 0."""
    levels = {file.level for file in files}
    return len(files) > 1 and (len(levels) > 1 or 0 in levels)


def _key_candidates(
    predicate: Predicate, bucket_key: Sequence[str], types: Sequence[DataType]
) -> list[tuple[Any, ...]] | None:
    """All bucket keys that can match, or None if that is not known."""
    # The hash distinguishes -0.0 from 0.0, the filter does not.
    if not bucket_key or any(kind.root in FLOAT_ROOTS for kind in types):
        return None
    candidates: list[list[Any]] = []
    for column in bucket_key:
        sets = [values for part in predicate.conjuncts() if (values := _equal_values(part, column)) is not None]
        if not sets:
            return None
        candidates.append([value for value in sets[0] if all(value in other for other in sets[1:])])
    return list(product(*candidates)) if prod(map(len, candidates)) <= BUCKET_KEYS_MAX else None


def _equal_values(part: Predicate, column: str) -> list[Any] | None:
    """The values that the column has in every row for which the filter is true, or None if it does not say."""
    match part:
        case Comparison(column=name, op="==", value=literal) if name == column:
            return [literal.value]
        case IsIn(column=name, values=literals) if name == column:
            return [literal.value for literal in literals]
        case Or(children=children):
            parts = [_equal_values(child, column) for child in children]
            known = [values for values in parts if values is not None]
            return [value for values in known for value in values] if len(known) == len(parts) else None
    return None


def _comparable(stats: ColumnStats, kind: DataType, file: DataFileMeta | None = None) -> ColumnStats:
    """Days outside the years of `datetime.date` come as integers, which compare with no literal: unknown. So are bounds
    of CHAR in ORC files: Apache Paimon takes them from values that are padded with blanks, which order otherwise."""
    if kind.root is TypeRoot.CHAR and file is not None and file_format_of(file.file_name) == "orc":
        return ColumnStats(null_count=stats.null_count)
    if kind.root is not TypeRoot.DATE:
        return stats
    low, high = (None if isinstance(value, int) else value for value in (stats.min_value, stats.max_value))
    return ColumnStats(low, high, stats.null_count)


class FilesOfBucket(Frozen):
    """Files of one bucket. `keys_are_unique`: no key is in two of them, although their ranges may overlap."""

    bucket_id: BucketId
    files: Sequence[DataFileMeta]
    keys_are_unique: bool = False


class FilePruning:
    """The files to read for one filter of a table."""

    def __init__(self, store: TableStore, scan_filter: ScanFilter | None) -> None:
        self._store = store
        self._filter = scan_filter
        self._statistics = CurrentStatistics(store.schemas, store.schema)
        self._evidence = FileEvidence(store)
        self._makes_rows = store.options.merge_engine in (MergeEngine.PARTIAL_UPDATE, MergeEngine.AGGREGATE)

    def kept(self, buckets: Sequence[FilesOfBucket]) -> list[list[DataFileMeta]]:
        """The files of each bucket in which a row can match, in their order."""
        if self._filter is None:
            return [list(bucket.files) for bucket in buckets]
        kept = [self._tested(bucket, bucket.files, self._evidence.may_match_by_manifest) for bucket in buckets]
        if self._filter.is_on_partitions_only:  # indexes say nothing of partition columns
            return kept
        left = [
            (bucket.bucket_id, file)
            for bucket, files in zip(buckets, kept, strict=True)
            for file in files
            if self._evidence.has_files_beside(file)
        ]
        if not left:
            return kept
        with self._evidence.ahead(left):
            return [self._tested_beside(bucket, files) for bucket, files in zip(buckets, kept, strict=True)]

    def _tested_beside(self, bucket: FilesOfBucket, files: list[DataFileMeta]) -> list[DataFileMeta]:
        if not any(map(self._evidence.has_files_beside, files)):
            return files

        def may_match(file: DataFileMeta, predicate: Predicate, stats: Mapping[str, ColumnStats]) -> bool:
            return self._evidence.may_match(bucket.bucket_id, file, predicate, stats)

        return self._tested(bucket, files, may_match)

    def _tested(self, bucket: FilesOfBucket, files: Sequence[DataFileMeta], by_index: IndexTest) -> list[DataFileMeta]:
        schema, (partition, _) = self._store.schema, bucket.bucket_id
        return bucket_files(
            files,
            self._filter,
            self._statistics,
            partition_stats(partition, schema.partition_keys, self._store.partition_types, row_count=1),
            keys_are_unique=bucket.keys_are_unique,
            makes_rows=self._makes_rows,
            by_index=by_index,
        )
