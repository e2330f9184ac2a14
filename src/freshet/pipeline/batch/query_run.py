"""One streaming query on the driver: asks whether a micro-batch is done, runs its one job, commits it table by table.

    1. ask each table whether it holds the batch: if all do, nothing is run. What it is written upon is pinned by the
       same look
    2. one Spark job: route, shuffle, write files (`bucket_task`), collect commit messages by table. The queries of
       `runner` have it in their plan (`with_tasks`); for frames of users it is planned here, batch by batch, and for
       records of Kafka that the workers read themselves (`direct_reads`)
    3. check: records that entered (`read_count`) = applied + dead letters + skipped, and not too many are dead letters
    4. commit the dead letters under the identity of the batch, unless an earlier attempt did
    5. commit the rows of each table (`table_commit`) that does not hold the batch yet. A table that is alone is
       committed though the batch has no rows, so that the numbers of its batches have no gaps (`missing_batches`)

| the driver dies | the replay finds | and |
|---|---|---|
| before 4 | no table knows the batch | writes all again; the files of the dead attempt are orphans |
| between 4 and 5 | the dead letters know it | writes the rows, leaves the dead letters |
| between two tables of 5 | the first knows it | writes and commits the rows of the others |
| after 5, before Spark's commit log | the tables that have rows of it know it | runs no job, where that is all tables |
| while its tasks go on (zombie) | any of these | the later commit finds the other and ends |

Identity = (commit user, batch id, Spark's query id), and a digest of what the batch read (`read_digest`): a batch of a
known number that read something else is refused. So is one of a pipeline whose batches before it are not in the table
(`missing_batches`), and one of another query whose table was created again (`checkpoint_tables`).
Source: docs/explanation/spark.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from freshet.pipeline.batch.arrow_batches import BATCH_BYTES, ArrowBatches
from freshet.pipeline.batch.background_rounds import joined_report
from freshet.pipeline.batch.batch_pin import BatchPin, hand_over
from freshet.pipeline.batch.batch_report import BatchReport
from freshet.pipeline.batch.dead_letter_sample import limit_text, sample_text
from freshet.pipeline.batch.dead_letters import DeadLetterCommit
from freshet.pipeline.batch.direct_reads import DirectReads, Ranges, planned_ranges, refuse_unread
from freshet.pipeline.batch.kafka_polls import follow_sizes
from freshet.pipeline.batch.lap_clock import LapClock
from freshet.pipeline.batch.many_tables import ROUNDS_MAX, ManyTables, Offsets, batch_starts
from freshet.pipeline.batch.new_columns import add_columns
from freshet.pipeline.batch.packed_rows import PackedTasks
from freshet.pipeline.batch.table_commit import TableCommit
from freshet.pipeline.batch.task_result import TableFailedError, TaskResult, sum_results
from freshet.pipeline.batch.truncates import Truncates, last_truncates, refuse_unordered, truncate_texts
from freshet.pipeline.batch.whole_job import run_whole_job
from freshet.pipeline.config.model import MaxDeadLetters
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError, StoppedByRecordError
from freshet.pipeline.identity.batch_identity import BatchIdentity
from freshet.pipeline.identity.checkpoint_tables import CheckpointTables
from freshet.pipeline.identity.first_tables import FirstTables, after_batch, carried_text, first_tables
from freshet.pipeline.identity.missing_batches import refuse_missing_batches
from freshet.pipeline.identity.open_checkpoint import open_checkpoint
from freshet.pipeline.identity.read_digest import ReadDigests
from freshet.pipeline.spark.active_query import ActiveQuery, collected_binary
from freshet.pipeline.spark.batch_settings import batch_settings
from freshet.storage.exceptions import InvalidRequestError, StorageError
from freshet.storage.table import Table
from freshet.storage.table_engine import CommitTrace, CompactionLimit

_RUN_PROPERTY: Final = "spark.jobGroup.id"
"""Spark runs a query under the id of this run as its job group."""


class BatchJob(Protocol):
    """The one job of a batch: how the rows of a frame reach the tasks that write them."""

    def tasks(self, frame: DataFrame, pins: Mapping[int, BatchPin] | None = None) -> tuple[DataFrame, int]:
        """The frame followed by the work of its tasks, a row for each (`task_result`), and how many there are at most.

        `pins` are those of the batch by the index of the table; None for the plan of a query, whose tasks find those
        of each batch (`pin_of_this_task`).
        """

    def packed(self, spark: SparkSession, schema: pa.Schema) -> PackedTasks | None:
        """The tasks for outcomes of this schema that come packed; None where they have to cross as rows."""


@dataclass(frozen=True, slots=True)
class _ActiveRun:
    """One run of a streaming query."""

    query: ActiveQuery
    digests: ReadDigests
    written: CheckpointTables

    @classmethod
    def of(cls, spark: SparkSession, query: ActiveQuery) -> _ActiveRun:
        checkpoint = open_checkpoint(spark, query.checkpoint())
        return cls(query, ReadDigests(spark, query, checkpoint), CheckpointTables(checkpoint))


class QueryRun:
    """Writes the batches of one streaming query into its tables, each once; `commit_user` is the name of the pipeline.

    The index of a table in `tables` is the one that results of tasks have it under.
    """

    def __init__(
        self,
        tables: Sequence[TableCommit],
        job: BatchJob,
        commit_user: str,
        *,
        pipeline: str | None = None,
        dead_letters: Table | None = None,
        max_dead_letters: MaxDeadLetters | None = None,
        writes_all_batches: bool = False,
        follows_polls: bool = False,
        direct: DirectReads | None = None,
        many: ManyTables | None = None,
    ) -> None:
        """`pipeline` is the name that dead letters carry, by default the commit user. `writes_all_batches` says that
        every batch of the query comes here, so that one which the table does not hold is an error; only a table that
        is alone holds all. `follows_polls` says that the polls of its Kafka sources follow the sizes of their records.
        `direct` reads the records of its Kafka sources for Spark, batch by batch, where it takes them. With `many`, the
        tables are those of each round, and `tables` is its ledger alone.
        """
        if writes_all_batches and len(tables) > 1:
            raise ValueError("a batch is committed to the tables that it has rows for: no table of several holds all")
        self._tables = tuple(tables)
        self._job = job
        self._commit_user = commit_user
        self._pipeline = pipeline or commit_user
        self._dead_letters = None if dead_letters is None else DeadLetterCommit(dead_letters, commit_user)
        self._max_dead_letters = max_dead_letters or MaxDeadLetters()
        self._writes_all_batches = writes_all_batches
        self._follows_polls = follows_polls
        self._direct = direct
        self._many = many
        self._planned_tasks: int | None = None
        self.arrow = ArrowBatches()
        """What bounds the Arrow batches of the query."""
        self._run: tuple[object, _ActiveRun | None] | None = None

    @property
    def table_name(self) -> str:
        """What messages call the tables."""
        return ", ".join(each.table.name for each in self._tables)

    def with_tasks(self, frame: DataFrame) -> DataFrame:
        """A streaming frame followed by the work of its tasks: a row for each, which `write` collects.

        So the plan of a query holds all that a batch does, and nothing is planned for one batch but what Spark plans.
        """
        rows, self._planned_tasks = self._job.tasks(frame)
        return rows

    def close(self) -> None:
        """Ends what runs in the background."""
        for table in self._tables:
            table.close()
        if self._many is not None:
            self._many.close()

    def check_last(self) -> None:
        """Raises `LostCommitError` where another program has replaced the last commit to one of the tables."""
        for each in (*self._tables, *(() if self._dead_letters is None else (self._dead_letters,))):
            each.check_last()

    def write(self, frame: DataFrame, micro_batch_id: int, query_id: str | None) -> BatchReport:
        """Writes one batch, once: of the frame that `with_tasks` gave, or else of outcomes or the table's columns.

        `query_id` is Spark's id of the streaming query.
        """
        clock = LapClock()
        for table in self._tables:
            table.follow_schema(is_planned=self._planned_tasks is not None)
        with ExitStack() as turns:
            limits = [turns.enter_context(table.turn()) for table in self._tables]
            clock.lap("turn")
            report = self._write(frame, micro_batch_id, query_id, limits, clock)
        run = self._active_run(frame, query_id)
        if run is not None and not self._writes_all_batches:
            for table in self._tables:
                run.written.note(table.table)
        written = report.result.messages
        compacted = [
            table.after_batch(frame.sparkSession, written.get(index, ())) for index, table in enumerate(self._tables)
        ]
        return replace(report, background=joined_report(each for each in compacted if each is not None))

    def _write(
        self,
        frame: DataFrame,
        micro_batch_id: int,
        query_id: str | None,
        limits: Sequence[CompactionLimit | None],
        clock: LapClock,
    ) -> BatchReport:
        run = self._active_run(frame, query_id)
        batch = BatchIdentity(micro_batch_id, query_id, None if run is None else run.digests.digest(micro_batch_id))
        clock.lap("digest")
        if self._many is not None:
            if run is None:
                raise InvalidRequestError(
                    "a query of many tables runs as a streaming query; this batch belongs to none"
                )
            return self._write_many(self._many, frame, batch, run, clock)
        checks = [table.has_committed(batch) for table in self._tables]
        if all(check.is_committed for check in checks):  # 1
            return BatchReport(self._commit_user, micro_batch_id, is_replay=True)
        last = _newest(check.last for check in checks)
        if self._writes_all_batches:
            number = None if last is None else last.identifier
            refuse_missing_batches(number, micro_batch_id, table=self.table_name, pipeline=self._commit_user)
        if run is not None:
            for table in () if self._writes_all_batches else self._tables:
                run.written.refuse_recreated(table.table, micro_batch_id)
            run.digests.refuse_missing_files()
        clock.lap("look")
        context = frame.sparkSession.sparkContext
        ranges = self._direct_ranges(run)
        truncates: Truncates = {}
        while True:
            pins = {
                index: table.pin(micro_batch_id, limit, context, check, truncates.get(index))
                for index, (table, limit, check) in enumerate(zip(self._tables, limits, checks, strict=True))
            }
            collected, task_count = run_whole_job(  # 2
                lambda pins=pins: self._collect(frame, pins, run, ranges),  # type: ignore[misc]
                table=self.table_name,
                micro_batch_id=micro_batch_id,
            )
            result = sum_results(collected)
            self._follow_sizes(frame, result, run)
            clock.lap("job")
            if result.seen:
                self._discard(result)
                raise add_columns(self._tables[0], result.seen)
            found = last_truncates(result.truncated)
            if found == truncates:
                break
            self._discard(result)
            truncates = self._truncated(found, batch, run, self._tables)
            checks = [table.has_committed(batch) for table in self._tables]
            clock.lap("truncate")
        carried = self._check(result, micro_batch_id, last, ranges)  # 3
        if self._dead_letters is not None:
            self._dead_letters.commit(batch, result.dead_letter_messages)  # 4
        reports = [
            table.commit(batch, result.messages.get(index, ()), carried, clock)  # 5
            for index, (table, check) in enumerate(zip(self._tables, checks, strict=True))
            if not check.is_committed and (index in result.messages or len(self._tables) == 1)
        ]
        report = BatchReport.of_tables(
            self._commit_user,
            micro_batch_id,
            result,
            reports,
            task_count=task_count,
            left_out=tuple(name for table in self._tables for name in table.left_out(result.notes)),
            times_ms=clock.times_ms,
        )
        return replace(report, table_events=truncate_texts(truncates, self._tables))

    def _write_many(
        self, many: ManyTables, frame: DataFrame, batch: BatchIdentity, run: _ActiveRun, clock: LapClock
    ) -> BatchReport:
        """A batch of many tables: the ledger says whether it is done, and gets it last. What is new is followed, and
        the job is run again; so it is where a table is set apart."""
        number = batch.micro_batch_id
        held = many.ledger.has_committed(batch)
        if held.is_committed:
            return BatchReport(self._commit_user, number, is_replay=True)
        last = None if held.last is None else held.last.identifier
        refuse_missing_batches(last, number, table=many.ledger.table.name, pipeline=self._commit_user)
        starts = batch_starts(run.query, number)
        many.begin(number, held, starts)
        ranges = self._direct_ranges(run)
        truncates: Truncates = {}
        look = self._first_look(many, ranges, number, starts)
        for _ in range(ROUNDS_MAX if look is None else ROUNDS_MAX + 1):
            tables = many.round(number, starts)
            checks = [table.has_committed(batch) for table in tables]
            for index, each in enumerate(checks[1:], 1):
                many.judged(index, each)
            clock.lap("look")
            context = frame.sparkSession.sparkContext
            pins = {
                index: table.pin(number, None, context, check, truncates.get(index))
                for index, (table, check) in enumerate(zip(tables, checks, strict=True))
            }
            try:
                collected, task_count = run_whole_job(
                    lambda pins=pins, look=look: self._collect(frame, pins, run, ranges, look),  # type: ignore[misc]
                    table=self.table_name,
                    micro_batch_id=number,
                )
                result = sum_results(collected)
            except TableFailedError as error:
                if not many.set_apart(error.table_index, error.cause, number, starts):
                    raise error.cause from None
                continue
            self._follow_sizes(frame, result, run)
            clock.lap("job" if look is None else "first look")
            found = last_truncates(result.truncated)
            if look is None and not result.seen and found == truncates:
                break
            self._discard(result, tables)
            if look is not None or result.seen:
                many.follow(result.seen, number, starts)
                if look is not None:
                    many.forget_deletions()
                    look = None
                clock.lap("follow")
                continue
            try:
                truncates = self._truncated(found, batch, run, tables)
            except TableFailedError as error:
                if not many.set_apart(error.table_index, error.cause, number, starts):
                    raise error.cause from None
            clock.lap("truncate")
        else:
            raise PipelineFailedError(
                f"the tables of batch {number} still do not fit its records after {ROUNDS_MAX} tries: a source whose "
                "tables change with every record, or a bug of Freshet; nothing was committed",
                pipeline=self._commit_user,
                micro_batch_id=number,
            )
        self._check(result, number, held.last, ranges, tables)
        if self._dead_letters is not None:
            self._dead_letters.commit(batch, result.dead_letter_messages)
        reports, written = [], []
        for index, (table, check) in enumerate(zip(tables, checks, strict=True)):
            if index and (check.is_committed or index in result.messages or index in truncates):
                written.append(index)
                if not check.is_committed:
                    reports.append(table.commit(batch, result.messages.get(index, ()), None, clock))
        done = many.ledger.commit(batch, many.rows(batch, written, pins[0]), None, clock)
        many.committed(done.snapshot_ids)
        return replace(
            BatchReport.of_tables(
                self._commit_user, number, result, reports, task_count=task_count, left_out=(), times_ms=clock.times_ms
            ),
            table_events=(*many.take_events(), *truncate_texts(truncates, tables)),
            is_replay=False,
        )

    def _truncated(
        self, found: Truncates, batch: BatchIdentity, run: _ActiveRun | None, tables: Sequence[TableCommit]
    ) -> Truncates:
        """Empties the tables whose sources were truncated (`truncates`)."""
        ends = None if run is None else run.query.offsets(batch.micro_batch_id)
        refuse_unordered(found, ends or (), is_alone=self._many is None)
        for index in found:
            try:
                tables[index].truncate(batch)
            except StorageError as error:
                if self._many is None:
                    raise
                raise TableFailedError(index, error) from error
        return found

    def _direct_ranges(self, run: _ActiveRun | None) -> Ranges | None:
        """What the workers read themselves; None where Spark does."""
        if self._direct is None or run is None or (self._planned_tasks is None and self._many is None):
            return None
        ranges = planned_ranges(run.query)
        return ranges if ranges and self._direct.takes(ranges) else None

    def _first_look(
        self, many: ManyTables, ranges: Ranges | None, number: int, starts: Offsets
    ) -> tuple[DirectReads, Ranges] | None:
        """Some of the records, from which the tables are described; None where there are tables, or few records."""
        if self._direct is None or ranges is None or len(many.round(number, starts)) > 1:
            return None
        return self._direct.first_look(ranges)

    def _collect(
        self,
        frame: DataFrame,
        pins: Mapping[int, BatchPin],
        run: _ActiveRun | None,
        ranges: Ranges | None,
        look: tuple[DirectReads, Ranges] | None = None,
    ) -> tuple[list[bytes], int]:
        """The results of the tasks, and how many tasks there are at most."""
        if look is not None:
            direct, pieces = look
            return self._collect_direct(direct, frame.sparkSession, pieces, pins)
        if ranges is not None and self._direct is not None:
            return self._collect_direct(self._direct, frame.sparkSession, ranges, pins)
        if self._planned_tasks is not None:
            if run is None:
                raise InvalidRequestError("a frame of with_tasks runs in a streaming query; this batch belongs to none")
            hand_over(pins, frame.sparkSession.sparkContext)
            return run.query.collect_binary(), self._planned_tasks
        with self.arrow.in_force(frame.sparkSession):
            rows, task_count = self._job.tasks(frame, pins)
            return [row[0] for row in rows.collect()], task_count

    def _collect_direct(
        self, direct: DirectReads, spark: SparkSession, ranges: Ranges, pins: Mapping[int, BatchPin]
    ) -> tuple[list[bytes], int]:
        """The same of records that the workers read."""
        schema = direct.packed_schema()
        with batch_settings(spark, size_bytes=BATCH_BYTES):
            packed = None if schema is None else self._job.packed(spark, schema)
            if packed is None:
                rows, task_count = self._job.tasks(direct.frame(spark, ranges, None), pins)
            else:
                rows, task_count = packed.tasks(direct.frame(spark, ranges, packed.rule), pins)
            return collected_binary(rows), task_count

    def _follow_sizes(self, frame: DataFrame, result: TaskResult, run: _ActiveRun | None) -> None:
        """The Arrow batches and polls of the batch that comes next follow the records of this one."""
        self.arrow.saw(result.read.sizes)
        if self._planned_tasks is None:
            return
        self.arrow.follow(frame.sparkSession)
        if run is not None and self._follows_polls and result.read.sizes.largest:
            follow_sizes(run.query, self.arrow.sizes)

    def _active_run(self, frame: DataFrame, query_id: str | None) -> _ActiveRun | None:
        """The run of the query that this batch belongs to, looked for once."""
        if query_id is None:
            return None
        context = frame.sparkSession.sparkContext
        identity = (query_id, context.getLocalProperty(_RUN_PROPERTY))
        if self._run is None or self._run[0] != identity:
            query = ActiveQuery.find(frame, query_id)
            self._run = (identity, None if query is None else _ActiveRun.of(frame.sparkSession, query))
        return self._run[1]

    def _check(
        self,
        result: TaskResult,
        micro_batch_id: int,
        last: CommitTrace | None,
        ranges: Ranges | None,
        tables: Sequence[TableCommit] | None = None,
    ) -> str | None:
        """Raises where the batch must not be committed; gives what the history is to carry."""
        if ranges is not None:
            refuse_unread(result, ranges, pipeline=self._commit_user, micro_batch_id=micro_batch_id)
        broken = result.read.broken_partitions()
        if broken or result.read_count != result.record_count:
            where = f"; rows of Spark partitions {broken} are missing or there twice" if broken else ""
            raise PipelineFailedError(
                f"{result.read_count} records entered, but the tasks report {result.applied} applied, "
                f"{result.dead_count} dead-lettered and {result.skipped_count} skipped{where}; nothing was committed. "
                "Either the source gave other rows when Spark computed a part of the batch again, or this is a bug of "
                "Freshet: please report it with the log of the run",
                pipeline=self._commit_user,
                micro_batch_id=micro_batch_id,
            )
        try:
            first = after_batch(self._first_tables(last), result.tables)
        except StoppedByRecordError:
            self._discard(result, tables)
            raise
        if self._max_dead_letters.is_exceeded(result.dead_count, result.read_count):
            self._discard(result, tables)
            raise PipelineFailedError(
                f"{result.dead_count} of the {result.read_count} records of the batch are dead letters, more than "
                f"{limit_text(self._max_dead_letters)} allows; nothing was committed, the dead letters neither. "
                f"The first are:\n{sample_text(result.first_dead)}\nLook whether format and schema of the source are "
                "right; to go on all the same, raise the limit",
                pipeline=self._commit_user,
                micro_batch_id=micro_batch_id,
                kind=ErrorKind.INVALID_REQUEST,
            )
        return None if self._is_replay else carried_text(first)

    @property
    def _is_replay(self) -> bool:
        """Of dead letters: what they are was read under the name of their pipeline."""
        return self._pipeline != self._commit_user

    def _first_tables(self, last: CommitTrace | None) -> FirstTables:
        if self._is_replay:
            last = _newest(table.last_commit_of(self._pipeline) for table in self._tables)
        return first_tables(None if last is None else last.carried)

    def _discard(self, result: TaskResult, tables: Sequence[TableCommit] | None = None) -> None:
        for index, messages in result.messages.items():
            (tables or self._tables)[index].discard(messages)
        if self._dead_letters is not None:
            self._dead_letters.discard(result.dead_letter_messages)


def _newest(commits: Iterable[CommitTrace | None]) -> CommitTrace | None:
    """Of the last commits in the tables of a query, the one of its newest batch."""
    return max((each for each in commits if each is not None), key=lambda each: each.identifier, default=None)
