"""Writes data files of append-only tables, and describes them for the manifest.

Files hold the table's columns and nothing else, in the order the rows came. Sequence numbers exist in the manifest
only: they count rows, so that max - min + 1 is the number of rows of a file. Keys and key statistics are empty, the
delete row count is 0. Source: FORMAT.md §7.4.
"""

from __future__ import annotations

import pyarrow as pa

from freshet.storage.codec.stats import encode_value_stats, reduce_stats, stats_modes
from freshet.storage.files.column_bounds import ColumnBounds
from freshet.storage.files.data_file_paths import DataFileNames
from freshet.storage.files.parquet_file import ParquetSummary
from freshet.storage.files.rolling_file_writer import RollingFileWriter
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, FileSource

_LEVEL = 0


class AppendFileWriter:
    """Writes rows of one bucket, as one file or several; `next_sequence` is the number of the next row."""

    def __init__(
        self, store: TableStore, partition: bytes, bucket: int, source: FileSource, first_sequence: int = 0
    ) -> None:
        """`first_sequence` is the number of the first row: after the bucket's largest, or 0 without buckets."""
        self.next_sequence = first_sequence
        self._store = store
        self._source = source
        self._columns = list(store.schema.column_names)
        self._files = RollingFileWriter(
            store,
            DataFileNames(store, partition, bucket, _LEVEL),
            store.schema.fields,
            self._new_contents,
            row_count_max=store.options.target_file_row_num if source is FileSource.APPEND else None,
        )

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Appends rows."""
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        self._files.write(table.select(self._columns))

    def close(self) -> list[DataFileMeta]:
        """Makes the files durable and describes them, in the order written; none for no rows."""
        return self._files.close()

    def abort(self) -> None:
        """Removes all files of this writer."""
        self._files.abort()

    def _new_contents(self) -> _AppendContents:
        return _AppendContents(self, self._store, self._source)


class _AppendContents:
    def __init__(self, numbers: AppendFileWriter, store: TableStore, source: FileSource) -> None:
        self._numbers = numbers
        self._store = store
        self._source = source
        self._bounds = ColumnBounds(store.schema.fields)

    def add(self, rows: pa.Table) -> None:
        self._bounds.add(rows)

    def meta(self, file_name: str, summary: ParquetSummary) -> DataFileMeta:
        schema, options = self._store.schema, self._store.options
        first_sequence = self._numbers.next_sequence
        self._numbers.next_sequence += summary.row_count
        bounds = self._bounds.stats()
        modes = stats_modes(options, schema.column_names, _LEVEL)
        stats = [
            reduce_stats(bounds[field.name], mode, field.type) for field, mode in zip(schema.fields, modes, strict=True)
        ]
        value_stats, stats_columns = encode_value_stats(
            schema.column_names, stats, [field.type for field in schema.fields], dense=options.stats_dense_store
        )
        return DataFileMeta(
            file_name=file_name,
            file_size_bytes=summary.size_bytes,
            row_count=summary.row_count,
            min_key=EMPTY_ROW,
            max_key=EMPTY_ROW,
            key_stats=EMPTY_STATS,
            value_stats=value_stats,
            min_sequence_number=first_sequence,
            max_sequence_number=first_sequence + summary.row_count - 1,
            schema_id=schema.id,
            level=_LEVEL,
            creation_time_ms=self._store.env.creation_time_ms(),
            delete_row_count=0,
            file_source=self._source,
            value_stats_cols=stats_columns,
        )
