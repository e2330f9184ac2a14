"""Rows of commit messages that were refused, written again upon what is committed now.

    renumbered   other commits have overtaken the rows (`commit.conflict`): they go into new files numbered above what
                 is live now, and are compacted, looked up and logged upon that
    reassigned   another writer has added keys to a table with dynamic buckets (`commit.change_fit`): each key gets the
                 bucket that the indexes of today give it. Rows whose bucket is another one now move to files there,
                 rows of a file whose keys all stay remain where they are; then everything is renumbered

Files are split between buckets as they are, without merging: what a file has of a key is one row, in one bucket before
and after. The changelog files of the input go the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

import numpy as np
import pyarrow as pa

from freshet.storage.codec.binary_row_arrays import row_hashes
from freshet.storage.files.data_file_paths import delete_data_file
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.files.data_file_writer import ChangelogFileWriter, KeyValueFileWriter
from freshet.storage.io.removal import undone_on_failure
from freshet.storage.logs.log_systems import ChangeSink
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta, FileSource
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.choices import DYNAMIC_BUCKET
from freshet.storage.write.bucket_state import process_states
from freshet.storage.write.commit_compaction import CompactionLimit
from freshet.storage.write.dynamic_router import DynamicRouter
from freshet.storage.write.partition_index import Int16Array
from freshet.storage.write.task_writer import TaskWriter


def renumbered(
    store: TableStore,
    messages: Sequence[CommitMessage],
    base: Snapshot | None,
    *,
    identifier: int,
    headroom: int,
    parallelism: int = 2,
    sink: ChangeSink | None = None,
    limit: CompactionLimit | None = None,
) -> list[CommitMessage]:
    """Messages with the same rows upon the snapshot `base`; what the messages given name stays.

    `headroom` is how far above the largest live number the rows go. With a `sink` the changes are logged as another
    attempt at the commit `identifier`.
    """
    with closing(TaskWriter(store, base_snapshot=base, parallelism=parallelism, sink=sink)) as writer:
        writer.take_back(messages, headroom=headroom)
        return writer.prepare_commit(identifier, limit=limit)


_FilesByBucket = dict[BucketId, list[DataFileMeta]]


def reassigned(
    store: TableStore,
    messages: Sequence[CommitMessage],
    base: Snapshot | None,
    *,
    identifier: int,
    parallelism: int = 2,
) -> list[CommitMessage]:
    """Messages with the same rows upon the snapshot `base`; what the messages given name stays."""
    router = DynamicRouter(store, base, process_states(store).indexes)
    with closing(_Moves(store, router)) as moves:
        for message in messages:
            moves.add(message)
        moved = moves.messages()
        made = renumbered(store, moved, base, identifier=identifier, headroom=0, parallelism=parallelism)
        kept = {file.file_name for each in made for file in (*each.new_files, *each.changelog_files)}
        index = list(router.prepare_commit())
        moves.keep(kept)
    return [*made, *index]


class _Moves:
    """Files of rows by the bucket that they belong to now; `close` removes those it has written and need not keep."""

    def __init__(self, store: TableStore, router: DynamicRouter) -> None:
        self._store = store
        self._router = router
        self._rows: _FilesByBucket = {}
        self._changelogs: _FilesByBucket = {}
        self._written: list[tuple[BucketId, DataFileMeta]] = []

    def add(self, message: CommitMessage) -> None:
        """Takes the rows of a message that was not committed."""
        for file in message.new_files:
            self._move(message, file, self._rows, is_changelog=False)
        for file in message.changelog_files:
            self._move(message, file, self._changelogs, is_changelog=True)

    def messages(self) -> list[CommitMessage]:
        """One for each bucket that has rows now."""
        return [
            CommitMessage(
                *bucket_id,
                DYNAMIC_BUCKET,
                new_files=tuple(self._rows.get(bucket_id, ())),
                changelog_files=tuple(self._changelogs.get(bucket_id, ())),
            )
            for bucket_id in sorted(self._rows.keys() | self._changelogs.keys())
        ]

    def keep(self, names: set[str]) -> None:
        """These files are named by messages now."""
        self._written = [(bucket_id, file) for bucket_id, file in self._written if file.file_name not in names]

    def close(self) -> None:
        self._router.abort()
        for bucket_id, file in self._written:
            delete_data_file(self._store, *bucket_id, file)

    def _move(
        self,
        message: CommitMessage,
        file: DataFileMeta,
        into: dict[BucketId, list[DataFileMeta]],
        *,
        is_changelog: bool,
    ) -> None:
        partition = message.partition
        if self._buckets(message, file) == {message.bucket}:
            into.setdefault(message.bucket_id, []).append(file)
            return
        writers: dict[int, KeyValueFileWriter] = {}
        with undone_on_failure(lambda: _abort(writers.values())):
            for rows in self._read(message, file, self._store.schema.column_names):
                buckets = self._assigned(partition, rows)
                for bucket in np.unique(buckets).tolist():
                    if bucket not in writers:
                        level_0 = (self._store, partition, bucket, 0)
                        writers[bucket] = (
                            ChangelogFileWriter(*level_0)
                            if is_changelog
                            else KeyValueFileWriter(*level_0, FileSource.APPEND)
                        )
                    writers[bucket].write(rows.filter(pa.array(buckets == bucket)))
            for bucket, writer in writers.items():
                files = writer.close()
                self._written += [((partition, bucket), each) for each in files]
                into.setdefault((partition, bucket), []).extend(files)

    def _buckets(self, message: CommitMessage, file: DataFileMeta) -> set[int]:
        """Buckets of today that have rows of a file."""
        keys = self._store.schema.trimmed_primary_keys
        assigned = (self._assigned(message.partition, rows) for rows in self._read(message, file, keys))
        return {bucket for buckets in assigned for bucket in np.unique(buckets).tolist()}

    def _assigned(self, partition: bytes, rows: pa.Table | pa.RecordBatch) -> Int16Array:
        columns = [rows.column(name) for name in self._store.schema.trimmed_primary_keys]
        return self._router.assign(row_hashes(columns, self._store.key_types), [partition], None)

    def _read(
        self, message: CommitMessage, file: DataFileMeta, columns: Sequence[str]
    ) -> Iterator[pa.Table | pa.RecordBatch]:
        read = DataFileRead(self._store, *message.bucket_id, file, columns, system_columns=True)
        return (rows for rows in read.batches() if rows.num_rows)


def _abort(writers: Iterable[KeyValueFileWriter]) -> None:
    for writer in writers:
        writer.abort()
