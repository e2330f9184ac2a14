"""What the table writer asks of the writer of one bucket, whatever the kind of table.

A bucket writer is used by one thread at a time. Its life: `write` … `flush` → `compact_due` → `take_message`, again
and again; `rebase` when the bucket changed under it; `abort` at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Protocol

import pyarrow as pa

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.metadata.live_files import BucketId
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.write.bucket_state import BucketState, RestoreBuckets
from freshet.storage.write.compaction_limit import CompactionTime
from freshet.storage.write.records import Kinds
from freshet.storage.write.told_rows import ToldRows

FileId = tuple[str, int]
"""(name, level) of a file of the bucket."""


class BucketWriter(Protocol):
    """Writer of one bucket."""

    @property
    def memory_bytes(self) -> int:
        """Rows held in memory."""
        ...

    @property
    def has_changes(self) -> bool:
        """True when there are rows or files that no message names yet."""
        ...

    def write(self, rows: pa.Table, kinds: Kinds | None) -> None:
        """Takes rows in input order."""
        ...

    def own_memory(self) -> None:
        """Copies rows that share memory with rows of other buckets."""
        ...

    def release_memory(self) -> None:
        """Puts rows aside: to scratch disk, or into files of the table."""
        ...

    def flush(self, executor: Executor | None = None) -> None:
        """Makes files of all rows."""
        ...

    def compact(self, *, full: bool, executor: Executor | None = None) -> bool:
        """One round of compaction on what was flushed; False when there was nothing to do."""
        ...

    def compact_files(self, inputs: frozenset[FileId], output_level: int, executor: Executor | None = None) -> bool:
        """One round over exactly these files; False, and nothing done, when one of them is gone."""
        ...

    @property
    def must_wait(self) -> bool:
        """True while the bucket has more sorted runs than writing may leave behind (back-pressure)."""
        ...

    def compact_due(self, executor: Executor | None = None, *, time: CompactionTime | None = None) -> None:
        """The compaction that is due after a flush; with a `time`, what is required and what it allows."""
        ...

    def told(self) -> tuple[ToldRows, ToldRows]:
        """What is to be logged since the last message: of rows written, and of compactions."""
        ...

    def files_told(self) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
        """The files in which the same rows stand."""
        ...

    def take_message(self) -> CommitMessage:
        """Hands out everything since the last message; files it names are no longer this writer's to delete."""
        ...

    def rebase(self, state: BucketState) -> None:
        """Continues on another state of the bucket; changes not handed out stay where they still fit."""
        ...

    def abort(self) -> None:
        """Deletes the files that no message names, and forgets the rows."""
        ...


def has_newer_schema(store: TableStore, files: Iterable[DataFileMeta]) -> bool:
    """True when a file was written with a later schema than the one the table was opened with."""
    return any(file.schema_id > store.schema.id for file in files)


def check_schema_ids(store: TableStore, files: Iterable[DataFileMeta]) -> None:
    """Raises `InvalidRequestError` where compaction would lose columns that the schema of this writer does not have."""
    if has_newer_schema(store, files):
        raise InvalidRequestError(
            f"{store.location} was opened at schema {store.schema.id} and holds files of a later one; open the table "
            "again to compact it"
        )


def state_if_overtaken(
    restore: RestoreBuckets,
    store: TableStore,
    bucket: BucketId,
    inputs: Iterable[DataFileMeta],
    own: Iterable[DataFileMeta],
) -> BucketState | None:
    """Asked when inputs of a compaction could not be read: the latest state of the bucket if somebody else has
    compacted inputs away (they may have expired since), None if all of them should be there.

    `own` are the files that this writer has not handed out yet.
    """
    state = restore(store.snapshots.latest(), [bucket])[bucket]
    there = {(file.file_name, file.level) for file in (*state.data_files, *own)}
    return None if all((file.file_name, file.level) in there for file in inputs) else state
