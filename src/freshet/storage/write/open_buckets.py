"""The buckets that a table writer has open, all upon one snapshot.

A bucket is opened when rows first touch it, from what the process knows of it at the snapshot (`BucketStates`).
`rebase` goes on upon another snapshot: buckets without changes are closed, the others get their state at it.
Where the snapshot has expired before a bucket could be read, all go on upon the latest. Used by one thread.

Threads work on several buckets at once (`work_on`), and beside them on what is made for the same commit. Measured on a
busy machine, 40 commits of 1000 new keys into 1 M: with the index file beside the data file the fastest takes 14 ms and
the median 54 ms, one after the other 20 and 68 ms.

What a commit changes goes to the log, bucket by bucket, before its messages leave (`CommitLog`): as soon as it is
computed, before the files that hold it are encoded and synced. Who follows the log does not wait for those, nor for the
next bucket, and the brokers answer meanwhile.

| half of the commit | its rows are in | increment goes to |
|---|---|---|
| rows | new files, or changelog files of the producer input | `CommitMessage.log` |
| compaction | changelog files of the producer lookup | `CommitMessage.compact_log` |

A table logs in one half only. Where every kind is logged and where -U are left out: `log.changelog-mode`; where -D are
left out too: `log.ignore-delete`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from freshet.storage.exceptions import ConflictError, InvalidRequestError
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.io.removal import undone_on_failure
from freshet.storage.io.spill_file import Scratch
from freshet.storage.logs.log_systems import ChangeSink
from freshet.storage.lookup.lookup_metrics import LookupMetrics
from freshet.storage.merge.merged_table import MergeMetrics
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.row_kind import ROW_KIND_COLUMN, RowKind
from freshet.storage.model.schema import VALUE_KIND_COLUMN
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.table_log import LogIncrement
from freshet.storage.write.bucket_state import BucketState, BucketStates
from freshet.storage.write.bucket_tree import table_rewriter
from freshet.storage.write.bucket_writer import BucketTools, BucketWriter
from freshet.storage.write.bucketing import BucketCounts, BucketRouter, RoutedRows, RowRouter
from freshet.storage.write.dynamic_router import DynamicRouter
from freshet.storage.write.key_value_bucket_writer import KeyValueBucketWriter
from freshet.storage.write.moving_router import MovingRouter
from freshet.storage.write.partition_index import BUCKETS_MAX, WarmIndexes
from freshet.storage.write.postponed_router import PostponedRouter, StagingRouter
from freshet.storage.write.records import AcceptedRows
from freshet.storage.write.unmerged_bucket_writer import AppendBucketWriter, PostponedBucketWriter, Staging

OpenBucket = Callable[[bytes, int, int, BucketState], BucketWriter]
"""Makes the writer of (partition, bucket, total buckets of the partition, state)."""

T = TypeVar("T")

SMALL_COMMIT_BYTES: Final = 1024 * 1024
SMALL_BUCKETS_BYTES: Final = 32 * 1024 * 1024
"""Rows of a commit, and files of the buckets that it changes, up to which one thread does all on a disk: a file takes 2
ms, and threads that share the interpreter take longer. Measured, 42 rows into 2 buckets: 16 ms of processor time with
two threads, 13 with one, by the clock 17 and 15."""


class OpenBuckets:
    """The bucket writers of one table at one schema, by bucket."""

    def __init__(
        self,
        store: TableStore,
        snapshot: Snapshot | None,
        router: RowRouter,
        states: BucketStates,
        open_bucket: OpenBucket,
    ) -> None:
        self._store = store
        self._router = router
        self._states = states
        self._open_bucket = open_bucket
        self.snapshot = snapshot
        """The snapshot that the writers build on."""
        self.writers: dict[BucketId, BucketWriter] = {}
        self.touched: set[BucketId] = set()
        """Every bucket that was ever open."""

    def routed(self, piece: AcceptedRows, executor: Executor | None) -> list[RoutedRows]:
        """The rows by bucket, with a writer open for each; routed again where a partition has another count of buckets
        than was known.
        """
        while True:
            groups = self.at_base(lambda: list(self._router.route(piece, executor)))
            if self._open({group.bucket_id: group.total_buckets for group in groups}):
                return groups

    def checked_total(self, partition: bytes, bucket: int, bucket_count: int | None) -> int:
        """How many buckets the partition has, for rows whose bucket was computed elsewhere, with `bucket_count` of
        them where that is known.

        Raises `ConflictError` where the partition has another number, `InvalidRequestError` for a bucket that it does
        not have.
        """
        total = self.at_base(lambda: self._router.total_buckets(partition))
        if bucket_count is not None and max(1, total) != max(1, bucket_count):
            raise ConflictError(
                f"{self._name_of(partition)} has {total} buckets, and rows for it were routed to {bucket_count}: it "
                "was rescaled while they were on their way. Start the stream again; nothing of them was written",
                path=self._store.location,
            )
        if self._store.options.has_dynamic_buckets and 0 <= bucket < BUCKETS_MAX:
            return total
        if not 0 <= bucket < max(1, total):
            raise InvalidRequestError(
                f"{self._name_of(partition)} has buckets 0 to {max(1, total) - 1}, not {bucket}; route the rows again",
                path=self._store.location,
            )
        return total

    def named(self, partition: bytes, bucket: int, total_buckets: int) -> BucketWriter:
        """The writer of one bucket of a partition with so many."""
        if not self._open({(partition, bucket): total_buckets}):
            self._check_total(partition, total_buckets, self._router.total_buckets(partition))
        return self.writers[partition, bucket]

    def opened(self, buckets: Sequence[BucketId]) -> list[BucketWriter]:
        """Writers of buckets that rows or files put there: their partitions have the count that the files say."""
        for bucket_id, state in self._missing_states(buckets).items():
            self._add(bucket_id, state.total_buckets or self._router.total_buckets(bucket_id[0]), state)
        return [self.writers[bucket_id] for bucket_id in buckets]

    def rebase(self, snapshot: Snapshot | None) -> None:
        """Goes on upon the snapshot, or upon the latest where it has expired."""
        self._store.retry_on_newer(snapshot, self._rebase)

    def at_base(self, read: Callable[[], T]) -> T:
        """What `read` makes of the snapshot; where that has expired, all go on upon the latest, and it reads again."""

        def read_at(snapshot: Snapshot | None) -> T:
            if snapshot != self.snapshot:
                self.rebase(snapshot)
            return read()

        return self._store.retry_on_newer(self.snapshot, read_at)

    def abort(self) -> None:
        """Gives up the rows and files that no message names."""
        writers, self.writers = self.writers, {}
        for writer in writers.values():
            writer.abort()
        self._router.abort()

    def _rebase(self, snapshot: Snapshot | None) -> None:
        self.snapshot = snapshot
        self._router.rebase(snapshot)
        # Buckets without changes are opened again when they are needed: that costs less than to keep them.
        self.writers = {bucket_id: writer for bucket_id, writer in self.writers.items() if writer.has_changes}
        for bucket_id, state in self._states.at(self._store, snapshot, self.writers.keys()).items():
            self._check_total(bucket_id[0], self._router.total_buckets(bucket_id[0]), state.total_buckets)
            self.writers[bucket_id].rebase(state)

    def _open(self, totals: dict[BucketId, int]) -> bool:
        """Opens the writers that are missing; False, and nothing opened, when a partition was not routed rightly."""
        states = self._missing_states(totals)
        counts = {
            bucket_id[0]: found for bucket_id, state in states.items() if (found := state.total_buckets) is not None
        }
        wrong = {
            partition
            for partition, bucket in states
            if counts.get(partition, totals[partition, bucket]) != totals[partition, bucket]
        }
        for partition in wrong:
            if all(taken != partition for taken, _ in self.writers):
                self._router.note(partition, counts[partition])
            self._check_total(partition, self._router.total_buckets(partition), counts[partition])
        if wrong:
            return False
        for bucket_id, state in states.items():
            self._add(bucket_id, totals[bucket_id], state)
        return True

    def _missing_states(self, buckets: Collection[BucketId]) -> dict[BucketId, BucketState]:
        """The states of those buckets that have no writer."""

        def states() -> dict[BucketId, BucketState]:
            missing = [bucket_id for bucket_id in buckets if bucket_id not in self.writers]
            return self._states.at(self._store, self.snapshot, missing) if missing else {}

        return self.at_base(states)

    def _add(self, bucket_id: BucketId, total_buckets: int, state: BucketState) -> None:
        self.writers[bucket_id] = self._open_bucket(*bucket_id, total_buckets, state)
        self.touched.add(bucket_id)

    def _check_total(self, partition: bytes, total: int, found: int | None) -> None:
        """Raises `ConflictError` when rows were routed for another number of buckets than the files have."""
        if found is not None and found != total:
            chosen = self._store.options.has_postponed_buckets
            what = "another writer gave it that number" if chosen else "it was rescaled"
            raise ConflictError(
                f"{self._name_of(partition)} was written with {found} buckets, rows for it were routed to {total}: "
                f"{what} meanwhile. Nothing of them was committed; start the stream again, or abort and write "
                "them again",
                path=self._store.location,
            )

    def _name_of(self, partition: bytes) -> str:
        path = self._store.partition_path(partition)
        return f"partition {path} of {self._store.location}" if path else self._store.location


def row_router(store: TableStore, snapshot: Snapshot | None, warm: WarmIndexes, *, waits: bool) -> RowRouter:
    """The router that the table's options ask for; `warm` are the indexes that the process keeps of the table; `waits`
    where rows are to wait for their bucket."""
    if store.moves_rows:
        return MovingRouter(store, snapshot)
    if store.options.has_dynamic_buckets:
        return DynamicRouter(store, snapshot, warm)
    if store.options.has_postponed_buckets:
        return StagingRouter(store) if waits else PostponedRouter(store, snapshot)
    return BucketRouter.of(store, BucketCounts(store, snapshot))


def bucket_writers(
    tools: BucketTools,
    scratch: Scratch,
    metrics: MergeMetrics,
    lookup_metrics: LookupMetrics,
    staging: Staging | None = None,
) -> OpenBucket:
    """The maker of bucket writers of a table; they share these tools. `staging` says who writes rows that wait."""
    if staging is not None:
        return partial(PostponedBucketWriter, tools, staging)
    if not tools.store.schema.has_primary_key:
        return partial(AppendBucketWriter, tools)
    return partial(KeyValueBucketWriter, tools, table_rewriter(tools.store, scratch, metrics, lookup_metrics))


def is_small_commit(store: TableStore, router: RowRouter, writers: Sequence[BucketWriter]) -> bool:
    """Whether one thread makes the files of these buckets sooner than several: not where they go to a store, or with
    an index beside them."""
    if store.env.is_remote or not isinstance(router, BucketRouter):
        return False
    rows_bytes = sum(each.memory_bytes + each.spilled_bytes for each in writers)
    return rows_bytes <= SMALL_COMMIT_BYTES and sum(each.file_bytes for each in writers) <= SMALL_BUCKETS_BYTES


BucketWork = Callable[[BucketWriter, Executor | None], None]


def work_on(writers: Sequence[BucketWriter], work: BucketWork, executor: Executor | None) -> None:
    """Several buckets go side by side; a single one may use the threads within."""
    if executor is None or len(writers) == 1:
        for writer in writers:
            work(writer, executor)
        return
    futures = [executor.submit(work, writer, None) for writer in writers]
    failures = [error for future in futures if (error := future.exception()) is not None]
    if failures:
        raise failures[0]


@contextmanager
def made_beside(
    executor: Executor | None, make: Callable[[], T], undo: Callable[[T], None]
) -> Iterator[Callable[[], T]]:
    """Has a value made by another thread while the block runs, which takes it at its end; where the block fails, what
    was made is undone. Without an executor it is made when it is taken."""
    if executor is None:
        yield make
        return
    coming = executor.submit(make)
    with undone_on_failure(lambda: _undo(coming, undo)):
        yield coming.result


def _undo(coming: Future[T], undo: Callable[[T], None]) -> None:
    if not coming.cancel() and coming.exception() is None:
        undo(coming.result())


class CommitLog:
    """Logs what one commit changes, where its writer writes a log; buckets may be worked on by several threads."""

    def __init__(self, store: TableStore, sink: ChangeSink | None, identifier: int | None) -> None:
        """Begins an attempt."""
        self._store = store
        self._sink = sink
        self._lock = threading.Lock()
        if sink is not None:
            assert identifier is not None, "a commit that is logged has a number"
            sink.begin(identifier, store.env.now_ms())

    def follow(self, writer: BucketWriter) -> None:
        """Has what the next message of this writer will change logged as it is computed: readers wait for no file."""
        if self._sink is not None:
            writer.log_to(partial(self._log, writer.bucket_id))

    def add(self, writer: BucketWriter) -> None:
        """Logs what is not logged yet of what the next message of this writer will change."""
        if self._sink is None:
            return
        writer.log_to(None)
        for emitted, files in zip(writer.emitted(), writer.files_emitted(), strict=True):
            stored = rows_from(_stored(self._store, writer.bucket_id, files), emitted.logged)
            for rows in emitted.tables if emitted.is_complete else stored:
                self._log(writer.bucket_id, rows)

    def _log(self, bucket_id: BucketId, rows: pa.Table | pa.RecordBatch) -> None:
        assert self._sink is not None
        logged = _log_rows(self._store, rows)
        with self._lock:
            self._sink.log(*bucket_id, logged)

    def finish(self) -> Mapping[BucketId, LogIncrement]:
        """Waits until all of it is acknowledged."""
        return {} if self._sink is None else self._sink.finish()


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


def rows_from(batches: Iterator[pa.RecordBatch], first: int) -> Iterator[pa.RecordBatch]:
    """The rows of these batches without so many of the first."""
    for batch in batches:
        passed = min(first, batch.num_rows)
        first -= passed
        if passed < batch.num_rows:
            yield batch.slice(passed)


def _stored(store: TableStore, bucket_id: BucketId, files: Iterable[DataFileMeta]) -> Iterator[pa.RecordBatch]:
    is_keyed = store.schema.has_primary_key
    for file in files:
        yield from DataFileRead(store, *bucket_id, file, store.schema.column_names, system_columns=is_keyed).batches()


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
