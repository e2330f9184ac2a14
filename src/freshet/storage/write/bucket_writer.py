"""The writer of one bucket: what the table writer asks of it, and what it does in either kind of table.

A bucket writer is used by one thread at a time. Its life: `write` … `flush` → `compact_due` → `take_message`, again
and again; `rebase` when the bucket changed under it; `abort` at the end.

How far above what is live it numbers its rows follows from what became of the last commits (`Contention`). Alone a
writer numbers them without a gap. Once another writer has overtaken one of its commits, the next ones leave room below
their rows for what others commit meanwhile: more for more rows, which take longer to write (again), and at random, so
that of two equal writers each is overtaken half as often.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from typing import Final

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.exceptions import ConflictError
from freshet.storage.files.data_file_paths import delete_data_file
from freshet.storage.files.file_columns import SmallFiles
from freshet.storage.io.env import Env
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_facts import CompactionReason
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta, FileId
from freshet.storage.write.bucket_state import BucketState, RestoreBuckets
from freshet.storage.write.commit_compaction import CompactionSpeed, CompactionTime
from freshet.storage.write.increment import BucketLog, EmittedRows, Increment, Logged
from freshet.storage.write.records import Kinds

CALM_COMMITS: Final = 16
"""Commits that were not overtaken, after which the writer takes itself to be alone."""
ROOM_PER_ROW: Final = 1024


class Contention:
    """What one writer knows of others; used by one thread."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._commits_left = 0

    def note(self, *, was_overtaken: bool) -> None:
        """Another commit was made."""
        self._commits_left = CALM_COMMITS if was_overtaken else max(0, self._commits_left - 1)

    def room(self, row_count: int) -> int:
        """Numbers to leave free below so many rows."""
        if not self._commits_left:
            return 0
        return int(row_count * ROOM_PER_ROW * (1 + self._env.jitter()))


class BucketTools(Frozen):
    """What the bucket writers of one table share; `restore` gives the states of buckets at a snapshot."""

    store: TableStore
    restore: RestoreBuckets
    may_spill: Callable[[], bool]
    speed: CompactionSpeed
    contention: Contention
    small_files: SmallFiles
    logged: Logged = Logged.NOTHING


class BucketWriter(ABC):
    """The writer of one bucket; by default one that compacts nothing."""

    def __init__(
        self, tools: BucketTools, partition: bytes, bucket: int, total_buckets: int, *, is_ordered: bool
    ) -> None:
        """`is_ordered`: compactions make sense only upon those before them."""
        self._tools = tools
        self._store = tools.store
        self.bucket_id = (partition, bucket)
        self._partition = partition
        self._bucket = bucket
        self._total_buckets = total_buckets
        self._increment = Increment(is_ordered=is_ordered)
        self._live_end = 0
        """The number after the largest that is live, where rows are numbered."""
        self._headroom = 0
        self._borrowed: set[str] = set()
        """Names of files that the caller of `take_back` removes."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Rows held in memory."""

    @property
    def spilled_bytes(self) -> int:
        """Rows on scratch disk."""
        return 0

    @property
    def file_bytes(self) -> int:
        """Bytes of the files that compactions may take."""
        return sum(file.file_size_bytes for file in self._files())

    @property
    @abstractmethod
    def has_changes(self) -> bool:
        """True when there are rows or files that no message names yet."""

    @abstractmethod
    def write(self, rows: pa.Table, kinds: Kinds | None) -> None:
        """Takes rows in input order."""

    @abstractmethod
    def own_memory(self) -> None:
        """Copies rows that share memory with rows of other buckets."""

    @abstractmethod
    def release_memory(self) -> None:
        """Puts rows aside: to scratch disk, or into files of the table."""

    @abstractmethod
    def flush(self, executor: Executor | None = None) -> None:
        """Makes files of all rows."""

    def compact(
        self, *, full: bool, executor: Executor | None = None, reason: CompactionReason = CompactionReason.FORCED
    ) -> bool:
        """One round of compaction on what was flushed, in full for that reason; False when there was nothing to do."""
        return False

    def compact_files(
        self,
        inputs: frozenset[FileId],
        output_level: int,
        reason: CompactionReason,
        executor: Executor | None = None,
    ) -> bool:
        """One round over exactly these files; False, and nothing done, when one of them is gone."""
        return False

    def repair(self, executor: Executor | None = None) -> bool:
        """Mends levels whose files overlap; False where there are none."""
        return False

    @property
    def must_wait(self) -> bool:
        """True while the bucket has more sorted runs than writing may leave behind (back-pressure)."""
        return False

    @abstractmethod
    def compact_due(self, executor: Executor | None = None, *, time: CompactionTime | None = None) -> None:
        """The compaction that is due after a flush; with a `time`, what is required and what it allows."""

    def log_to(self, log: BucketLog | None) -> None:
        """From here on changes go to the log as soon as they are computed, before their files are complete; None: they
        wait for `emitted`."""
        self._increment.log = log

    def emitted(self) -> tuple[EmittedRows, EmittedRows]:
        """What is to be logged since the last message: of rows written, and of compactions."""
        return self._increment.emitted()

    def files_emitted(self) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
        """The files that hold the same rows."""
        append = self._increment.append
        written = append.new_files if self._tools.logged is Logged.ROWS else append.changelog
        return list(written), [file for each in self._increment.compact.rounds for file in each.changelog]

    def take_back(self, message: CommitMessage, headroom: int) -> None:
        """Takes the rows of a message that was not committed; its compaction is the caller's to remove.

        Their files stay until the caller removes them, also where the rows are renumbered: `headroom` is how far above
        what is live, for others who go on committing.
        """
        files = (*message.new_files, *message.changelog_files)
        self._borrowed = {file.file_name for file in files}
        self._headroom = headroom
        self._increment.add_new_files(message.new_files, message.changelog_files)
        self._increment.append.emitted = EmittedRows(is_complete=False)

    def renumber(self) -> None:
        """Gives rows of files that no message names numbers above everything live, where they are not.

        Compactions of the increment are given up: their inputs have the old numbers.
        """
        files = self._increment.append.new_files
        if not files or min(file.min_sequence_number for file in files) >= self._live_end:
            return
        self._delete(self._increment.compact.give_up())
        first = self._live_end + self._headroom
        self._shift(first - min(file.min_sequence_number for file in files))

    @abstractmethod
    def _shift(self, by: int) -> None:
        """Adds to the sequence numbers of the new files."""

    def take_message(self) -> CommitMessage:
        """Hands out everything since the last message; files it names are no longer this writer's to delete."""
        return self._increment.take_message(self._partition, self._bucket, self._total_buckets)

    @abstractmethod
    def rebase(self, state: BucketState) -> None:
        """Continues on another state of the bucket; changes not handed out stay where they still fit."""

    @abstractmethod
    def abort(self) -> None:
        """Deletes the files that no message names, and forgets the rows."""

    def _delete(self, files: Iterable[DataFileMeta]) -> None:
        for file in files:
            if file.file_name not in self._borrowed:
                delete_data_file(self._store, self._partition, self._bucket, file)

    def _files(self) -> Sequence[DataFileMeta]:
        """The files of the bucket as this writer sees them; none where it never compacts."""
        return ()

    @property
    def has_newer_schema(self) -> bool:
        """True when a file was written with a later schema than the one the table was opened with: compactions would
        lose its columns."""
        return self._has_newer_schema(self._files())

    def _has_newer_schema(self, files: Iterable[DataFileMeta]) -> bool:
        return any(file.schema_id > self._store.schema.id for file in files)

    def _check_schema_ids(self, files: Iterable[DataFileMeta]) -> None:
        """Refused where compaction would lose columns that the schema of this writer does not have."""
        if self._has_newer_schema(files):
            raise ConflictError(
                f"{self._store.location} was altered since it was opened at schema {self._store.schema.id}, and holds "
                "files of a later one: compact it again (with rows that wait for a commit, after it)",
                table=self._store.location,
            )

    def _was_overtaken(self, inputs: Iterable[DataFileMeta]) -> bool:
        """Asked when inputs of a compaction could not be read: False if all of them should be there.

        If another writer has compacted inputs away (they may have expired since), it goes on at the latest state.
        """
        state = self._store.at_latest(lambda latest: self._tools.restore(latest, [self.bucket_id]))[self.bucket_id]
        there = {file.file_id for file in (*state.data_files, *self._increment.own_files())}
        if all(file.file_id in there for file in inputs):
            return False
        self.rebase(state)
        return True
