"""Finds the rows of a primary-key table at one snapshot, by key.

    1. keys are grouped by table partition and bucket, as rows are when they are written
    2. of each bucket, files in whose key range no key lies, or whose indexes show that they have none, are left out
    3. every run of the others is asked for the keys (`RunLookup`), and what the runs have of a key is merged by the
       table's engine, as a scan would: deletes hide, sequence fields decide, level 0 is passed over where scans do
       that, rows that a deletion vector marks are not there

The result is that of a scan filtered by these keys, at the cost of the files and row groups the keys are in.

Source: MERGING.md §2.1, §2.7, §6.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.codec.binary_row import encode_row
from freshet.storage.codec.binary_row_arrays import distinct_rows
from freshet.storage.codec.bucket_function import bucket_ids
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.files.column_bounds import plain_value
from freshet.storage.files.data_file_reader import data_files_ahead
from freshet.storage.files.file_evidence import FileEvidence
from freshet.storage.lookup.cached_lookup import bucket_lookup, key_join
from freshet.storage.lookup.file_lookup import FoundRows, UnmarkedRows, no_rows_found
from freshet.storage.lookup.lookup_metrics import LookupMetrics
from freshet.storage.lookup.run_lookup import RunLookup, files_in_range
from freshet.storage.merge.engine import merge_function, row_order
from freshet.storage.merge.gather import take_rows
from freshet.storage.merge.key_order import KeyComparator, RowOrder, sort_segments
from freshet.storage.merge.merge_function import without_retracts
from freshet.storage.merge.row_levels import with_level
from freshet.storage.merge.sort_words import Positions
from freshet.storage.merge.sorted_runs import interval_partition, older_first
from freshet.storage.metadata.deletion_vector_store import BucketVectors
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_file import EMPTY_ROW, DataFileMeta
from freshet.storage.model.manifest import IndexFileMeta, ManifestEntry
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, column_named
from freshet.storage.model.snapshot import Snapshot


def find_stored_rows(
    store: TableStore,
    snapshot: Snapshot | None,
    keys: pa.Table,
    columns: Sequence[str] | None = None,
    metrics: LookupMetrics | None = None,
) -> FoundRows:
    """The rows of these keys at the snapshot; with no snapshot (an empty table) there are none.

    `keys` is an Arrow table with every column of the primary key (others are passed over), in any order of rows; a key
    may repeat. `columns` names the columns wanted, all if None; key columns only if they are named.

    `rows` of the answer has each row found once, in no particular order, as a scan would give it: merged, deleted keys
    absent, columns in the order asked, in the types of the table. `positions` has one number for each row of `keys`:
    the position of its row in `rows`, or -1 where there is none. So the stored value of column c for key i is
    `rows["c"][positions[i]]`, and `by_key()` gives them side by side.

    Columns are those of `store`, also where the snapshot was made with another schema. `metrics` counts how files were
    asked.

    Raises `InvalidRequestError` for a table without a primary key, a key column that is missing, NULL or of another
    type, and an unknown column; `CorruptDataError` for files that are missing or damaged.
    """
    names = _checked_columns(store, columns)
    asked = _checked_keys(store, keys)
    schema = pa.schema([arrow_schema(store.schema).field(name) for name in names])
    positions = np.full(asked.num_rows, -1, np.int64)
    parts: list[pa.Table] = [schema.empty_table()]
    count = 0
    for bucket, rows in _by_bucket(store, snapshot, asked, metrics or LookupMetrics()):
        found = bucket.find(take_rows(asked, rows), names)
        is_found = found.is_found
        positions[rows[is_found]] = found.positions[is_found] + count
        parts.append(found.rows.cast(schema))
        count += found.rows.num_rows
    return FoundRows(pa.concat_tables(parts), positions)


class StoredBucket(Frozen):
    """The live files of one bucket, to be asked by key."""

    store: TableStore
    partition: bytes
    bucket: int
    files: tuple[DataFileMeta, ...]
    metrics: LookupMetrics
    index_files: tuple[IndexFileMeta, ...] = ()

    def find(self, keys: pa.Table, columns: Sequence[str]) -> FoundRows:
        """The rows of keys of this bucket; see `find_stored_rows`."""
        key_order = RowOrder(self.store.schema.trimmed_primary_keys)
        numbered = keys.append_column(SEQUENCE_NUMBER_COLUMN, pa.array(np.zeros(keys.num_rows, np.int64)))
        segments = sort_segments(numbered, key_order)
        distinct = take_rows(keys, segments.order[segments.starts], key_order.key_columns)
        found = self._find_sorted(distinct, columns)
        positions = np.empty(keys.num_rows, np.int64)
        positions[segments.order] = np.repeat(found.positions, segments.counts)
        return FoundRows(found.rows, positions)

    def _find_sorted(self, keys: pa.Table, columns: Sequence[str]) -> FoundRows:
        """The same for keys in order, each once."""
        store, order = self.store, row_order(self.store.schema, self.store.options)
        function = merge_function(store.schema, store.options, table=store.location)
        wanted = {*function.columns_needed(tuple(columns)), *columns, *order.key_columns, *order.sequence_columns}
        read = [name for name in store.schema.column_names if name in wanted]
        merged: list[pa.Table] = []
        for candidates in self._candidates(keys, read, has_levels=function.reads_levels):
            segments = sort_segments(pa.concat_tables(candidates), order, [rows.num_rows for rows in candidates])
            needed = tuple(dict.fromkeys((*columns, *order.key_columns)))
            merged.append(function.merge(segments, columns=needed, keep=without_retracts).rows)
        if not merged:
            schema = pa.schema([arrow_schema(store.schema).field(name) for name in columns])
            return no_rows_found(schema, keys.num_rows)
        rows = pa.concat_tables(merged)
        positions = np.full(keys.num_rows, -1, np.int64)
        in_keys, in_rows = key_join(keys, rows, order.key_columns)
        positions[in_keys] = in_rows
        return FoundRows(rows.select(list(columns)), positions)

    def _candidates(self, keys: pa.Table, columns: Sequence[str], *, has_levels: bool) -> Iterator[list[pa.Table]]:
        """What the runs of each section have of the keys, older runs first."""
        store = self.store
        key_columns, comparator = store.schema.trimmed_primary_keys, KeyComparator(store.key_types)
        asked = bucket_lookup(store, self.partition, self.bucket, self.metrics)
        files = UnmarkedRows(asked, BucketVectors(store.vectors, self.index_files))
        lookup = RunLookup(files, key_columns, store.key_types, comparator)
        visible = [file for file in self.files if file.level > 0 or not store.options.hides_level_0]
        near = FileEvidence(store).files_with_keys(
            (self.partition, self.bucket),
            ((file, keys.slice(start, end - start)) for file, start, end in lookup.files_of_keys(visible, keys)),
        )
        with data_files_ahead(store, ((self.partition, self.bucket, file) for file in near if asked.is_read(file))):
            for section in interval_partition(near, comparator):
                candidates: list[pa.Table] = []
                for run in older_first(section):
                    for file, start, end in lookup.files_of_keys(run.files, keys):
                        rows = files.find(file, keys.slice(start, end - start), columns).rows
                        if rows.num_rows:
                            candidates.append(with_level(rows, file.level) if has_levels else rows)
                if candidates:
                    yield candidates


def _by_bucket(
    store: TableStore, snapshot: Snapshot | None, keys: pa.Table, metrics: LookupMetrics
) -> Iterator[tuple[StoredBucket, Positions]]:
    """Buckets that may hold some of the keys, and the positions of these keys."""
    if snapshot is None or not keys.num_rows:
        return
    partitions, codes = [EMPTY_ROW], np.zeros(keys.num_rows, np.int64)
    if store.schema.partition_keys and not store.schema.keys_cross_partitions:
        partitions, codes = distinct_rows(
            [keys.column(name) for name in store.schema.partition_keys], store.partition_types
        )
    is_anywhere = store.schema.keys_cross_partitions
    wanted = None if is_anywhere else frozenset(partitions).__contains__
    entries = live_entries(store.manifests, snapshot, partition=wanted)
    indexes = store.manifests.marking_files(snapshot.index_manifest)
    by_partition: dict[bytes, list[ManifestEntry]] = {}
    for entry in entries:
        by_partition.setdefault(entry.partition, []).append(entry)
    for code, partition in enumerate(sorted(by_partition) if is_anywhere else partitions):
        rows = np.arange(keys.num_rows) if is_anywhere else np.flatnonzero(codes == code)
        for bucket, members in _buckets_of(store, partition, by_partition.get(partition, []), keys, rows, metrics):
            yield replace(bucket, index_files=indexes.get((partition, bucket.bucket), ())), members


def _buckets_of(
    store: TableStore,
    partition: bytes,
    entries: Sequence[ManifestEntry],
    keys: pa.Table,
    rows: Positions,
    metrics: LookupMetrics,
) -> Iterator[tuple[StoredBucket, Positions]]:
    """The same within one partition, by the bucket count its files were written with."""
    files: dict[tuple[int, int], list[DataFileMeta]] = {}
    for entry in entries:
        if entry.bucket >= 0:  # files of postponed buckets are seen by nobody yet
            files.setdefault((entry.total_buckets, entry.bucket), []).append(entry.file)
    asked = take_rows(keys, rows)
    for total in {total for total, _ in files}:
        if total < 1:  # the bucket does not follow from the key: it may be anywhere
            comparator, (low, high) = KeyComparator(store.key_types), _key_range(store, asked)
            for bucket in [bucket for of_total, bucket in files if of_total == total]:
                held = tuple(files[total, bucket])
                if files_in_range(comparator, held, low, high):
                    yield StoredBucket(store, partition, bucket, held, metrics), rows
            continue
        arrays = [asked.column(name) for name in store.bucket_key]
        buckets = bucket_ids(arrays, store.bucket_key_types, total, store.options.bucket_function_type)
        for bucket in np.unique(buckets).tolist():
            if members := files.get((total, bucket)):
                yield StoredBucket(store, partition, bucket, tuple(members), metrics), rows[buckets == bucket]


def _key_range(store: TableStore, keys: pa.Table) -> tuple[Any, Any]:
    """The first and the last of these keys, as `KeyComparator` makes them.

    Of thousands of buckets, any of which may have a key, most are left out by it: to ask 12,000 of them for one key
    took 3.5 s, and takes 0.3 s.
    """
    names, comparator = store.schema.trimmed_primary_keys, KeyComparator(store.key_types)
    numbered = keys.append_column(SEQUENCE_NUMBER_COLUMN, pa.array(np.zeros(keys.num_rows, np.int64)))
    order = sort_segments(numbered, RowOrder(names)).order
    low, high = (
        comparator.sort_key(encode_row([plain_value(keys.column(name)[row]) for name in names], store.key_types))
        for row in (int(order[0]), int(order[-1]))
    )
    return low, high


def _checked_columns(store: TableStore, columns: Sequence[str] | None) -> tuple[str, ...]:
    known = store.schema.column_names
    names: dict[str, None] = {}
    for given in known if columns is None else columns:
        name = column_named(given, known)
        if name is None:
            raise InvalidRequestError(
                f"there is no column {given!r} in {store.location}; columns are {', '.join(known)}"
            )
        names[name] = None
    return tuple(names)


def _checked_keys(store: TableStore, keys: pa.Table) -> pa.Table:
    """The key columns in the table's types."""
    names = store.schema.primary_keys
    if not names:
        raise InvalidRequestError(f"rows of {store.location} cannot be found by key: it has no primary key; scan it")
    types = arrow_schema(store.schema)
    columns = []
    for name in names:
        if name not in keys.column_names:
            raise InvalidRequestError(
                f"the key column {name!r} of {store.location} is missing among {keys.column_names}; its primary key is "
                f"({', '.join(names)})"
            )
        column, field = keys.column(name), types.field(name)
        if column.null_count:
            raise InvalidRequestError(f"the key column {name!r} of {store.location} holds NULL; a primary key may not")
        try:
            columns.append(column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidRequestError(
                f"the key column {name!r} of {store.location} is {field.type}, the keys asked have {column.type}: "
                f"{error}"
            ) from error
    return pa.table(columns, schema=pa.schema([types.field(name) for name in names]))
