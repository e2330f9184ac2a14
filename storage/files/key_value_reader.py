"""Reads data files of primary-key tables: `_SEQUENCE_NUMBER`, `_VALUE_KIND`, then the columns asked for.

Rows come as the file has them: sorted by key, retracts included. Keys are the key columns; `_KEY_` columns are never
read. A filter only leaves out row groups in which no row passes, unless `exact` is asked for: rows of an overlapping
section must not be dropped by anything but their key.

Source: FORMAT.md §7.1, §7.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.files.data_file_reader import plan_read, read_batches, read_table
from freshet.storage.files.parquet_file import READ_BATCH_ROWS
from freshet.storage.files.parquet_schema import SYSTEM_FIELDS
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.predicate import Predicate


def read_key_value_file(
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
    """Rows in key order and bounded memory: a page per column, and the batch.

    `use_threads` decodes whole row groups side by side: faster, for a file that is read alone.
    """
    plan = plan_read(
        store,
        partition,
        bucket,
        file,
        columns,
        row_filter,
        system_fields=SYSTEM_FIELDS,
        exact=exact,
        deleted_rows=deleted_rows,
        is_numbered=is_numbered,
    )
    return read_batches(plan, batch_rows=batch_rows, use_threads=use_threads)


def read_key_value_table(
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
    plan = plan_read(
        store,
        partition,
        bucket,
        file,
        columns,
        row_filter,
        system_fields=SYSTEM_FIELDS,
        exact=exact,
        deleted_rows=deleted_rows,
    )
    return read_table(plan, use_threads=use_threads)
