"""Writes data and changelog files of primary-key tables, and describes them for the manifest.

Rows come sorted by key, each key once, in changelog files also several times: `_SEQUENCE_NUMBER`, `_VALUE_KIND`, then
the table's columns. The `_KEY_` columns are the key columns once more (the same buffers); thin mode leaves them out.

| of the entry | from |
|---|---|
| min and max key | first and last row, never cut |
| key statistics | bounds of the key columns, cut at 128 |
| value statistics | bounds and null counts by the mode of each column |
| sequence numbers | smallest and largest of the rows |
| delete row count | rows of kind -U and -D, exactly: 0 although there are some would bring deleted rows back |

Source: FORMAT.md §4.2, §6, §7.1.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.codec.binary_row import encode_row
from freshet.storage.codec.stats import encode_stats, encode_value_stats, reduce_stats, stats_modes
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.files.column_bounds import ColumnBounds, plain_value
from freshet.storage.files.data_file_paths import DataFileNames, FileTraits
from freshet.storage.files.parquet_file import ParquetSummary
from freshet.storage.files.parquet_schema import key_value_fields
from freshet.storage.files.rolling_file_writer import RollingFileWriter
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta, FileSource
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import KEY_COLUMN_PREFIX, SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN

_RETRACT_KINDS: Final = pa.array([kind.value for kind in RowKind if kind.is_retract], pa.int8())


class KeyValueFileWriter:
    """Writes one sorted run of a bucket at one level, as one file or several."""

    def __init__(
        self,
        store: TableStore,
        partition: bytes,
        bucket: int,
        level: int,
        source: FileSource,
        schema_id: int | None = None,
        *,
        traits: FileTraits | None = None,
    ) -> None:
        """`schema_id`, where given, must be that of the store; `traits` are those of data files by default."""
        schema = store.schema
        if schema_id is not None and schema_id != schema.id:
            raise InvalidRequestError(f"files are written with schema {schema.id} of the open table, not {schema_id}")
        self._schema = schema
        self._fields = key_value_fields(schema, thin=store.options.thin_mode)
        first_key = schema.trimmed_primary_keys[0]
        names = DataFileNames(store, partition, bucket, level, traits)
        ends_by_rows = source is FileSource.APPEND and not names.traits.is_changelog
        self._files = RollingFileWriter(
            store,
            names,
            self._fields,
            lambda: _KeyValueContents(store, level, source, names.traits),
            delta_columns=(first_key,),
            row_count_max=store.options.target_file_row_num if ends_by_rows else None,
        )

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Appends rows that sort after those written before."""
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        columns = {name: table.column(index) for index, name in enumerate(table.schema.names)}
        for name in self._schema.trimmed_primary_keys:
            columns[KEY_COLUMN_PREFIX + name] = columns[name]
        self._files.write(pa.table({field.name: columns[field.name] for field in self._fields}))

    def close(self) -> list[DataFileMeta]:
        """Makes the files durable and describes them, in key order; none for no rows."""
        return self._files.close()

    def abort(self) -> None:
        """Removes all files of this writer."""
        self._files.abort()


class _KeyValueContents:
    """What the entry of one file needs to know of its rows."""

    def __init__(self, store: TableStore, level: int, source: FileSource, traits: FileTraits) -> None:
        self._store = store
        self._level = level
        self._source = source
        schema, options = store.schema, store.options
        self._keys = schema.trimmed_primary_keys
        mode = traits.stats_mode
        thin = self._keys if options.thin_mode else ()
        self._modes = stats_modes(options, schema.column_names, level, thin, mode=mode)
        self._key_modes = stats_modes(options, [KEY_COLUMN_PREFIX + name for name in self._keys], level, mode=mode)
        self._bounds = ColumnBounds(schema.fields)
        self._min_key: bytes | None = None
        self._last_row: pa.Table | None = None
        self._sequences: list[tuple[int, int]] = []
        self._delete_row_count = 0

    def add(self, rows: pa.Table) -> None:
        self._bounds.add(rows)
        keys = rows.select(list(self._keys))
        if self._min_key is None:
            self._min_key = self._encode_key(keys.slice(0, 1))
        self._last_row = keys.slice(keys.num_rows - 1)
        sequence = pc.min_max(rows.column(SEQUENCE_NUMBER_COLUMN))
        self._sequences.append((sequence["min"].as_py(), sequence["max"].as_py()))
        retracts = pc.sum(pc.is_in(rows.column(VALUE_KIND_COLUMN), value_set=_RETRACT_KINDS))
        self._delete_row_count += retracts.as_py()

    def meta(self, file_name: str, summary: ParquetSummary) -> DataFileMeta:
        schema, options = self._store.schema, self._store.options
        assert self._min_key is not None
        assert self._last_row is not None
        bounds = self._bounds.stats()
        key_types = self._store.key_types
        key_stats = [
            reduce_stats(bounds[name], mode, data_type)
            for name, mode, data_type in zip(self._keys, self._key_modes, key_types, strict=True)
        ]
        types = [field.type for field in schema.fields]
        stats = [
            reduce_stats(bounds[field.name], mode, field.type)
            for field, mode in zip(schema.fields, self._modes, strict=True)
        ]
        value_stats, stats_columns = encode_value_stats(
            schema.column_names, stats, types, dense=options.stats_dense_store
        )
        return DataFileMeta(
            file_name=file_name,
            file_size_bytes=summary.size_bytes,
            row_count=summary.row_count,
            min_key=self._min_key,
            max_key=self._encode_key(self._last_row),
            key_stats=encode_stats(key_stats, key_types),
            value_stats=value_stats,
            min_sequence_number=min(low for low, _ in self._sequences),
            max_sequence_number=max(high for _, high in self._sequences),
            schema_id=schema.id,
            level=self._level,
            creation_time_ms=self._store.env.creation_time_ms(),
            delete_row_count=self._delete_row_count,
            file_source=self._source,
            value_stats_cols=stats_columns,
        )

    def _encode_key(self, row: pa.Table) -> bytes:
        values: list[Any] = [plain_value(row.column(name)[0]) for name in self._keys]
        return encode_row(values, self._store.key_types)
