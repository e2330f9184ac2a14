"""Writes the rows of one task: checks and routes them, shares memory between buckets, works on several at once.

Writers are a ladder: a session (`table_session`) commits what one task wrote; a task makes files for a commit of its
own or another process (`table_engine`), by a writer for each bucket (`bucket_writer`).

    writer = TaskWriter(store, base_snapshot=store.snapshots.latest())
    writer.write(rows)                      any number of times
    writer.rebase(latest_snapshot)          so that rows are numbered after what others have committed meanwhile
    messages = writer.prepare_commit(7)     files are complete; the committer makes them visible
    writer.rebase(own_snapshot)             continue on what is committed now

Buckets are opened upon the base snapshot when rows first touch them (`OpenBuckets`). After `prepare_commit` the writer
goes on with its own files as if they were committed; `rebase` puts that right when another writer changed the bucket or
the commit's compaction was dropped.

Memory: the rows of all buckets together stay within `write-buffer-size`; then the largest buckets are spilled first,
until half of it is free, and the rows of the others are copied: those of many small buckets are slices of one gather,
and a single slice keeps all of it. One thread of one process uses a writer, which has `parallelism` threads of its own.

Files that no returned message names are deleted by `abort` and `close`, all others are the committer's. When a call
fails after rows were taken, the writer takes no more: its rows may be gone, so only `abort` and `close` go on.

Source: MERGING.md §1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.compact.joint_changes import emits_jointly, emits_jointly_by_lookup, waiting_buckets
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import CrashPoint
from freshet.storage.io.spill_file import Scratch
from freshet.storage.logs.log_systems import ChangeSink
from freshet.storage.lookup.lookup_metrics import LookupMetrics
from freshet.storage.merge.merged_table import MergeMetrics
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_facts import CompactionReason
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import FileId
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.write.bucket_state import BucketStates, process_states
from freshet.storage.write.bucket_writer import BucketTools, BucketWriter, Contention
from freshet.storage.write.bucketing import RowRouter, partition_codes, routed_rows
from freshet.storage.write.commit_compaction import (
    CompactionLimit,
    CompactionTime,
    behind_full_compaction,
    is_full_compaction_due,
)
from freshet.storage.write.increment import Logged, logged_rows
from freshet.storage.write.open_buckets import (
    CommitLog,
    OpenBuckets,
    bucket_writers,
    is_small_commit,
    made_beside,
    row_router,
    with_log,
    work_on,
)
from freshet.storage.write.postponed_router import KeptInput
from freshet.storage.write.records import AcceptedRows, Kinds, LoneUpdates, record_rules
from freshet.storage.write.unmerged_bucket_writer import Staging

PIECE_BYTES_MAX: Final = 64 * 1024 * 1024
PIECE_BYTES_MIN: Final = 256 * 1024
"""Rows are routed in pieces of an eighth of the write buffer, within these bounds."""

BUCKET_BYTES_MAX: Final = 1024 * 1024 * 1024
"""A bucket's rows are put aside beyond this in any case: a column of strings has 32-bit offsets."""


class TaskWriter:
    """Writer of one task into one table at one schema; `close` it whatever happens."""

    def __init__(
        self,
        store: TableStore,
        *,
        base_snapshot: Snapshot | None,
        parallelism: int = 2,
        router: RowRouter | None = None,
        states: BucketStates | None = None,
        sink: ChangeSink | None = None,
        staging: Staging | None = None,
        kept: KeptInput | None = None,
    ) -> None:
        """`router` takes the place of the one that the options ask for, `states` of those of the process. `sink` is
        the log, if this writer writes it. `staging` says who writes where rows are to wait for their bucket
        (`bucket=-2`). `kept` gets the rows that `write` accepts."""
        store.check_writable()
        self._store = store
        self._parallelism = max(1, parallelism)
        self._process_id = os.getpid()
        self._pool: ThreadPoolExecutor | None = None
        self._scratch = Scratch(store.env)
        self.merge_metrics = MergeMetrics()
        self.lookup_metrics = LookupMetrics()
        self._rules = record_rules(store)
        self._routed_rules = record_rules(store, are_moved=True) if store.moves_rows else self._rules
        self._lone_updates = LoneUpdates(store)
        states = states or process_states(store)
        self._router = router or row_router(store, base_snapshot, states.indexes, waits=staging is not None)
        logged = Logged.NOTHING if sink is None else logged_rows(store.options)
        self.contention = Contention(store.env)
        restore = partial(states.at, store)
        tools = BucketTools(store, restore, self._may_spill, states.speed, self.contention, states.small_files, logged)
        open_bucket = bucket_writers(tools, self._scratch, self.merge_metrics, self.lookup_metrics, staging)
        self._buckets = OpenBuckets(store, base_snapshot, self._router, states, open_bucket)
        self._sink = sink
        self._kept = kept
        self._due_for_full: set[BucketId] = set()
        self._is_broken = False
        self.waited_buckets = 0
        """Buckets that the last `prepare_commit` had to compact whatever the limit: back-pressure."""
        self.budget_spent_ms = 0.0
        """Time that the last `prepare_commit` has taken of its limit."""

    @property
    def base_snapshot(self) -> Snapshot | None:
        """The snapshot this writer builds on."""
        return self._buckets.snapshot

    @property
    def base_snapshot_id(self) -> int | None:
        """Its id; None before the first."""
        return None if self.base_snapshot is None else self.base_snapshot.id

    @property
    def is_broken(self) -> bool:
        """True after a call that failed with rows taken, which may be lost, until `abort`."""
        return self._is_broken

    def write(self, data: object) -> int:
        """Takes rows (`input_rows`) and returns how many were accepted: rows of ignored kinds are not.

        `_ROW_KIND` is an optional column. The memory of the rows must not be changed before the next `prepare_commit`:
        they are not always copied. Raises `InvalidRequestError` naming column and row before any row is taken; when a
        later batch of a stream is refused, the writer may be used again after `abort` only.
        """
        self._check_process()
        tables = self._rules.input_tables(data)
        accepted = self._accepted(next(tables))
        with self._unbroken():
            row_count = self._take(accepted)
            for rows in tables:
                row_count += self._take(self._accepted(rows))
        return row_count

    def _accepted(self, rows: pa.Table) -> AcceptedRows:
        accepted = self._rules.accept(rows)
        self._lone_updates.note(accepted)
        return accepted

    def _take_kept(self) -> None:
        """Writes the rows that the router has kept back."""
        for accepted in self._buckets.at_base(self._router.kept_rows):
            self._take(accepted)

    def _take(self, accepted: AcceptedRows) -> int:
        if self._kept is not None:
            self._kept.add(accepted)
        return self.take(accepted)

    def take(self, accepted: AcceptedRows) -> int:
        """Takes rows that were accepted before."""
        for piece in self._pieces(accepted):
            groups = self._buckets.routed(piece, self._executor())
            for group in groups:
                self._buckets.writers[group.bucket_id].write(group.rows, group.kinds)
            del groups
            self._keep_within_memory()
        return int(accepted.rows.num_rows)

    def write_bucket(
        self, partition: bytes, bucket: int, data: pa.Table | pa.RecordBatch, *, bucket_count: int | None = None
    ) -> int:
        """Takes rows that are known to belong to one bucket, and returns how many were accepted.

        `bucket_count` is the number of buckets that the bucket was computed for; without it, that of the partition.
        Raises `InvalidRequestError` where the partition has another number, and for a bucket that it does not have.
        """
        self._check_process()
        total = self._buckets.checked_total(partition, bucket, bucket_count)
        accepted = self._routed_rules.accept(data)
        self._lone_updates.note(accepted)
        with self._unbroken():
            for piece in self._pieces(accepted):
                if piece.rows.num_rows:
                    self._buckets.named(partition, bucket, total).write(piece.rows, piece.kinds)
                    self._keep_within_memory()
        return int(accepted.rows.num_rows)

    def write_stored(self, rows: pa.Table, kinds: Kinds | None = None) -> None:
        """Takes rows that the table holds already, in its columns, as they are."""
        self._check_process()
        with self._unbroken():
            self._take(AcceptedRows(rows, kinds))

    def write_routed(self, rows: pa.Table, buckets: npt.NDArray[np.integer], *, bucket_count: int) -> int:
        """Takes rows whose buckets are known, one number a row, and returns how many were accepted.

        `bucket_count` is the number of buckets that they were computed for. Raises `InvalidRequestError` where a
        partition has another: its keys would be in two buckets.
        """
        if not rows.num_rows:
            return 0
        partitions, codes = partition_codes(rows, self._store.schema)
        totals = [bucket_count] * len(partitions)
        return sum(
            self.write_bucket(each.partition, each.bucket, each.rows, bucket_count=bucket_count)
            for each in routed_rows(AcceptedRows(rows, None), partitions, codes, buckets, totals)
        )

    def compact(self, *, full: bool) -> None:
        """Flushes and compacts now, also in write-only tables, the buckets that this writer ever wrote to; the results
        go into the next commit messages. Not `full`: one round, where the picking rule asks for it. Where changes of
        all buckets belong together (`compact.joint_changes`), those that wait for theirs are compacted too.
        """
        self.compact_buckets(sorted(self._buckets.touched | self._waiting()), full=full)

    def _waiting(self) -> set[BucketId]:
        if not emits_jointly(self._store):
            return set()
        return self._buckets.at_base(lambda: waiting_buckets(self._store, self._buckets.snapshot))

    def compact_buckets(
        self,
        buckets: Collection[BucketId],
        *,
        full: bool,
        reason: CompactionReason = CompactionReason.FORCED,
        may_start: Callable[[BucketId], bool] = lambda _: True,
        on_end: Callable[[BucketId], None] = lambda _: None,
    ) -> None:
        """The same for the buckets named, in this order; `reason` is why, in full.

        `may_start` is called before each bucket is begun, `on_end` after it, by the thread that works on it.
        """
        self._check_process()

        def work(writer: BucketWriter, executor: Executor | None) -> None:
            if may_start(writer.bucket_id):
                writer.flush(executor)
                writer.compact(full=full, executor=executor, reason=reason)
                on_end(writer.bucket_id)

        with self._unbroken():
            work_on(self._buckets.opened(list(buckets)), work, self._executor())

    def compact_files(
        self,
        bucket: BucketId,
        inputs: frozenset[FileId],
        output_level: int,
        reason: CompactionReason = CompactionReason.FORCED,
    ) -> None:
        """One round over exactly these files of one bucket; nothing where one of them is gone."""
        self._check_process()
        with self._unbroken():
            (writer,) = self._buckets.opened([bucket])
            writer.compact_files(inputs, output_level, reason, self._executor())

    def repair_buckets(self, buckets: Collection[BucketId], on_end: Callable[[BucketId], None]) -> None:
        """Merges levels of these buckets whose files overlap (`merge.overlaps`)."""
        self._check_process()

        def work(writer: BucketWriter, executor: Executor | None) -> None:
            writer.repair(executor)
            on_end(writer.bucket_id)

        with self._unbroken():
            work_on(self._buckets.opened(list(buckets)), work, self._executor())

    def prepare_commit(
        self, identifier: int | None = None, *, limit: CompactionLimit | None = None, covers_table: bool = False
    ) -> list[CommitMessage]:
        """Makes files of all rows, compacts as the options ask, and returns one message per changed bucket.

        `full-compaction.delta-commits` = n compacts every bucket that this writer wrote since the last time in full
        when the identifier is a multiple of n, or is not given; with `covers_table` every bucket that anybody has
        written since its last full compaction, which is not for writers that share the buckets of one commit. Likewise
        buckets whose changes belong with those of this commit (`compact.joint_changes`).
        A `limit` leaves to others what is not required and would take too long (`commit_compaction`).
        """
        self._check_process()
        self._lone_updates.check()
        is_full = is_full_compaction_due(self._store.options, identifier)
        time = None if limit is None else CompactionTime(limit)
        with self._unbroken():
            self._take_kept()
        changed = {bucket_id for bucket_id, writer in self._buckets.writers.items() if writer.has_changes}
        self._due_for_full |= changed if self._store.options.full_compaction_delta_commits is not None else set()

        def work(writer: BucketWriter, executor: Executor | None) -> None:
            log.follow(writer)
            writer.flush(executor)
            writer.renumber()
            if not is_full:
                writer.compact_due(executor, time=time)
            elif not writer.has_newer_schema:  # else the next commit does it, in that schema
                writer.compact(full=True, executor=executor, reason=CompactionReason.FULL_BY_SCHEDULE)

        chosen = changed
        if is_full:
            chosen = chosen | self._due_for_full
            if covers_table:
                chosen |= self._buckets.at_base(lambda: behind_full_compaction(self._store, self._buckets.snapshot))
        elif covers_table and emits_jointly_by_lookup(self._store) and not self._store.options.compacts_elsewhere:
            chosen = chosen | self._waiting()
        with self._unbroken():
            writers = self._buckets.opened(sorted(chosen))
            threads = None if is_small_commit(self._store, self._router, writers) else self._executor()
            log = CommitLog(self._store, self._sink, identifier)
            with made_beside(threads, self._router.prepare_commit, self._discard) as prepared:
                work_on(writers, work, threads)
                routed = prepared()
            if is_full:
                self._due_for_full.clear()
            for _, writer in sorted(self._buckets.writers.items()):
                log.add(writer)
            logged = log.finish()
            self._store.env.reach(CrashPoint.WRITE_PREPARED)
        self.waited_buckets = 0 if time is None else time.waited_buckets
        self.budget_spent_ms = 0.0 if time is None else time.spent_ms
        messages = with_log(self.take_messages(), logged)
        return [*messages, *(message for message in routed if not message.is_empty)]

    def take_messages(self) -> list[CommitMessage]:
        """The files made since the last message, bucket by bucket; rows that are still buffered stay for the next."""
        base_id = self.base_snapshot_id or 0
        messages = [writer.take_message() for _, writer in sorted(self._buckets.writers.items())]
        if self._store.options.numbers_rows:
            messages = [
                replace(message, numbered_at=base_id) if message.new_files and message.bucket >= 0 else message
                for message in messages
            ]
        return [message for message in messages if not message.is_empty]

    def take_back(self, messages: Iterable[CommitMessage], *, headroom: int) -> None:
        """Takes the rows of messages that were not committed because others were numbered as high: the next ones have
        them numbered above what is live now, and `headroom` more.

        The files that the messages name stay; the committer of the next messages removes those that they do not name.
        """
        self._check_process()
        with self._unbroken():
            for message in messages:
                bucket = self._buckets.named(message.partition, message.bucket, message.total_buckets)
                bucket.take_back(message, headroom)

    def rebase(self, snapshot: Snapshot | None) -> None:
        """Continues on another snapshot, usually the one just committed.

        Rows and files not handed out yet are kept; a compaction of files that are gone meanwhile is given up. Where
        the snapshot has expired, the writer goes on upon the latest.
        """
        self._check_process()
        self._buckets.rebase(snapshot)

    def abort(self) -> None:
        """Gives up all rows and files that no message names; the writer may be used again, on the same snapshot."""
        if self._process_id != os.getpid():
            return  # a forked child: threads, files and scratch space are the parent's
        if self._sink is not None:
            self._sink.abort()
        self._due_for_full.clear()
        self._lone_updates.clear()
        self._is_broken = False
        self._buckets.abort()
        self._scratch.release()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def close(self) -> None:
        """Ends the writer; rows and files that no message names are gone."""
        self.abort()

    @contextmanager
    def _unbroken(self) -> Iterator[None]:
        """What happens inside may lose rows when it fails; nothing of the kind may be done again after that."""
        if self._is_broken:
            raise InvalidRequestError(
                f"this writer of {self._store.location} failed before and may have lost rows; abort it, then write all "
                "rows since the last commit again",
                path=self._store.location,
            )
        self._is_broken = True
        with self._store.naming_dropped_table():
            yield
        self._is_broken = False

    def _check_process(self) -> None:
        if self._process_id != os.getpid():
            raise InvalidRequestError(
                f"this writer of {self._store.location} was opened by process {self._process_id} and is used by the "
                f"forked process {os.getpid()}, which has none of its threads; open a writer in each process"
            )

    def _pieces(self, accepted: AcceptedRows) -> Iterable[AcceptedRows]:
        budget = min(PIECE_BYTES_MAX, max(PIECE_BYTES_MIN, self._store.options.write_buffer_size_bytes // 8))
        return accepted.pieces(budget)

    def _keep_within_memory(self) -> None:
        limit = self._store.options.write_buffer_size_bytes
        sizes = [writer.memory_bytes for writer in self._buckets.writers.values()]
        used = sum(sizes)
        if used <= limit and max(sizes, default=0) <= BUCKET_BYTES_MAX:
            return
        chosen: list[BucketWriter] = []
        for writer in sorted(self._buckets.writers.values(), key=lambda each: each.memory_bytes, reverse=True):
            if used <= limit // 2 and writer.memory_bytes <= BUCKET_BYTES_MAX:
                break
            used -= writer.memory_bytes
            chosen.append(writer)
        work_on(chosen, lambda writer, _: writer.release_memory(), self._executor())
        for writer in self._buckets.writers.values():
            writer.own_memory()

    def _may_spill(self) -> bool:
        options = self._store.options
        if not options.write_buffer_spillable:
            return False
        spilled = sum(writer.spilled_bytes for writer in self._buckets.writers.values())
        return spilled < options.write_buffer_spill_max_disk_size_bytes

    def _discard(self, routed: Sequence[CommitMessage]) -> None:
        """Removes the index files of messages that will not be returned."""
        names = [file.file_name for message in routed for file in message.new_index_files]
        self._store.env.file_io.delete_all([self._store.paths.index_file(name) for name in names])

    def _executor(self) -> Executor | None:
        if self._parallelism == 1:
            return None
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._parallelism, thread_name_prefix="freshet-write")
        return self._pool
