"""Reads files without system columns: those of append-only tables, and those of primary-key tables that hold each key
once and no retract, so that their rows are the table's.

A filter only leaves out row groups in which no row passes, unless `exact` is asked for.

Source: FORMAT.md §7.3, §7.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.files.data_file_reader import plan_read, read_batches, read_table
from freshet.storage.files.parquet_file import READ_BATCH_ROWS
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.predicate import Predicate


def read_append_file(
    store: TableStore,
    partition: bytes,
    bucket: int,
    file: DataFileMeta,
    columns: Sequence[str],
    row_filter: Predicate | None = None,
    *,
    batch_rows: int = READ_BATCH_ROWS,
    exact: bool = False,
    deleted_rows: Bitmap32 | None = None,
    is_numbered: bool = False,
    use_threads: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Rows in file order and bounded memory; `use_threads` decodes whole row groups side by side."""
    plan = plan_read(
        store,
        partition,
        bucket,
        file,
        columns,
        row_filter,
        exact=exact,
        deleted_rows=deleted_rows,
        is_numbered=is_numbered,
    )
    return read_batches(plan, batch_rows=batch_rows, use_threads=use_threads)


def read_append_table(
    store: TableStore,
    partition: bytes,
    bucket: int,
    file: DataFileMeta,
    columns: Sequence[str],
    row_filter: Predicate | None = None,
    *,
    exact: bool = False,
    deleted_rows: Bitmap32 | None = None,
    use_threads: bool = True,
) -> pa.Table:
    """All rows at once, by the fastest way."""
    plan = plan_read(store, partition, bucket, file, columns, row_filter, exact=exact, deleted_rows=deleted_rows)
    return read_table(plan, use_threads=use_threads)
