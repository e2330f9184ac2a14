"""Joins files of an append table into larger ones, rows in file order; nothing is merged, nothing is dropped.

Sequence numbers of the outputs begin at the smallest of the inputs. Source: MERGING.md §8.2; FORMAT.md §7.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from freshet.storage.files.data_file_reader import read_data_file
from freshet.storage.files.data_file_writer import AppendFileWriter
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta, FileSource

BATCH_ROWS: Final = 16 * 1024


def join_files(store: TableStore, partition: bytes, bucket: int, files: Sequence[DataFileMeta]) -> list[DataFileMeta]:
    """Rewrites the files, in their order, and returns the new ones. On failure nothing is left behind."""
    store.env.reach(CrashPoint.COMPACT_BEFORE_OUTPUT)
    writer = AppendFileWriter(store, partition, bucket, FileSource.COMPACT, files[0].min_sequence_number)
    is_done = False
    try:
        for file in files:
            for batch in read_data_file(
                store, partition, bucket, file, store.schema.column_names, batch_rows=BATCH_ROWS
            ):
                writer.write(batch)
        outputs = writer.close()
        is_done = True
    finally:
        if not is_done:
            writer.abort()
    store.env.reach(CrashPoint.COMPACT_OUTPUT_WRITTEN)
    return outputs
