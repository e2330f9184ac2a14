"""Writes the changelog files of one flush or one compaction of a bucket.

A changelog file is a key-value file with a name, a codec and statistics of its own (`files.data_file_paths`). Only the
changelog manifests of its snapshot name it. Entries say FileSource APPEND, as those of Apache Paimon do, and the level
that the changes went to: 0 for `input`, the output level of the compaction for the others.

Source: FORMAT.md §7.5.
"""

from __future__ import annotations

import pyarrow as pa

from freshet.storage.files.data_file_paths import changelog_file_traits
from freshet.storage.files.data_file_writer import KeyValueFileWriter
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta, FileSource


class ChangelogFileWriter:
    """Writes rows in the order given; no rows, no file."""

    def __init__(self, store: TableStore, partition: bytes, bucket: int, level: int) -> None:
        self._env = store.env
        traits = changelog_file_traits(store.options, level)
        self._files = KeyValueFileWriter(store, partition, bucket, level, FileSource.APPEND, traits=traits)

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Appends rows with their system columns."""
        if rows.num_rows:
            self._files.write(rows)

    def close(self) -> list[DataFileMeta]:
        """Makes the files durable and describes them."""
        files = self._files.close()
        if files:
            self._env.reach(CrashPoint.CHANGELOG_WRITTEN)
        return files

    def abort(self) -> None:
        """Removes all files of this writer."""
        self._files.abort()
