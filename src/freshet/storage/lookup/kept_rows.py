"""The rows that stores are made of: those of a data file as it is written, or as it is read.

`KeptStore` is written next to a data file of a compaction, whatever the size of that: the rows are at hand, and to read
them again costs as much as the store. Nothing depends on a store: a disk that does not take it ends the store, not the
compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from freshet.storage.exceptions import StorageError
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.files.file_columns import SYSTEM_FIELDS, StoredColumns
from freshet.storage.lookup.lookup_store import StoreWriter
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.schema import TableSchema


def store_schema(schema: TableSchema) -> pa.Schema:
    """The columns of a store: the system columns come first."""
    return arrow_schema((*SYSTEM_FIELDS, *schema.fields))


def rows_of_file(table: TableStore, partition: bytes, bucket: int, file: DataFileMeta) -> Iterator[pa.Table]:
    """The rows of a data file with the columns of its store."""
    names = table.schema.column_names
    for batch in DataFileRead(table, partition, bucket, file, names, system_columns=True).batches():
        yield pa.Table.from_batches([batch])


class KeptStore:
    """A `FileCompanion`: the store of a data file, made as the file is written."""

    def __init__(
        self,
        schema: TableSchema,
        file_name: str,
        writer: StoreWriter,
        on_published: Callable[[], None],
        on_error: Callable[[StorageError], None],
    ) -> None:
        """`on_error` is called at most once; nothing is kept from then on."""
        self._columns = StoredColumns((*SYSTEM_FIELDS, *schema.fields), file_name)
        self._writer: StoreWriter | None = writer
        self._on_published = on_published
        self._on_error = on_error

    def add(self, rows: pa.Table) -> None:
        """Appends rows, as reading the file will give them."""
        if self._writer is None:
            return
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        try:
            self._writer.add(self._columns.table(columns, rows.num_rows))
        except StorageError as error:
            self._give_up(error)

    def finish(self) -> None:
        """The file is complete, and so is its store."""
        if self._writer is None:
            return
        try:
            self._writer.publish()
        except StorageError as error:
            self._give_up(error)
        else:
            self._on_published()
            self._writer = None

    def abort(self) -> None:
        """Removes what is not published."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.discard()

    def _give_up(self, error: StorageError) -> None:
        self.abort()
        self._on_error(error)
