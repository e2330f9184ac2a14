"""Hands what a commit changes to the log, bucket by bucket, before its messages leave.

| half of the commit | its rows are in | increment goes to |
|---|---|---|
| rows | new files, or changelog files of the producer input | `CommitMessage.log` |
| compaction | changelog files of the producer lookup | `CommitMessage.compact_log` |

A table logs in one half only. Where every kind is logged and where -U are left out: `log.changelog-mode`; where -D are
left out too: `log.ignore-delete`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from freshet.storage.files.data_file_reader import read_data_file
from freshet.storage.logs.writers import ChangeSink
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.row_kind import ROW_KIND_COLUMN, RowKind
from freshet.storage.model.schema import VALUE_KIND_COLUMN
from freshet.storage.model.table_log import LogIncrement
from freshet.storage.write.bucket_writer import BucketWriter


def log_changes(
    store: TableStore, sink: ChangeSink, identifier: int, writers: Mapping[BucketId, BucketWriter]
) -> Mapping[BucketId, LogIncrement]:
    """Logs what the next messages of these writers will change; returns when it is acknowledged."""
    sink.begin(identifier, store.env.now_ms())
    for bucket_id, writer in sorted(writers.items()):
        for emitted, files in zip(writer.emitted(), writer.files_emitted(), strict=True):
            for rows in emitted.tables if emitted.is_complete else _stored(store, bucket_id, files):
                sink.log(*bucket_id, _log_rows(store, rows))
    return sink.finish()


def with_log(messages: Iterable[CommitMessage], logged: Mapping[BucketId, LogIncrement]) -> list[CommitMessage]:
    """The messages with what was logged of their buckets, in the half that it repeats."""
    found = []
    for message in messages:
        increment = logged.get(message.bucket_id)
        if increment is not None and message.compact_changelog_files:
            found.append(replace(message, compact_log=increment))
        else:
            found.append(replace(message, log=increment))
    return found


def _stored(store: TableStore, bucket_id: BucketId, files: Iterable[DataFileMeta]) -> Iterator[pa.RecordBatch]:
    is_keyed = store.schema.has_primary_key
    for file in files:
        yield from read_data_file(store, *bucket_id, file, store.schema.column_names, system_columns=is_keyed)


def _log_rows(store: TableStore, rows: pa.Table | pa.RecordBatch) -> pa.Table:
    """`_ROW_KIND`, then the columns of the table."""
    names = store.schema.column_names
    is_keyed = store.schema.has_primary_key
    kinds = rows.column(VALUE_KIND_COLUMN) if is_keyed else pa.array(np.zeros(rows.num_rows, np.int8))
    found = pa.Table.from_arrays([kinds, *(rows.column(name) for name in names)], names=[ROW_KIND_COLUMN, *names])
    if store.options.logs_before_images or not is_keyed:
        return found
    codes = found.column(0).combine_chunks().to_numpy(zero_copy_only=False)
    if not store.options.log_ignore_delete:
        return found.filter(pa.array(codes != RowKind.UPDATE_BEFORE))
    kept = found.filter(pa.array((codes == RowKind.INSERT) | (codes == RowKind.UPDATE_AFTER)))
    return kept.set_column(0, found.schema.field(0), pa.array(np.zeros(kept.num_rows, np.int8)))
