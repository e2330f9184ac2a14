"""Tables whose files a test places itself, level by level, without a writer's buffer or compaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.storage.catalogs.claims import FileClaims
from freshet.storage.codec.binary_row_arrays import distinct_rows
from freshet.storage.codec.bucket_function import bucket_ids
from freshet.storage.commit.committer import Committer
from freshet.storage.files.data_file_writer import AppendFileWriter, KeyValueFileWriter
from freshet.storage.io.env import Env
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.merge.engine import merge_function, row_order
from freshet.storage.merge.merge_reader import merge_table
from freshet.storage.merge.row_levels import with_level
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.arrow_types import arrow_schema, fields_from_arrow
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import EMPTY_ROW, DataFileMeta, FileSource
from freshet.storage.model.row_kind import KIND_TEXTS
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN, TableSchema
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.core import CoreOptions
from freshet.storage.paths import TablePaths
from freshet.storage.scan.table_scan import TableScan

Rows = Sequence[Mapping[str, Any]]


def writable(store: TableStore) -> TableStore:
    """The store for a commit of files that a test made itself, whatever writers make of the table's options."""
    given = {key: text for key, text in store.options.given.items() if key != "deletion-vectors.enabled"}
    return replace(store, options=CoreOptions.parse(given, has_primary_key=store.schema.has_primary_key))


class PlacedTable:
    """One table; `place` commits rows as one file per bucket at a level, in the order of the calls."""

    def __init__(
        self,
        folder: Path,
        columns: pa.Schema,
        *,
        keys: Sequence[str] = (),
        partitions: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        env: Env | None = None,
    ) -> None:
        self.env = env or Env(MemoryFileIO())
        self.location = str(folder / "table")
        fields, highest = fields_from_arrow(columns, keys, partitions)
        spelled = {"bucket": "1" if keys else "-1", **(options or {})}
        schema = TableSchema(0, fields, highest, tuple(partitions), tuple(keys), spelled)
        assert FileClaims(self.env.file_io, TablePaths(self.location)).claim_schema(schema)
        self.sequence = 0
        self.identifier = 0

    @property
    def store(self) -> TableStore:
        return open_table_store(self.env, self.location)

    def place(self, rows: Rows | pa.Table, *, level: int = 0) -> Snapshot:
        """Commits the rows; `_ROW_KIND` is +I where a row does not say."""
        store = self.store
        messages = [
            CommitMessage(
                partition,
                bucket,
                store.options.bucket,
                new_files=tuple(self._write(store, partition, bucket, part, level)),
            )
            for partition, bucket, part in self._routed(store, self._key_values(store, rows))
        ]
        self.identifier += 1
        result = Committer(writable(store), "placed").commit(self.identifier, messages)
        return result.snapshots[-1]

    def scan(self, **request: Any) -> TableScan:
        return TableScan(self.store, **request)

    def rows(self, **request: Any) -> list[dict[str, Any]]:
        return self.scan(**request).to_arrow().to_pylist()

    def _key_values(self, store: TableStore, rows: Rows | pa.Table) -> pa.Table:
        columns = arrow_schema(store.schema)
        if isinstance(rows, pa.Table):
            kinds, table = [0] * rows.num_rows, rows.select(columns.names).cast(columns)
        else:
            kinds = [KIND_TEXTS.index(row.get("_ROW_KIND", "+I")) for row in rows]
            table = pa.table(
                {field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in columns}
            )
            table = table.cast(columns)
        numbers = np.arange(self.sequence, self.sequence + table.num_rows)
        self.sequence += table.num_rows
        schema = pa.schema(
            [
                pa.field(SEQUENCE_NUMBER_COLUMN, pa.int64(), nullable=False),
                pa.field(VALUE_KIND_COLUMN, pa.int8(), nullable=False),
                *columns,
            ]
        )
        return pa.table([pa.array(numbers), pa.array(kinds, pa.int8()), *table.columns], schema=schema)

    def _routed(self, store: TableStore, rows: pa.Table) -> list[tuple[bytes, int, pa.Table]]:
        schema, total = store.schema, store.options.bucket
        partitions: list[bytes] = [EMPTY_ROW]
        codes = np.zeros(rows.num_rows, np.int64)
        if schema.partition_keys:
            arrays = [rows.column(name).combine_chunks() for name in schema.partition_keys]
            partitions, codes = distinct_rows(arrays, store.partition_types)
        buckets = np.zeros(rows.num_rows, np.int64)
        if total > 0:
            buckets = bucket_ids([rows.column(name) for name in store.bucket_key], store.bucket_key_types, total)
        routed = []
        for code, partition in enumerate(partitions):
            for bucket in sorted(set(buckets[codes == code].tolist())):
                routed.append((partition, int(bucket), rows.filter(pa.array((codes == code) & (buckets == bucket)))))
        return routed

    def _write(
        self, store: TableStore, partition: bytes, bucket: int, rows: pa.Table, level: int
    ) -> list[DataFileMeta]:
        if not store.schema.has_primary_key:
            appender = AppendFileWriter(store, partition, bucket, FileSource.APPEND, self.sequence - rows.num_rows)
            appender.write(rows.select(list(store.schema.column_names)))
            return appender.close()
        writer = KeyValueFileWriter(store, partition, bucket, level, FileSource.APPEND)
        function = merge_function(store.schema, store.options)
        if function.reads_levels:
            rows = with_level(rows, -1)
        writer.write(merge_table(rows, row_order(store.schema, store.options), function))
        return writer.close()
