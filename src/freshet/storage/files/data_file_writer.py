"""Writes data and changelog files of one bucket, and describes them for the manifest.

| of the entry | primary-key table | append table |
|---|---|---|
| min and max key | first and last row, never cut | empty |
| key statistics | bounds of the key columns, cut at 128 | empty |
| value statistics | bounds and null counts by the mode of each column | the same |
| sequence numbers | smallest and largest of the rows | counted: max - min + 1 is the number of rows |
| delete row count | rows of kind -U and -D, exactly: 0 although there are some would bring deleted rows back | 0 |

Rows of a primary-key table come sorted by key, each key once, in changelog files also several times. Their columns are
`_SEQUENCE_NUMBER`, `_VALUE_KIND`, then the table's. The `_KEY_` columns are the key columns once more (the same
buffers); thin mode leaves them out. Files of an append table hold the table's columns and nothing else, in the order
written.

The indexes of a file are built while its rows are written: bloom filters, bitmaps and range bitmaps. Other types that a
table's options ask for (`bsi`, values of maps) are not written: indexes only save reading.

Source: FORMAT.md §4.2, §6, §7.1, §7.4, §11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.codec.binary_row import encode_row
from freshet.storage.codec.bitmap_index import BLOCK_BYTES, BitmapIndexWriter
from freshet.storage.codec.bloom_filter import BloomFilterBuilder, value_hashes
from freshet.storage.codec.file_index import BLOOM_FILTER, RANGE_BITMAP, encode_file_index
from freshet.storage.codec.index_keys import KeyForm
from freshet.storage.codec.range_bitmap import RangeBitmapWriter
from freshet.storage.codec.stats import StatsMode, encode_stats, encode_value_stats, reduce_stats, stats_modes
from freshet.storage.files.column_bounds import ColumnBounds, plain_value
from freshet.storage.files.data_file_paths import DataFileNames, FileTraits, changelog_file_traits
from freshet.storage.files.file_columns import key_value_fields
from freshet.storage.files.file_format import FileSummary
from freshet.storage.files.rolling_file_writer import NewCompanion, RollingFileWriter
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_facts import KindCounts
from freshet.storage.model.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, FileSource, SimpleStats
from freshet.storage.model.data_type import ScalarType
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import KEY_COLUMN_PREFIX, SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN, TableSchema
from freshet.storage.options.named_columns import IndexedColumn, indexed_columns
from freshet.storage.schema.data_files import INDEX_TYPES, block_bytes, bloom_size

_RETRACT_KINDS: Final = tuple(kind.value for kind in RowKind if kind.is_retract)
_APPEND_LEVEL: Final = 0


class DataFileWriter:
    """What both writers have: rows of one bucket, as one file or several."""

    _files: RollingFileWriter

    def close(self) -> list[DataFileMeta]:
        """Makes the files durable and describes them, in the order written; none for no rows."""
        return self._files.close()

    def abort(self) -> None:
        """Removes all files of this writer."""
        self._files.abort()


class KeyValueFileWriter(DataFileWriter):
    """Writes one sorted run of a bucket of a primary-key table at one level."""

    def __init__(
        self,
        store: TableStore,
        partition: bytes,
        bucket: int,
        level: int,
        source: FileSource,
        *,
        traits: FileTraits | None = None,
        new_companion: NewCompanion | None = None,
        executor: Executor | None = None,
    ) -> None:
        """`traits` are those of data files by default. Companions see all columns of the file, `_KEY_` ones too.
        `executor` may encode."""
        self._schema = store.schema
        self._fields = key_value_fields(store.schema, thin=store.options.thin_mode)
        names = DataFileNames(store, partition, bucket, level, traits)
        ends_by_rows = source is FileSource.APPEND and not names.traits.is_changelog
        self._files = RollingFileWriter(
            store,
            names,
            self._fields,
            lambda: _KeyValueContents(store, level, source, names),
            delta_columns=store.schema.trimmed_primary_keys[:1],
            row_count_max=store.options.target_file_row_num if ends_by_rows else None,
            new_companion=new_companion,
            executor=executor,
        )

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Appends rows that sort after those written before."""
        table = _table(rows)
        columns = {name: table.column(index) for index, name in enumerate(table.schema.names)}
        for name in self._schema.trimmed_primary_keys:
            columns[KEY_COLUMN_PREFIX + name] = columns[name]
        self._files.write(pa.table({field.name: columns[field.name] for field in self._fields}))


class ChangelogFileWriter(KeyValueFileWriter):
    """Writes the changelog files of one flush or one compaction of a bucket: rows in the order given.

    A changelog file is a key-value file with a name, a codec and statistics of its own. Only the changelog manifests of
    its snapshot name it. Entries say FileSource APPEND, as those of Apache Paimon do, and the level that the changes
    went to: 0 for `input`, the output level of the compaction for the others. Source: FORMAT.md §7.5.
    """

    def __init__(self, store: TableStore, partition: bytes, bucket: int, level: int) -> None:
        self._env = store.env
        traits = changelog_file_traits(store.options, level)
        super().__init__(store, partition, bucket, level, FileSource.APPEND, traits=traits)

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Appends rows with their system columns; no rows, no file."""
        if rows.num_rows:
            super().write(rows)

    def close(self) -> list[DataFileMeta]:
        """Makes the files durable and describes them."""
        files = super().close()
        if files:
            self._env.reach(CrashPoint.CHANGELOG_WRITTEN)
        return files


class AppendFileWriter(DataFileWriter):
    """Writes rows of one bucket of an append table; `next_sequence` is the number of the next row."""

    def __init__(
        self, store: TableStore, partition: bytes, bucket: int, source: FileSource, first_sequence: int = 0
    ) -> None:
        """`first_sequence` is the number of the first row: after the bucket's largest, or 0 without buckets."""
        self.next_sequence = first_sequence
        self._columns = list(store.schema.column_names)
        names = DataFileNames(store, partition, bucket, _APPEND_LEVEL)
        self._files = RollingFileWriter(
            store,
            names,
            store.schema.fields,
            lambda: _AppendContents(store, source, names, self),
            row_count_max=store.options.target_file_row_num if source is FileSource.APPEND else None,
        )

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Appends rows."""
        self._files.write(_table(rows).select(self._columns))


def _table(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    return rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])


class _Contents:
    """What the entry of one file needs to know of its rows, whatever the table."""

    def __init__(self, store: TableStore, level: int, source: FileSource, names: DataFileNames) -> None:
        self._rules = names.format.stats_rules
        self._store = store
        self._level = level
        self._source = source
        self._bounds = ColumnBounds(store.schema.fields)
        given = {} if names.traits.is_changelog else store.options.given
        self._indexes = FileIndexBuilder(store.schema, given)

    def add(self, rows: pa.Table) -> None:
        self._bounds.add(rows)
        self._indexes.add(rows)

    def index(self) -> bytes | None:
        return self._indexes.encode()

    def _described(
        self,
        file_name: str,
        summary: FileSummary,
        modes: list[StatsMode],
        *,
        min_key: bytes,
        max_key: bytes,
        key_stats: SimpleStats,
        sequences: tuple[int, int],
        kind_counts: KindCounts,
    ) -> DataFileMeta:
        schema, bounds = self._store.schema, self._bounds.stats()
        stats = [
            reduce_stats(bounds[field.name], mode, field.type, self._rules)
            for field, mode in zip(schema.fields, modes, strict=True)
        ]
        value_stats, stats_columns = encode_value_stats(
            schema.column_names,
            stats,
            [field.type for field in schema.fields],
            dense=self._store.options.stats_dense_store,
        )
        return DataFileMeta(
            file_name=file_name,
            file_size_bytes=summary.size_bytes,
            row_count=summary.row_count,
            min_key=min_key,
            max_key=max_key,
            key_stats=key_stats,
            value_stats=value_stats,
            min_sequence_number=sequences[0],
            max_sequence_number=sequences[1],
            schema_id=schema.id,
            level=self._level,
            creation_time_ms=self._store.env.creation_time_ms(),
            delete_row_count=sum(kind_counts[kind] for kind in _RETRACT_KINDS),
            file_source=self._source,
            value_stats_cols=stats_columns,
            kind_counts=kind_counts,
        )


class _KeyValueContents(_Contents):
    def __init__(self, store: TableStore, level: int, source: FileSource, names: DataFileNames) -> None:
        super().__init__(store, level, source, names)
        self._keys = store.schema.trimmed_primary_keys
        self._key_modes, self._modes = _key_value_modes(store, level, names)
        self._min_key: bytes | None = None
        self._last_row: pa.Table | None = None
        self._sequences: list[tuple[int, int]] = []
        self._kind_counts = np.zeros(len(RowKind), np.int64)

    def add(self, rows: pa.Table) -> None:
        super().add(rows)
        keys = rows.select(list(self._keys))
        if self._min_key is None:
            self._min_key = self._encode_key(keys.slice(0, 1))
        self._last_row = keys.slice(keys.num_rows - 1)
        sequence = pc.min_max(rows.column(SEQUENCE_NUMBER_COLUMN))
        self._sequences.append((sequence["min"].as_py(), sequence["max"].as_py()))
        for kinds in rows.column(VALUE_KIND_COLUMN).chunks:
            self._kind_counts += np.bincount(kinds.to_numpy(zero_copy_only=False), minlength=len(RowKind))

    def meta(self, file_name: str, summary: FileSummary) -> DataFileMeta:
        assert self._min_key is not None
        assert self._last_row is not None
        types, bounds = self._store.key_types, self._bounds.stats()
        counts = self._kind_counts.tolist()
        key_stats = [
            reduce_stats(bounds[name], mode, data_type, self._rules)
            for name, mode, data_type in zip(self._keys, self._key_modes, types, strict=True)
        ]
        return self._described(
            file_name,
            summary,
            self._modes,
            min_key=self._min_key,
            max_key=self._encode_key(self._last_row),
            key_stats=encode_stats(key_stats, types),
            sequences=(min(low for low, _ in self._sequences), max(high for _, high in self._sequences)),
            kind_counts=(counts[0], counts[1], counts[2], counts[3]),
        )

    def _encode_key(self, row: pa.Table) -> bytes:
        values: list[Any] = [plain_value(row.column(name)[0]) for name in self._keys]
        return encode_row(values, self._store.key_types)


def _key_value_modes(store: TableStore, level: int, names: DataFileNames) -> tuple[list[StatsMode], list[StatsMode]]:
    """Modes of the key columns and of the columns of the table."""
    schema, options, mode, rules = store.schema, store.options, names.traits.stats_mode, names.format.stats_rules
    keys, thin = schema.trimmed_primary_keys, options.thin_mode
    key_columns = [KEY_COLUMN_PREFIX + name for name in keys]
    if rules.has_system_modes:
        of_keys = stats_modes(options, key_columns, level, mode=mode)
        return of_keys, stats_modes(options, schema.column_names, level, keys if thin else (), mode=mode)
    columns = [field.name for field in key_value_fields(schema, thin=thin)]
    modes = dict(zip(columns, stats_modes(options, columns, level, mode=mode, rules=rules), strict=True))
    return [modes[name] for name in (keys if thin else key_columns)], [modes[name] for name in schema.column_names]


class _AppendContents(_Contents):
    def __init__(self, store: TableStore, source: FileSource, names: DataFileNames, numbers: AppendFileWriter) -> None:
        super().__init__(store, _APPEND_LEVEL, source, names)
        self._numbers = numbers

    def meta(self, file_name: str, summary: FileSummary) -> DataFileMeta:
        first_sequence = self._numbers.next_sequence
        self._numbers.next_sequence += summary.row_count
        return self._described(
            file_name,
            summary,
            stats_modes(self._store.options, self._store.schema.column_names, self._level, rules=self._rules),
            min_key=EMPTY_ROW,
            max_key=EMPTY_ROW,
            key_stats=EMPTY_STATS,
            sequences=(first_sequence, first_sequence + summary.row_count - 1),
            kind_counts=(summary.row_count, 0, 0, 0),
        )


class ColumnIndexBuilder(Protocol):
    """Builds one index of one column."""

    def add(self, values: pa.ChunkedArray[Any]) -> None:
        """Takes the next rows."""

    def encode(self) -> bytes | None:
        """The bytes; None where there was no value."""


class FileIndexBuilder:
    """The indexes of one file; of a table without any, nothing."""

    def __init__(self, schema: TableSchema, given: Mapping[str, str]) -> None:
        self._columns: dict[str, dict[str, ColumnIndexBuilder]] = {}
        for index in indexed_columns(given):
            column = schema.by_name.get(index.column)
            if column is None or index.kind not in INDEX_TYPES or not INDEX_TYPES[index.kind](column.type):
                continue
            assert isinstance(column.type, ScalarType)
            self._columns.setdefault(index.column, {})[index.kind] = new_index(index, column.type)

    def add(self, rows: pa.Table) -> None:
        """Takes the next rows."""
        for name, indexes in self._columns.items():
            for index in indexes.values():
                index.add(rows.column(name))

    def encode(self) -> bytes | None:
        """The container of the indexes; None where there are none."""
        if not self._columns:
            return None
        return encode_file_index(
            {name: {kind: index.encode() for kind, index in indexes.items()} for name, indexes in self._columns.items()}
        )


@dataclass(slots=True)
class _Bloom:
    data_type: ScalarType
    items: int
    fpp: float
    _filter: BloomFilterBuilder | None = None

    def add(self, values: pa.ChunkedArray[Any]) -> None:
        for chunk in _present(values):
            if self._filter is None:
                self._filter = BloomFilterBuilder(self.items, self.fpp)
            self._filter.add(value_hashes(chunk, self.data_type))

    def encode(self) -> bytes | None:
        return None if self._filter is None else self._filter.encode()


class _Bitmaps:
    """A bitmap or a range bitmap."""

    def __init__(self, writer: BitmapIndexWriter | RangeBitmapWriter) -> None:
        self._writer = writer

    def add(self, values: pa.ChunkedArray[Any]) -> None:
        for chunk in values.chunks:
            self._writer.add(chunk)

    def encode(self) -> bytes:
        return self._writer.write()


def new_index(index: IndexedColumn, data_type: ScalarType) -> ColumnIndexBuilder:
    """An empty index of a column of this type, which it must take."""
    if index.kind == BLOOM_FILTER:
        return _Bloom(data_type, *bloom_size(index))
    form, size = KeyForm(data_type), block_bytes(index)
    if index.kind == RANGE_BITMAP:
        return _Bitmaps(RangeBitmapWriter(form, size))
    return _Bitmaps(BitmapIndexWriter(form, BLOCK_BYTES if size is None else size))


def _present(values: pa.ChunkedArray[Any]) -> Sequence[pa.Array[Any]]:
    chunks = (chunk.drop_null() if chunk.null_count else chunk for chunk in values.chunks)
    return [chunk for chunk in chunks if len(chunk)]
