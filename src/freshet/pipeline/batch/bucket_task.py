"""One task of a micro-batch, in a Python worker: routed rows in, data files written, one result out.

    1. as rows arrive: count tallies, write dead letters into files of their table, gather the rest
    2. take the gathered rows in input order, in slices where they are many, and fill in unavailable values
    3. turn carriers back into the table's types; split by (table partition, bucket)
    4. write level 0 of each bucket and compact as the table's options say
    5. report to the driver, which alone commits

A task may run twice, even at the same time (retry, speculation, a driver that was declared dead): file names are
random and nothing is visible before the commit, so the loser leaves files that no snapshot names.

An error that the same rows would meet again is a result, whatever its class: Spark would only repeat the task.
What a second attempt may get over (the disk, memory) is raised.

Workers live for many batches: the table, with its cache of manifests, is kept per process and handed the base
snapshot that the driver pinned, so a bucket is restored by reading only manifests that are new.

Source: pipeline/README.md, "Invariants".
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from freshet.logstore.kafka.record_sizes import RecordSizes
from freshet.pipeline.batch.batch_pin import BatchPin, number_of_this_task, pin_of_this_task, task_log
from freshet.pipeline.batch.dead_letters import WRITE_OPTIONS, DeadLetterWriter
from freshet.pipeline.batch.gathered_rows import MEMORY_BYTES, GatheredRows
from freshet.pipeline.batch.key_task import without_reports
from freshet.pipeline.batch.lap_clock import LapClock
from freshet.pipeline.batch.outcome_counts import OutcomeCounts
from freshet.pipeline.batch.read_count import ReadCount, record_count, without_tallies
from freshet.pipeline.batch.restored_rows import restore_rows
from freshet.pipeline.batch.routing import POSITION
from freshet.pipeline.batch.task_result import TaskResult, encode_error, encode_result
from freshet.pipeline.batch.truncates import TRUNCATED_AWAY, is_kept
from freshet.pipeline.batch.unavailable_values import UnavailableValues
from freshet.pipeline.batch.worker_tables import open_worker_table
from freshet.pipeline.decode.outcomes import BUCKET, ORDER_COLUMNS, TAG, TAG_DATA, TAG_DEAD
from freshet.pipeline.errors.repeating_errors import REPEATING_ERRORS, ReportedError
from freshet.storage.exceptions import RetryableError
from freshet.storage.table import TableHandle
from freshet.storage.table_engine import CommitMessage


@dataclass(frozen=True, slots=True)
class BucketTask:
    """The work of each task of a micro-batch; a value that travels to the workers.

    `columns` are the table's columns that `_d0` … hold: columns that the table got since are NULL; `bucket_count` is
    that of `Routing`. `pin` is None for the tasks of a query's own plan: the driver hands it over. `table_index` is
    that of the table in the query.
    """

    table: TableHandle
    pipeline: str
    columns: tuple[str, ...]
    bucket_count: int | None
    dead_letters: TableHandle | None = None
    pin: BatchPin | None = None
    table_index: int = 0
    parallelism: int = 1
    """Threads that write buckets, where one task has those of several."""
    are_moved: bool = False
    """The rows come from a stage that has placed and counted them (`mover_task`)."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Takes the rows of one Spark partition, gives one row: the result. Nothing in, nothing out."""
        try:
            result = self._run(batches)
        except RetryableError:
            raise
        except (ReportedError, *REPEATING_ERRORS) as error:
            yield encode_error(error)
            return
        if result is not None:
            yield encode_result(result)
            forget_garbage()

    def pinned(self) -> BatchPin:
        """What the driver has pinned for the batch that runs."""
        return self.pin or pin_of_this_task(self.table_index)

    def _run(self, batches: Iterator[pa.RecordBatch]) -> TaskResult | None:
        clock = LapClock()
        with closing(Arrived(self)) as arrived:
            for batch in batches:
                arrived.add(batch)
            if arrived.is_empty:
                return None
            clock.lap("receive")
            return self.finish(arrived, clock)

    def finish(self, arrived: Arrived, clock: LapClock) -> TaskResult:
        """Writes what has arrived, unless the table holds the batch."""
        pin = self.pinned()
        return arrived.only_counted() if pin.is_committed else self._write(arrived, pin, clock)

    def _write(self, arrived: Arrived, pin: BatchPin, clock: LapClock) -> TaskResult:
        table = open_worker_table(self.table.at_schema(pin.schema_id, pin.schema_time_ms))
        counts = arrived.counts
        log = task_log(pin)
        writer = table.engine.task_writer(
            base_snapshot_id=pin.base_snapshot_id,
            parallelism=self.parallelism,
            log=log,
            name=self.pipeline,
            number=number_of_this_task(),
            upon_nothing=pin.upon_nothing,
        )
        try:
            unavailable = UnavailableValues(table, writer.base_snapshot_id, self.columns, writer.lookup_metrics)
            unavailable.watch(arrived.gathered.batches())
            for rows in arrived.gathered.slices(arrived.order_columns):
                filled = unavailable.fill(rows)
                if not self.are_moved:
                    counts.add_data(filled.rows, restored=filled.count)
                arrived.add_dead(filled.dead)
                clock.lap("sort")
                data = restore_rows(filled.rows, table.schema, self.columns)
                clock.lap("restore")
                if self.bucket_count is None:
                    written = writer.write(data)
                else:
                    buckets = filled.rows.column(BUCKET).fill_null(0).to_numpy()
                    written = writer.write_routed(data, buckets, bucket_count=self.bucket_count)
                counts.add_ignored(data.num_rows - written)
                clock.lap("write")
            # Another writer may have committed since the driver looked: our rows are numbered after its rows. Not with
            # a log and lookups: all attempts at a batch emit what their rows replace upon one snapshot.
            if not pin.upon_nothing and (log is None or not table.options.needs_lookup):
                writer.rebase(table.latest_snapshot())
            messages = writer.prepare_commit(pin.micro_batch_id, limit=pin.limit)
            clock.lap("flush and compact")
        finally:
            writer.close()
        dead_letter_messages = arrived.finish_dead()
        clock.lap("dead letters")
        return arrived.result(
            messages={self.table_index: [*messages, *arrived.index_messages]},
            dead_letter_messages=dead_letter_messages,
            keys_merged=writer.merge_metrics.keys_merged,
            keys_in_python=writer.merge_metrics.keys_in_python,
            lookups=writer.lookup_metrics.counts(),
            waited_buckets=writer.waited_buckets,
            budget_spent_ms=writer.budget_spent_ms,
            times_ms=clock.times_ms,
        )


class Arrived:
    """The rows of one task by what becomes of them: tallies are counted, dead letters written, the rest is gathered."""

    def __init__(self, task: BucketTask, memory_bytes: int = MEMORY_BYTES) -> None:
        """`memory_bytes` of rows are held in memory, more on the disk."""
        self._task = task
        self._dead_writer: DeadLetterWriter | None = None
        self._is_outcomes = False
        self._batch_count = 0
        self.gathered = GatheredRows(task.table.env, memory_bytes=memory_bytes)
        self.read = ReadCount()
        self.counts = OutcomeCounts()
        self.index_messages: list[CommitMessage] = []
        """What assigners of dynamic buckets have sent."""

    @property
    def is_empty(self) -> bool:
        return not self._batch_count

    @property
    def order_columns(self) -> tuple[str, ...]:
        return ORDER_COLUMNS if self._is_outcomes else (POSITION,)

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes a batch of routed rows."""
        if not batch.num_rows:
            return
        self._batch_count += 1
        self._is_outcomes = TAG in batch.schema.names
        batch, reports = without_reports(batch)
        self.index_messages += reports.messages
        self.counts.add_counted(reports.applied, reports.skipped)
        self.read.add(reports.read)
        if not batch.num_rows:
            return
        if not self._is_outcomes:
            if not self._task.are_moved or self._task.pinned().is_committed:
                self.read.add_positions(batch.column(POSITION))
            mean = batch.nbytes // batch.num_rows
            self.read.sizes = self.read.sizes.joined(RecordSizes(mean, mean))
            self.gathered.add(batch)
            return
        batch, tallies = without_tallies(batch)
        for tally in tallies:
            if tally.error is not None:
                raise ReportedError(tally.error)
            self.read.add_tally(tally)
            self.counts.add_tally(tally)
        tags: Any = batch.column(TAG)
        is_data: Any = pc.equal(tags, TAG_DATA)
        if not pc.all(is_data).as_py():
            self.add_dead(pa.Table.from_batches([batch.filter(pc.equal(tags, TAG_DEAD))]))
            batch = batch.filter(is_data)  # rows that are gone (`TAG_GONE`) are in neither
        truncated = self._task.pinned().truncated
        if truncated is not None:
            kept = is_kept(batch, truncated)
            self.counts.skipped[TRUNCATED_AWAY] += record_count(batch.filter(pc.invert(kept)))
            batch = batch.filter(kept)
        self.gathered.add(batch)

    def add_dead(self, dead: pa.Table) -> None:
        """Takes outcomes that are dead letters, whenever that turned out."""
        if not dead.num_rows:
            return
        self.counts.add_dead(dead)
        handle = self._task.dead_letters
        if handle is None:
            raise ValueError("a frame with dead letters needs a table for them; name one")
        if self._dead_writer is None:
            self._dead_writer = DeadLetterWriter(
                open_worker_table(replace(handle, options=WRITE_OPTIONS)),
                pipeline=self._task.pipeline,
                micro_batch_id=self._task.pinned().micro_batch_id,
            )
        self._dead_writer.write(dead)

    def only_counted(self) -> TaskResult:
        """The result for a batch that the table holds already, so that its records are accounted for."""
        for rows in self.gathered.slices(self.order_columns):
            self.counts.add_data(rows, restored=0)
        return self.result()

    def result(self, **written: Any) -> TaskResult:
        """What became of the records; `written` is what else the task reports."""
        counts = self.counts
        return TaskResult(
            row_count=self.gathered.row_count,
            applied=counts.applied,
            dead=counts.dead,
            first_dead=tuple(counts.first_dead.rows()),
            read=self.read,
            skipped=counts.skipped,
            notes=counts.notes,
            tables=tuple(counts.tables),
            seen=tuple(counts.seen),
            truncated=tuple(counts.truncated),
            restored=counts.restored,
            **written,
        )

    def finish_dead(self) -> tuple[Any, ...]:
        """The files of the dead letters."""
        return () if self._dead_writer is None else self._dead_writer.finish()

    def close(self) -> None:
        """Removes what is not reported to the driver."""
        self.gathered.close()
        if self._dead_writer is not None:
            self._dead_writer.close()


_is_frozen = False


def forget_garbage() -> None:
    """Spark's daemon collects garbage after every task; what the first task loaded need not be looked at each time."""
    global _is_frozen
    if not _is_frozen:
        gc.collect()
        gc.freeze()
        _is_frozen = True
