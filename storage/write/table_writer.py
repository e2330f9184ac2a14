"""Writes one table: checks and routes rows, shares memory between buckets, works on several buckets at once.

    writer = TableWriter(store, base_snapshot=LATEST)
    writer.write(rows)                      any number of times
    messages = writer.prepare_commit(7)     files are complete; the committer makes them visible
    writer.rebase(latest_snapshot)          continue on what is committed now

Buckets are restored from the base snapshot when rows first touch them. After `prepare_commit` the writer goes on with
its own files as if they were committed; `rebase` puts that right when another writer changed the bucket or the commit's
compaction gave way. Memory: the rows of all buckets together stay within `write-buffer-size`; then the largest buckets
are spilled first, until half of it is free. A writer is used by one thread, and uses `parallelism` threads of its own.

Files that no returned message names are deleted by `abort` and `close`, all others are the committer's. When a call
fails after rows were taken, the writer takes no more: its rows may be gone, so only `abort` and `close` go on.

Source: LSM semantics §1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from enum import Enum
from typing import Final

import pyarrow as pa

from freshet.storage.compact.rewriter import Rewriter
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import CrashPoint
from freshet.storage.io.scratch import Scratch
from freshet.storage.merge.engine import lookup_merge_function, merge_function, row_order
from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.merge.merge_metrics import MergeMetrics
from freshet.storage.metadata.live_files import LiveFiles
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.core import ChangelogProducer, CoreOptions, MergeEngine
from freshet.storage.options.engine import engine_options
from freshet.storage.write.append_bucket_writer import AppendBucketWriter, AppendTools
from freshet.storage.write.bucket_writer import BucketWriter
from freshet.storage.write.bucketing import BucketRouter
from freshet.storage.write.key_value_bucket_writer import BucketTools, KeyValueBucketWriter
from freshet.storage.write.records import AcceptedRows, RecordRules
from freshet.storage.write.retract_rules import RetractRules
from freshet.storage.write.write_timings import WriteTimings

PIECE_BYTES_MAX: Final = 64 * 1024 * 1024
PIECE_BYTES_MIN: Final = 256 * 1024
"""Rows are routed in pieces of an eighth of the write buffer, within these bounds."""

BUCKET_BYTES_MAX: Final = 1024 * 1024 * 1024
"""A bucket's rows are put aside beyond this in any case: a column of strings has 32-bit offsets."""

MERGE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Rows that a round of merging in compaction holds, a quarter of the write buffer at most."""

BucketId = tuple[bytes, int]


class LatestSnapshot(Enum):
    """Stands for the newest snapshot, whichever that is when the writer is made."""

    LATEST = "latest"


LATEST: Final = LatestSnapshot.LATEST


class TableWriter:
    """Writer of one table at one schema."""

    def __init__(
        self,
        store: TableStore,
        *,
        base_snapshot: Snapshot | LatestSnapshot | None = LATEST,
        parallelism: int = 2,
    ) -> None:
        store.check_writable()
        self._store = store
        self._snapshot = store.snapshots.latest() if isinstance(base_snapshot, LatestSnapshot) else base_snapshot
        self._parallelism = max(1, parallelism)
        self._pool: ThreadPoolExecutor | None = None
        self._scratch = Scratch(store.env)
        self.timings = WriteTimings()
        self.merge_metrics = MergeMetrics()
        self._rules = _record_rules(store)
        self._router = BucketRouter(
            store.schema,
            bucket=store.options.bucket,
            bucket_key=store.options.bucket_key,
            function=store.options.bucket_function_type,
        )
        self._open_bucket = self._bucket_factory()
        self._writers: dict[BucketId, BucketWriter] = {}
        self._touched: set[BucketId] = set()
        self._checked_partitions: set[bytes] = set()
        self._due_for_full: set[BucketId] = set()
        self._is_broken = False

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
            with self.timings.step("route"):
                groups = list(self._router.route(piece, self._executor()))
            for group in groups:
                self._writer(group.partition, group.bucket).write(group.rows, group.kinds)
            del groups
            self._keep_within_memory()
        return int(accepted.rows.num_rows)

    def write_bucket(self, partition: bytes, bucket: int, data: pa.Table | pa.RecordBatch) -> int:
        """Takes rows that are known to belong to one bucket, and returns how many were accepted."""
        total = max(1, self._router.total_buckets)
        if not 0 <= bucket < total:
            raise InvalidRequestError(
                f"{self._store.location} has buckets 0 to {total - 1}, not {bucket}", path=self._store.location
            )
        accepted = self._rules.accept(data)
        with self._unbroken():
            for piece in self._pieces(accepted):
                if piece.rows.num_rows:
                    self._writer(partition, bucket).write(piece.rows, piece.kinds)
                    self._keep_within_memory()
        return int(accepted.rows.num_rows)

    def compact(
        self,
        *,
        full: bool,
        all_buckets: bool = False,
        partition: bytes | None = None,
        bucket: int | None = None,
    ) -> None:
        """Flushes and compacts now, also in write-only tables; the results go into the next commit messages.

        Takes the buckets that this writer ever wrote to; with `all_buckets`, or a partition or bucket named, also those
        of the table that match. Not `full`: one round, where the picking rule asks for it.
        """
        candidates = set(self._touched)
        if all_buckets or partition is not None or bucket is not None:
            candidates |= self._live().by_bucket.keys()
        chosen = [self._writer(*known) for known in sorted(candidates) if _matches(known, partition, bucket)]

        def work(writer: BucketWriter, executor: Executor | None) -> None:
            writer.flush(executor)
            writer.compact(full=full, executor=executor)

        with self._unbroken():
            self._on_buckets(chosen, work)

    def prepare_commit(self, identifier: int | None = None, *, wait_compaction: bool = True) -> list[CommitMessage]:
        """Makes files of all rows, compacts as the options ask, and returns one message per changed bucket.

        `full-compaction.delta-commits` = n compacts every bucket written since the last time in full when the
        identifier is a multiple of n, or is not given. `wait_compaction=False` leaves compaction out of this commit.
        """
        delta_commits = self._store.options.full_compaction_delta_commits
        changed = {known for known, writer in self._writers.items() if writer.has_changes}
        self._due_for_full |= changed if delta_commits is not None else set()
        is_full = delta_commits is not None and (identifier is None or identifier % delta_commits == 0)
        is_full = is_full and not self._store.options.write_only

        def work(writer: BucketWriter, executor: Executor | None) -> None:
            writer.flush(executor)
            if is_full:
                writer.compact(full=True, executor=executor)
            elif wait_compaction:
                writer.settle(executor)

        chosen = changed | self._due_for_full if is_full else changed
        with self._unbroken():
            self._on_buckets([self._writer(*known) for known in sorted(chosen)], work)
            if is_full:
                self._due_for_full.clear()
            self._store.env.reach(CrashPoint.WRITE_PREPARED)
        messages = [writer.drain() for _, writer in sorted(self._writers.items())]
        return [message for message in messages if not message.is_empty]

    def rebase(self, snapshot: Snapshot | None) -> None:
        """Continues on another snapshot, usually the one just committed.

        Rows and files not handed out yet are kept; a compaction of files that are gone meanwhile is given up.
        """
        self._snapshot = snapshot
        self._checked_partitions.clear()
        # Buckets without changes are opened again when they are needed: that costs less than to keep them.
        self._writers = {known: writer for known, writer in self._writers.items() if writer.has_changes}
        live = self._live()
        for (partition, bucket), writer in self._writers.items():
            self._check_total_buckets(live, partition)
            writer.rebase(live.files_of(partition, bucket))

    def abort(self) -> None:
        """Gives up all rows and files that no message names; the writer may be used again, on the same snapshot."""
        writers, self._writers = self._writers, {}
        self._due_for_full.clear()
        self._is_broken = False
        for writer in writers.values():
            writer.abort()
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
        yield
        self._is_broken = False

    def _writer(self, partition: bytes, bucket: int) -> BucketWriter:
        known = self._writers.get((partition, bucket))
        if known is not None:
            return known
        live = self._live()
        self._check_total_buckets(live, partition)
        writer = self._open_bucket(partition, bucket, live.files_of(partition, bucket))
        self._writers[partition, bucket] = writer
        self._touched.add((partition, bucket))
        return writer

    def _live(self) -> LiveFiles:
        return self._store.live.at(self._snapshot)

    def _check_total_buckets(self, live: LiveFiles, partition: bytes) -> None:
        """Raises `InvalidRequestError` when the partition holds files of another number of buckets."""
        if partition in self._checked_partitions:
            return
        expected = self._router.total_buckets
        for (name, _), files in live.by_bucket.items():
            for entry in files.values() if name == partition else ():
                if entry.total_buckets != expected:
                    raise InvalidRequestError(
                        f"partition {self._store.partition_path(partition) or '(the table has none)'} of "
                        f"{self._store.location} was written with {entry.total_buckets} buckets, the option bucket is "
                        f"{expected} now; set bucket={entry.total_buckets} again, or rewrite the partition with an "
                        "overwrite",
                        option="bucket",
                        path=self._store.location,
                    )
        self._checked_partitions.add(partition)

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

    def _may_spill(self) -> bool:
        options = self._store.options
        if not options.write_buffer_spillable:
            return False
        spilled = sum(w.spilled_bytes for w in self._writers.values() if isinstance(w, KeyValueBucketWriter))
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

    def _bucket_factory(self) -> Callable[[bytes, int, Sequence[DataFileMeta]], BucketWriter]:
        store, total = self._store, self._router.total_buckets
        if not store.schema.has_primary_key:
            append = AppendTools(store, total, self.timings)
            return lambda partition, bucket, files: AppendBucketWriter(append, partition, bucket, files)
        rewriter = Rewriter(
            store=store,
            order=row_order(store.schema, store.options),
            function=merge_function(store.schema, store.options, self.merge_metrics, table=store.location),
            lookup_function=lookup_merge_function(
                store.schema, store.options, self.merge_metrics, table=store.location
            ),
            comparator=KeyComparator(store.key_types),
            merge_bytes=_merge_bytes(store.options),
            new_spill_path=self._scratch.new_path,
        )
        tools = BucketTools(store, rewriter, total, self._scratch.new_path, self._may_spill, self.timings)
        return lambda partition, bucket, files: KeyValueBucketWriter(tools, partition, bucket, files)


def _merge_bytes(options: CoreOptions) -> int:
    return min(MERGE_BYTES_MAX, options.write_buffer_size_bytes // 4)


def _record_rules(store: TableStore) -> RecordRules:
    options = store.options
    return RecordRules(
        store.schema,
        table=store.location,
        rowkind_field=options.rowkind_field,
        ignore_delete=options.ignore_delete,
        ignore_update_before=options.ignore_update_before,
        sequence_field=options.sequence_field,
        deletes_by_key=_deletes_by_key(store),
        retract_rules=RetractRules.of(store.schema, options, store.location) if store.schema.has_primary_key else None,
    )


def _deletes_by_key(store: TableStore) -> bool:
    """Whether of a -D only the key matters: it removes the row, and no changelog repeats what it says."""
    if not store.schema.has_primary_key or store.options.changelog_producer is ChangelogProducer.INPUT:
        return False
    if store.options.merge_engine is MergeEngine.DEDUPLICATE:
        return True
    return engine_options(store.schema, store.options).remove_record_on_delete


def _matches(known: BucketId, partition: bytes | None, bucket: int | None) -> bool:
    return (partition is None or known[0] == partition) and (bucket is None or known[1] == bucket)
