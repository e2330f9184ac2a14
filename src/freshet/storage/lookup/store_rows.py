"""The rows that stores are made of: read from a data file, or in memory because they were just written to one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from freshet.storage.files.data_file_reader import read_data_file
from freshet.storage.files.file_fields import SYSTEM_FIELDS
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.schema import TableSchema

SECTIONS_MAX: Final = 24
"""Column groups of a store: each is read from the data file by itself."""


@dataclass(frozen=True, slots=True)
class FileRows:
    """`StoreRows` of a data file: the system columns come first."""

    table: TableStore
    partition: bytes
    bucket: int
    file: DataFileMeta

    def sections(self) -> Iterator[Iterator[pa.RecordBatch]]:
        """See `StoreRows`."""
        source = (self.table, self.partition, self.bucket, self.file)
        yield read_data_file(*source, (), system_columns=True)
        for names in _groups(self.table.schema):
            yield read_data_file(*source, names)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See `StoreRows`."""
        names = self.table.schema.column_names
        yield from read_data_file(self.table, self.partition, self.bucket, self.file, names, system_columns=True)


@dataclass(frozen=True, slots=True)
class RowsInMemory:
    """The same of rows in memory."""

    rows: pa.Table
    schema: TableSchema

    def sections(self) -> Iterator[Iterator[pa.RecordBatch]]:
        """See `StoreRows`."""
        yield iter(self.rows.select([field.name for field in SYSTEM_FIELDS]).to_batches())
        for names in _groups(self.schema):
            yield iter(self.rows.select(names).to_batches())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See `StoreRows`."""
        yield from self.rows.select(store_schema(self.schema).names).to_batches()


def store_schema(schema: TableSchema) -> pa.Schema:
    """The columns of a store."""
    return arrow_schema((*SYSTEM_FIELDS, *schema.fields))


def _groups(schema: TableSchema) -> Iterator[tuple[str, ...]]:
    names = schema.column_names
    width = -(-len(names) // SECTIONS_MAX)
    for start in range(0, len(names), width):
        yield tuple(names[start : start + width])
