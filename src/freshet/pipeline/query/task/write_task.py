"""The task of a batch, in a worker: outcomes or routed rows in, files of the tables, and one row with the results.

    1. as rows arrive: by table; tallies are counted, dead letters written into files of theirs, the rest is gathered
    2. table by table: the gathered rows in input order, in slices where they are many, unavailable values filled in
    3. carriers become the table's types again; split by (table partition, bucket)
    4. level 0 of each bucket is written and compacted as the table's options say
    5. the results go to the driver, which alone commits

A task may run twice, even at the same time (retry, speculation, a driver that was declared dead): file names are
random and nothing is visible before the commit, so the loser leaves files that no snapshot names.

An error that the same rows would meet again is a result, with the number of its table: another attempt would only
repeat it. What a second attempt may get over (the disk, memory) is raised.

Workers live for many batches: a table, with its cache of manifests, is kept per process and handed the base snapshot
that the driver pinned, so a bucket is restored by reading only manifests that are new.

Source: pipeline/README.md, "Invariants".
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.logstore.kafka.record_sizes import RecordSizes
from freshet.pipeline.decode.outcomes import (
    BUCKET,
    COLUMN,
    KAFKA_PARTITION,
    OFFSET,
    ORDER_COLUMNS,
    RAW_KEY,
    RAW_VALUE,
    REASON,
    TAG,
    TAG_DATA,
    TAG_DEAD,
    TAG_QUARANTINED,
    TIMESTAMP,
    TOPIC,
    TruncatedAt,
)
from freshet.pipeline.errors.repeating_errors import REPEATING_ERRORS, ReportedError
from freshet.pipeline.query.task.batch_work import BatchWork, TableWork, work_of
from freshet.pipeline.query.task.gathered_rows import MEMORY_BYTES, GatheredRows
from freshet.pipeline.query.task.key_task import without_reports
from freshet.pipeline.query.task.outcome_counts import OutcomeCounts
from freshet.pipeline.query.task.restored_rows import restore_rows
from freshet.pipeline.query.task.unavailable_values import UnavailableValues
from freshet.pipeline.query.task.worker_table_cache import open_worker_table
from freshet.pipeline.query.wire.batch_pin import BatchPin, TaskPlace
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.query.wire.packed_rows import PACKED, TABLE, unpacked
from freshet.pipeline.query.wire.read_count import POSITION, ReadCount, record_count, without_tallies
from freshet.pipeline.query.wire.stopwatch import Stopwatch
from freshet.pipeline.query.wire.task_result import TaskResult, encode_error, encode_results, rule_key
from freshet.storage.exceptions import RetryableError
from freshet.storage.table import Table
from freshet.storage.table_engine import CommitMessage

_MEMORY_BYTES_MIN: Final = 4 * 1024 * 1024

_WRITE_OPTIONS: Final = (("write-buffer-size", "32 mb"), ("write-only", "true"))
"""Options of the table that a task writes dead letters with."""

_TRUNCATED_AWAY: Final = "before a truncate"
"""Why rows are skipped that a truncate of the same batch took away."""


class WriteTask(Frozen):
    """What writes the tables of a batch; a value that travels to the workers."""

    work: KeptValue[BatchWork]
    """What stays the same from batch to batch: pins come besides."""
    parallelism: int = 1
    """Threads that write buckets, where one task has those of several."""

    def run(self, batches: Iterator[pa.RecordBatch], place: TaskPlace) -> Iterator[pa.RecordBatch]:
        """Takes the rows of one task, packed or as they are, and gives one row: the results of the tables that have
        any. Nothing in, nothing out."""
        clock = Stopwatch()
        tables = work_of(place, self.work).tables
        memory_bytes = max(_MEMORY_BYTES_MIN, MEMORY_BYTES // max(1, len(tables) - 1))
        with ExitStack() as stack:
            arrived: dict[int, Arrived] = {}
            number = 0
            results: list[TaskResult] = []
            try:
                for number, batch in _by_table(batches, tables):
                    if number not in arrived:
                        arrived[number] = stack.enter_context(closing(Arrived(tables[number], place, memory_bytes)))
                    arrived[number].add(batch)
                clock.lap("receive")
                spent_ms = 0.0
                for each in (arrived[key] for key in sorted(arrived)):
                    number = each.work.number
                    if not each.is_empty:
                        results.append(self._finish(each, _within(each.pin, spent_ms), clock))
                        spent_ms += results[-1].budget_spent_ms
                        clock = Stopwatch()
                    each.close()
            except RetryableError:
                raise
            except (ReportedError, *REPEATING_ERRORS) as error:
                yield encode_error(error, number)
                return
        if results:
            yield encode_results(results)
            forget_garbage()

    def _finish(self, arrived: Arrived, pin: BatchPin, clock: Stopwatch) -> TaskResult:
        """Writes what has arrived for a table, unless it holds the batch."""
        if pin.is_committed:
            return arrived.only_counted()
        work, place = arrived.work, arrived.place
        table = open_worker_table(work.table.at_schema(pin.schema_id, pin.schema_time_ms))
        counts = arrived.counts
        log = place.log_of(pin)
        writer = table.engine.task_writer(
            base_snapshot_id=pin.base_snapshot_id,
            parallelism=self.parallelism,
            log=log,
            name=work.pipeline,
            number=place.number,
            upon_nothing=pin.upon_nothing,
        )
        try:
            unavailable = UnavailableValues(table, writer.base_snapshot_id, work.columns, writer.lookup_metrics)
            unavailable.watch(arrived.gathered.batches())
            for rows in arrived.gathered.slices(arrived.order_columns):
                filled = unavailable.fill(rows)
                if not work.are_moved:
                    counts.add_data(filled.rows, restored=filled.count)
                arrived.add_dead(filled.dead)
                clock.lap("sort")
                data = restore_rows(filled.rows, table.schema, work.columns)
                clock.lap("restore")
                if work.bucket_count is None:
                    written = writer.write(data)
                else:
                    buckets = filled.rows.column(BUCKET).fill_null(0).to_numpy()
                    written = writer.write_routed(data, buckets, bucket_count=work.bucket_count)
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
            messages={work.number: [*messages, *arrived.index_messages]},
            dead_letter_messages=dead_letter_messages,
            keys_merged=writer.merge_metrics.keys_merged,
            keys_in_python=writer.merge_metrics.keys_in_python,
            lookups=writer.lookup_metrics.counts(),
            waited_buckets=writer.waited_buckets,
            budget_spent_ms=writer.budget_spent_ms,
            times_ms=clock.times_ms,
        )


def _by_table(
    batches: Iterator[pa.RecordBatch], tables: Mapping[int, TableWork]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each batch with the number of their table; rows that are not packed are of the only one."""
    for batch in batches:
        if PACKED not in batch.schema.names:
            yield 0, batch
            continue
        for number, value in zip(batch.column(TABLE).to_pylist(), batch.column(PACKED), strict=True):
            schema = tables[number].schema
            assert schema is not None
            yield number, unpacked(value.as_buffer(), schema)


def _within(pin: BatchPin, spent_ms: float) -> BatchPin:
    """The pin of a table once those before it have spent so much of the time of the task."""
    if pin.limit is None:
        return pin
    left_ms = max(0, round(pin.limit.budget_ms - spent_ms))
    return replace(pin, limit=replace(pin.limit, budget_ms=left_ms))


class Arrived:
    """The rows of one task for one table, by what becomes of them: tallies are counted, dead letters written, others
    gathered."""

    def __init__(self, work: TableWork, place: TaskPlace, memory_bytes: int = MEMORY_BYTES) -> None:
        """`memory_bytes` of rows are held in memory, more on the disk."""
        self.work = work
        self.place = place
        self.pin = place.pin(work.number)
        self._dead_writer: _DeadLetterWriter | None = None
        self._is_outcomes = False
        self._batch_count = 0
        self.gathered = GatheredRows(work.table.env, memory_bytes=memory_bytes)
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
            if not self.work.are_moved or self.pin.is_committed:
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
        if not batch.num_rows:
            return
        tags: Any = batch.column(TAG)
        is_data: Any = pc.equal(tags, TAG_DATA)
        if not pc.all(is_data).as_py():
            self._add_others(pa.Table.from_batches([batch.filter(pc.invert(is_data))]))
            batch = batch.filter(is_data)  # rows that are gone (`TAG_GONE`) are in neither
        truncated = self.pin.truncated
        if truncated is not None:
            kept = is_kept(batch, truncated)
            self.counts.skipped[_TRUNCATED_AWAY] += record_count(batch.filter(pc.invert(kept)))
            batch = batch.filter(kept)
        self.gathered.add(batch)

    def _add_others(self, others: pa.Table) -> None:
        tags: Any = others.column(TAG)
        refused = others.filter(pc.greater_equal(tags, TAG_QUARANTINED))
        if refused.num_rows:
            self.counts.add_broken(refused)
        self.add_dead(others.filter(pc.is_in(tags, pa.array([TAG_DEAD, TAG_QUARANTINED], tags.type))))

    def add_dead(self, dead: pa.Table) -> None:
        """Takes outcomes that are dead letters, whenever that turned out."""
        if not dead.num_rows:
            return
        self.counts.add_dead(dead)
        handle = self.work.dead_letters
        if handle is None:
            raise ValueError("a frame with dead letters needs a table for them; name one")
        if self._dead_writer is None:
            self._dead_writer = _DeadLetterWriter(
                open_worker_table(replace(handle, options=_WRITE_OPTIONS)),
                pipeline=self.work.pipeline,
                micro_batch_id=self.pin.micro_batch_id,
            )
        self._dead_writer.write(dead)

    def only_counted(self) -> TaskResult:
        """The result for a batch that the table holds already, so that its records are accounted for."""
        for rows in self.gathered.slices(self.order_columns):
            self.counts.add_data(rows, restored=0)
        return self.result()

    def result(self, **written: Any) -> TaskResult:
        """What became of the records; `written` is what else the task reports."""
        counts, number = self.counts, self.work.number
        return TaskResult(
            row_count=self.gathered.row_count,
            applied=counts.applied,
            dead=counts.dead,
            first_dead=tuple(counts.first_dead.rows()),
            broken={rule_key(number, name): count for name, count in counts.broken.items()},
            first_broken=tuple(
                {**row, REASON: rule_key(number, name)}
                for name, sample in counts.first_broken.items()
                for row in sample.rows()
            ),
            of_tables={str(number): counts.record_count},
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


class _DeadLetterWriter:
    """Writes the dead letters of one task into files of their table; close it whatever happens."""

    def __init__(self, table: Table, *, pipeline: str, micro_batch_id: int) -> None:
        self._pipeline = pipeline
        self._micro_batch_id = micro_batch_id
        self._writer = table.engine.task_writer(base_snapshot_id=None)

    def write(self, dead: pa.Table) -> None:
        """Takes outcomes that are dead letters."""
        self._writer.write(_dead_letter_rows(dead, pipeline=self._pipeline, micro_batch_id=self._micro_batch_id))

    def finish(self) -> tuple[CommitMessage, ...]:
        """The files, complete."""
        return tuple(self._writer.prepare_commit())

    def close(self) -> None:
        """Removes files that no message names."""
        self._writer.close()


def _dead_letter_rows(rows: pa.Table, *, pipeline: str, micro_batch_id: int) -> pa.Table:
    """Outcomes that are dead letters as rows of their table."""
    count = rows.num_rows
    constant: Any = pa.repeat(pa.scalar(pipeline, pa.string()), count)
    batch: Any = pa.repeat(pa.scalar(micro_batch_id, pa.int64()), count)
    columns = {
        "pipeline": constant,
        "topic": rows.column(TOPIC),
        "kafka_partition": rows.column(KAFKA_PARTITION),
        "log_offset": rows.column(OFFSET),
        "record_time": rows.column(TIMESTAMP).cast(pa.timestamp("us", "UTC")),
        "reason": pc.fill_null(rows.column(REASON), "unknown"),
        "column_name": rows.column(COLUMN),
        "raw_key": rows.column(RAW_KEY),
        "raw_value": rows.column(RAW_VALUE),
        "micro_batch_id": batch,
    }
    return pa.table(columns)


def is_kept(outcomes: pa.RecordBatch, truncated: TruncatedAt) -> Any:
    """Which outcomes come after the truncate."""
    is_before = pc.and_(
        pc.equal(outcomes.column(TOPIC), truncated.topic), pc.less(outcomes.column(OFFSET), truncated.offset)
    )
    return pc.invert(pc.fill_null(is_before, False))
