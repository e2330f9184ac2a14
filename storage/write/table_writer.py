"""Writes one table: checks and routes rows, shares memory between buckets, works on several buckets at once.

    writer = TableWriter(store, base_snapshot=store.snapshots.latest())
    writer.write(rows)                      any number of times
    writer.rebase(latest_snapshot)          so that rows are numbered after what others have committed meanwhile
    messages = writer.prepare_commit(7)     files are complete; the committer makes them visible
    writer.rebase(own_snapshot)             continue on what is committed now

Buckets are restored from the base snapshot when rows first touch them, from what the process knows of them
(`BucketStates`). After `prepare_commit` the writer goes on with its own files as if they were committed; `rebase` puts
that right when another writer changed the bucket or the commit's compaction gave way.

Memory: the rows of all buckets together stay within `write-buffer-size`; then the largest buckets are spilled first,
until half of it is free, and the rows of the others are copied: those of many small buckets are slices of one gather,
and a single slice keeps all of it. A writer is used by one thread of one process, and uses `parallelism` threads of its
own.

Files that no returned message names are deleted by `abort` and `close`, all others are the committer's. When a call
fails after rows were taken, the writer takes no more: its rows may be gone, so only `abort` and `close` go on.

Source: MERGING.md §1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

import pyarrow as pa

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import CrashPoint
from freshet.storage.io.spill_file import Scratch
from freshet.storage.logs.writers import ChangeSink
from freshet.storage.lookup.lookup_metrics import LookupMetrics
from freshet.storage.merge.merged_table import MergeMetrics
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import FileId
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.table_log import LogIncrement
from freshet.storage.options.core import CoreOptions
from freshet.storage.write.bucket_state import BucketState, BucketStates, process_states
from freshet.storage.write.bucket_writer import BucketTools, BucketWriter
from freshet.storage.write.bucketing import RoutedRows, RowRouter
from freshet.storage.write.compaction_limit import CompactionLimit, CompactionTime
from freshet.storage.write.increment import Logged, logged_rows
from freshet.storage.write.logged_changes import log_changes, with_log
from freshet.storage.write.records import AcceptedRows
from freshet.storage.write.write_timings import WriteTimings
from freshet.storage.write.writer_factory import bucket_writers, record_rules, row_router

T = TypeVar("T")

PIECE_BYTES_MAX: Final = 64 * 1024 * 1024
PIECE_BYTES_MIN: Final = 256 * 1024
"""Rows are routed in pieces of an eighth of the write buffer, within these bounds."""

BUCKET_BYTES_MAX: Final = 1024 * 1024 * 1024
"""A bucket's rows are put aside beyond this in any case: a column of strings has 32-bit offsets."""


class TableWriter:
    """Writer of one table at one schema."""

    def __init__(
        self,
        store: TableStore,
        *,
        base_snapshot: Snapshot | None,
        parallelism: int = 2,
        router: RowRouter | None = None,
        states: BucketStates | None = None,
        sink: ChangeSink | None = None,
    ) -> None:
        """`router` takes the place of the one that the options ask for, `states` of those of the process. `sink` is
        the log, if this writer writes it."""
        store.check_writable()
        self._store = store
        self._snapshot = base_snapshot
        self._parallelism = max(1, parallelism)
        self._process_id = os.getpid()
        self._pool: ThreadPoolExecutor | None = None
        self._scratch = Scratch(store.env)
        self.timings = WriteTimings()
        self.merge_metrics = MergeMetrics()
        self.lookup_metrics = LookupMetrics()
        self._rules = record_rules(store)
        self._router = router or row_router(store, self._snapshot)
        self._states = states or process_states(store)
        logged = Logged.NOTHING if sink is None else logged_rows(store.options)
        tools = BucketTools(store, self._restore, self._may_spill, self.timings, self._states.speed, logged)
        self._open_bucket = bucket_writers(tools, self._scratch, self.merge_metrics, self.lookup_metrics)
        self._sink = sink
        self._writers: dict[BucketId, BucketWriter] = {}
        self._touched: set[BucketId] = set()
        self._due_for_full: set[BucketId] = set()
        self._is_broken = False
        self.waited_buckets = 0
        """Buckets that the last `prepare_commit` had to compact whatever the limit: back-pressure."""

    @property
    def base_snapshot(self) -> Snapshot | None:
        """The snapshot this writer builds on."""
        return self._snapshot

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
        with self.timings.step("route"):
            return self._rules.accept(rows)

    def _take(self, accepted: AcceptedRows) -> int:
        for piece in self._pieces(accepted):
            groups = self._routed(piece)
            for group in groups:
                self._writers[group.partition, group.bucket].write(group.rows, group.kinds)
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
        total = self._at_base(lambda: self._router.total_buckets(partition))
        if bucket_count is not None and max(1, total) != max(1, bucket_count):
            raise InvalidRequestError(
                f"{self._name_of(partition)} has {total} buckets, and rows for it were routed to {bucket_count}: it "
                "was rescaled while they were on their way. Start the stream again; nothing of them was written",
                path=self._store.location,
            )
        if not 0 <= bucket < max(1, total):
            raise InvalidRequestError(
                f"{self._name_of(partition)} has buckets 0 to {max(1, total) - 1}, not {bucket}; route the rows again",
                path=self._store.location,
            )
        accepted = self._rules.accept(data)
        with self._unbroken():
            for piece in self._pieces(accepted):
                if piece.rows.num_rows:
                    if not self._open({(partition, bucket): total}):
                        self._check_total(partition, total, self._router.total_buckets(partition))
                    self._writers[partition, bucket].write(piece.rows, piece.kinds)
                    self._keep_within_memory()
        return int(accepted.rows.num_rows)

    def compact(self, *, full: bool) -> None:
        """Flushes and compacts now, also in write-only tables, the buckets that this writer ever wrote to; the results
        go into the next commit messages. Not `full`: one round, where the picking rule asks for it.
        """
        self.compact_buckets(sorted(self._touched), full=full)

    def compact_buckets(
        self,
        buckets: Collection[BucketId],
        *,
        full: bool,
        may_start: Callable[[BucketId], bool] = lambda _: True,
        on_end: Callable[[BucketId], None] = lambda _: None,
    ) -> None:
        """The same for the buckets named, in this order.

        `may_start` is asked before each bucket is begun, `on_end` told after it, by the thread that works on it.
        """
        self._check_process()

        def work(writer: BucketWriter, executor: Executor | None) -> None:
            if may_start(writer.bucket_id):
                writer.flush(executor)
                writer.compact(full=full, executor=executor)
                on_end(writer.bucket_id)

        with self._unbroken():
            self._on_buckets(self._opened(list(buckets)), work)

    def compact_files(self, bucket: BucketId, inputs: frozenset[FileId], output_level: int) -> None:
        """One round over exactly these files of one bucket; nothing where one of them is gone."""
        self._check_process()
        with self._unbroken():
            (writer,) = self._opened([bucket])
            writer.compact_files(inputs, output_level, self._executor())

    def prepare_commit(
        self, identifier: int | None = None, *, limit: CompactionLimit | None = None, covers_table: bool = False
    ) -> list[CommitMessage]:
        """Makes files of all rows, compacts as the options ask, and returns one message per changed bucket.

        `full-compaction.delta-commits` = n compacts every bucket that this writer wrote since the last time in full
        when the identifier is a multiple of n, or is not given; with `covers_table` every bucket that anybody has
        written since its last full compaction, which is not for writers that share the buckets of one commit.
        A `limit` leaves to others what is not required and would take too long (`compaction_limit`).
        """
        self._check_process()
        is_full = is_full_compaction_due(self._store.options, identifier)
        time = None if limit is None else CompactionTime(limit)
        changed = {bucket_id for bucket_id, writer in self._writers.items() if writer.has_changes}
        self._due_for_full |= changed if self._store.options.full_compaction_delta_commits is not None else set()

        def work(writer: BucketWriter, executor: Executor | None) -> None:
            writer.flush(executor)
            if is_full:
                writer.compact(full=True, executor=executor)
            else:
                writer.compact_due(executor, time=time)

        chosen = changed
        if is_full:
            chosen = chosen | self._due_for_full
            chosen |= self._at_base(self._behind_full_compaction) if covers_table else set()
        with self._unbroken():
            self._on_buckets(self._opened(sorted(chosen)), work)
            routed = self._router.prepare_commit()
            if is_full:
                self._due_for_full.clear()
            logged = self._log(identifier)
            self._store.env.reach(CrashPoint.WRITE_PREPARED)
        self.waited_buckets = 0 if time is None else time.waited_buckets
        messages = with_log(self.take_messages(), logged)
        return [*messages, *(message for message in routed if not message.is_empty)]

    def _log(self, identifier: int | None) -> Mapping[BucketId, LogIncrement]:
        """Has the changes of the coming messages logged and acknowledged, where this writer writes a log."""
        if self._sink is None:
            return {}
        assert identifier is not None, "a commit that is logged has a number"
        with self.timings.step("log"):
            return log_changes(self._store, self._sink, identifier, self._writers)

    def take_messages(self) -> list[CommitMessage]:
        """The files made since the last message, bucket by bucket; rows that are still buffered stay for the next."""
        messages = [writer.take_message() for _, writer in sorted(self._writers.items())]
        return [message for message in messages if not message.is_empty]

    def rebase(self, snapshot: Snapshot | None) -> None:
        """Continues on another snapshot, usually the one just committed.

        Rows and files not handed out yet are kept; a compaction of files that are gone meanwhile is given up. Where
        the snapshot has expired, the writer goes on upon the latest.
        """
        self._check_process()
        self._store.at_or_after(snapshot, self._rebase)

    def _rebase(self, snapshot: Snapshot | None) -> None:
        self._snapshot = snapshot
        self._router.rebase(snapshot)
        # Buckets without changes are opened again when they are needed: that costs less than to keep them.
        self._writers = {bucket_id: writer for bucket_id, writer in self._writers.items() if writer.has_changes}
        for bucket_id, state in self._states.at(self._store, snapshot, self._writers.keys()).items():
            self._check_total(bucket_id[0], self._router.total_buckets(bucket_id[0]), state.total_buckets)
            self._writers[bucket_id].rebase(state)

    def _at_base(self, read: Callable[[], T]) -> T:
        """What `read` makes of the base snapshot; where that has expired, the writer goes on upon the latest."""

        def read_at(snapshot: Snapshot | None) -> T:
            if snapshot != self._snapshot:
                self.rebase(snapshot)
            return read()

        return self._store.at_or_after(self._snapshot, read_at)

    def _behind_full_compaction(self) -> set[BucketId]:
        return behind_full_compaction(self._store, self._snapshot)

    def abort(self) -> None:
        """Gives up all rows and files that no message names; the writer may be used again, on the same snapshot."""
        if self._process_id != os.getpid():
            return  # a forked child: threads, files and scratch space are the parent's
        writers, self._writers = self._writers, {}
        if self._sink is not None:
            self._sink.abort()
        self._due_for_full.clear()
        self._is_broken = False
        for writer in writers.values():
            writer.abort()
        self._router.abort()
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
        with self._store.told_if_dropped():
            yield
        self._is_broken = False

    def _routed(self, piece: AcceptedRows) -> list[RoutedRows]:
        """The piece by bucket, with a writer open for each; routed again where a partition has another count of buckets
        than was known.
        """
        while True:
            with self.timings.step("route"):
                groups = self._at_base(lambda: list(self._router.route(piece, self._executor())))
            if self._open({group.bucket_id: group.total_buckets for group in groups}):
                return groups

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
            if all(taken != partition for taken, _ in self._writers):
                self._router.note(partition, counts[partition])
            self._check_total(partition, self._router.total_buckets(partition), counts[partition])
        if wrong:
            return False
        for bucket_id, state in states.items():
            self._writers[bucket_id] = self._open_bucket(*bucket_id, totals[bucket_id], state)
            self._touched.add(bucket_id)
        return True

    def _opened(self, buckets: Sequence[BucketId]) -> list[BucketWriter]:
        """Writers of buckets that rows or files put there: their partitions have the count that the files say."""
        for bucket_id, state in self._missing_states(buckets).items():
            total = state.total_buckets or self._router.total_buckets(bucket_id[0])
            self._writers[bucket_id] = self._open_bucket(*bucket_id, total, state)
            self._touched.add(bucket_id)
        return [self._writers[bucket_id] for bucket_id in buckets]

    def _missing_states(self, buckets: Collection[BucketId]) -> dict[BucketId, BucketState]:
        """The states of those buckets that have no writer."""

        def states() -> dict[BucketId, BucketState]:
            missing = [bucket_id for bucket_id in buckets if bucket_id not in self._writers]
            return self._states.at(self._store, self._snapshot, missing) if missing else {}

        return self._at_base(states)

    def _restore(self, snapshot: Snapshot | None, buckets: Collection[BucketId]) -> dict[BucketId, BucketState]:
        return self._states.at(self._store, snapshot, buckets)

    def _check_total(self, partition: bytes, total: int, found: int | None) -> None:
        """Raises `InvalidRequestError` when rows were routed for another number of buckets than the files have."""
        if found is not None and found != total:
            raise InvalidRequestError(
                f"{self._name_of(partition)} was written with {found} buckets, rows for it were routed to {total}; "
                "abort, open the table again and write them again"
            )

    def _name_of(self, partition: bytes) -> str:
        path = self._store.partition_path(partition)
        return f"partition {path} of {self._store.location}" if path else self._store.location

    def _check_process(self) -> None:
        if self._process_id != os.getpid():
            raise InvalidRequestError(
                f"this writer of {self._store.location} was opened by process {self._process_id} and is used by the "
                f"forked process {os.getpid()}, which has none of its threads; open a writer in each process"
            )

    def _pieces(self, accepted: AcceptedRows) -> Iterable[AcceptedRows]:
        rows, kinds = accepted.rows, accepted.kinds
        budget = min(PIECE_BYTES_MAX, max(PIECE_BYTES_MIN, self._store.options.write_buffer_size_bytes // 8))
        size = rows.nbytes
        if size <= budget:
            yield accepted
            return
        step = max(1, rows.num_rows * budget // size)
        for start in range(0, rows.num_rows, step):
            part_kinds = None if kinds is None else kinds[start : start + step]
            yield AcceptedRows(rows.slice(start, step), part_kinds)

    def _keep_within_memory(self) -> None:
        limit = self._store.options.write_buffer_size_bytes
        sizes = [writer.memory_bytes for writer in self._writers.values()]
        used = sum(sizes)
        if used <= limit and max(sizes, default=0) <= BUCKET_BYTES_MAX:
            return
        chosen: list[BucketWriter] = []
        for writer in sorted(self._writers.values(), key=lambda each: each.memory_bytes, reverse=True):
            if used <= limit // 2 and writer.memory_bytes <= BUCKET_BYTES_MAX:
                break
            used -= writer.memory_bytes
            chosen.append(writer)
        self._on_buckets(chosen, lambda writer, _: writer.release_memory())
        for writer in self._writers.values():
            writer.own_memory()

    def _may_spill(self) -> bool:
        options = self._store.options
        if not options.write_buffer_spillable:
            return False
        spilled = sum(writer.spilled_bytes for writer in self._writers.values())
        return spilled < options.write_buffer_spill_max_disk_size_bytes

    def _on_buckets(
        self, writers: Sequence[BucketWriter], work: Callable[[BucketWriter, Executor | None], None]
    ) -> None:
        """Several buckets go side by side; a single one may use the threads within."""
        executor = self._executor()
        if executor is None or len(writers) == 1:
            for writer in writers:
                work(writer, executor)
            return
        futures = [executor.submit(work, writer, None) for writer in writers]
        failures = [error for future in futures if (error := future.exception()) is not None]
        if failures:
            raise failures[0]

    def _executor(self) -> Executor | None:
        if self._parallelism == 1:
            return None
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._parallelism, thread_name_prefix="freshet-write")
        return self._pool


def is_full_compaction_due(options: CoreOptions, identifier: int | None) -> bool:
    """True when `full-compaction.delta-commits` has the commit of this number, or one without a number, compact."""
    delta_commits = options.full_compaction_delta_commits
    if delta_commits is None or options.write_only:
        return False
    return identifier is None or identifier % delta_commits == 0


def behind_full_compaction(store: TableStore, snapshot: Snapshot | None) -> set[BucketId]:
    """Buckets of a keyed table that were written since their last full compaction: with files below the highest level.

    The files tell it, so it is true whoever wrote them, and after a crash.
    """
    if snapshot is None or not store.schema.has_primary_key:
        return set()
    highest = store.options.num_levels - 1
    live = store.live.at(snapshot).by_bucket
    return {bucket for bucket, files in live.items() if any(entry.file.level < highest for entry in files.values())}
