"""One micro-batch on the driver: asks whether it is done, runs the one job, commits.

    1. pin the base snapshot and ask the table whether this batch is committed: then nothing is run
    2. one Spark job: route, shuffle, write files (`bucket_task`), collect the commit messages. The queries of `runner`
       have it in their plan (`with_tasks`); for frames of users it is planned here, batch by batch
    3. check: records that entered (`read_count`) = applied + dead letters + skipped, and not too many are dead letters
    4. commit the dead letters under the identity of the batch, unless an earlier attempt did
    5. commit the rows, APPEND and then COMPACT; an empty batch is committed too. Files whose numbers lost the claim to
       another writer are written again by a job of their own (`renumber_job`). Where `full-compaction.delta-commits`
       has this batch compact the table, the driver compacts the buckets that no task wrote

| the driver dies | the replay finds | and |
|---|---|---|
| before 4 | neither table knows the batch | writes all again; the files of the dead attempt are orphans |
| between 4 and 5 | the dead letters know it | writes the rows, leaves the dead letters |
| after 5, before Spark's commit log | both know it | runs no job |
| while its tasks go on (zombie) | either | the commit that comes second finds the other, gives up |

Identity = (commit user, batch id, Spark's query id), and a digest of what the batch read (`read_digest`): a batch of a
known number that read something else is refused, and so is one of a pipeline whose batches before it are not in the
table (`missing_batches`). Source: pipeline/README.md, "How Spark 4.2.1 behaves".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import DataFrame

from freshet.pipeline.batch.arrow_batches import ArrowBatches
from freshet.pipeline.batch.batch_pin import BatchPin
from freshet.pipeline.batch.bucket_task import BucketTask
from freshet.pipeline.batch.dead_letter_sample import limit_text, sample_text
from freshet.pipeline.batch.kafka_polls import follow_sizes
from freshet.pipeline.batch.lap_clock import LapClock
from freshet.pipeline.batch.left_out import carried_columns, left_out_columns
from freshet.pipeline.batch.renumber_job import RenumberJob
from freshet.pipeline.batch.rounds_beside import BesideReport, RoundsBeside
from freshet.pipeline.batch.routing import Routing, TaskPlan, is_outcomes, route_outcomes, route_rows
from freshet.pipeline.batch.schema_follow import refuse_other_columns
from freshet.pipeline.batch.task_result import RESULT_SPARK_SCHEMA, TaskResult, sum_results
from freshet.pipeline.config.model import CompactionConfig, MaxDeadLetters
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError, StoppedByRecordError
from freshet.pipeline.identity.first_tables import FirstTables, after_batch, carried_text, first_tables
from freshet.pipeline.identity.missing_batches import refuse_missing_batches
from freshet.pipeline.identity.read_digest import ReadDigests
from freshet.pipeline.identity.replays import is_same_input, unproven_replay_text
from freshet.pipeline.spark.active_query import ActiveQuery
from freshet.pipeline.spark.arrow_map import schema_text
from freshet.storage.distributed_write import (
    CommitDigest,
    CommitMessage,
    CommitResult,
    Committer,
    CommitTrace,
    CompactionLimit,
)
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.schema import TableSchema
from freshet.storage.table import Table, TaskLog

_LOG: Final = logging.getLogger(__name__)
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_RUN_PROPERTY: Final = "spark.jobGroup.id"
"""Spark runs a query under the id of this run as its job group."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What became of one micro-batch. `times_ms` are the driver's steps; those of the tasks stand in `result`.

    `snapshot_ids` are the table's new snapshots; none when the batch was committed already (`is_replay`).
    """

    pipeline: str
    micro_batch_id: int
    result: TaskResult = field(default_factory=TaskResult)
    read_count: int = 0
    snapshot_ids: tuple[int, ...] = ()
    is_replay: bool = False
    level0_count: int = 0
    """Level-0 files of the buckets that the batch wrote."""
    level0_max: int = 0
    """Most level-0 files of one bucket."""
    rewrite_count: int = 0
    """How often files were written again because another writer had committed rows with their numbers."""
    rewritten_bytes: int = 0
    task_count: int = 0
    left_out: tuple[str, ...] = ()
    """Columns of the table that the pipeline file leaves out, though records of the batch carry a field of the name."""
    beside: BesideReport | None = None
    """What compaction beside the stream did since the batch before; None where there is none."""
    times_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _QueryRun:
    """One run of a streaming query."""

    query: ActiveQuery
    digests: ReadDigests


class MicroBatchWriter:
    """Writes the batches of one streaming query into one table; `commit_user` is the name of the pipeline."""

    def __init__(
        self,
        table: Table,
        commit_user: str,
        *,
        decoded: TableSchema | None = None,
        dead_letters: Table | None = None,
        max_dead_letters: MaxDeadLetters | None = None,
        options: Mapping[str, str] | None = None,
        tasks_max: int | None = None,
        pipeline: str | None = None,
        compaction: CompactionConfig | None = None,
        writes_all_batches: bool = False,
        follows_polls: bool = False,
    ) -> None:
        """`decoded` is the schema that frames of outcomes were decoded for, by default the table's of now; `pipeline`
        the name that dead letters carry, by default the commit user. `writes_all_batches` says that every batch of the
        query comes here, so that one which the table does not hold is an error. `follows_polls` says that the polls of
        its Kafka sources follow the sizes of their records."""
        self._table = table.with_options(options) if options else table
        self._decoded = decoded or table.schema
        self._options = tuple(sorted((options or {}).items()))
        self._decoded_options = self._table.options
        for trap in self._table.warnings():
            _LOG.warning("table %s: %s", self._table.name, trap)
        self._commit_user = commit_user
        self._pipeline = pipeline or commit_user
        self._dead_letters = dead_letters
        self._max_dead_letters = max_dead_letters or MaxDeadLetters()
        self._tasks_max = tasks_max
        self._writes_all_batches = writes_all_batches
        self._follows_polls = follows_polls
        self._routing: tuple[object, Routing] | None = None
        self._committers: dict[object, Committer] = {}
        self._log = self._table.open_log(commit_user) if self._table.has_log else None
        for warning in () if self._log is None else self._log.warnings:
            _LOG.warning("table %s: %s", self._table.name, warning)
        self._publisher = self._table.open_publisher() if self._table.publishes else None
        for warning in () if self._publisher is None else self._publisher.warnings:
            _LOG.warning("table %s: %s", self._table.name, warning)
        self._planned: Routing | None = None
        self._renumber_job: RenumberJob | None = None
        self.arrow = ArrowBatches()
        """What bounds the Arrow batches of the query."""
        self._run: tuple[object, _QueryRun | None] | None = None
        self._rounds = self._open_rounds(compaction or CompactionConfig())

    @property
    def table_name(self) -> str:
        """What messages call the table."""
        return self._table.name

    def with_tasks(self, frame: DataFrame) -> DataFrame:
        """A streaming frame followed by the work of its tasks: a row for each, which `write` collects.

        So the plan of a query holds all that a batch does, and nothing is planned for one batch but what Spark plans.
        """
        self._planned = routing = self._plan(frame)
        return routing.crossing.map_in_arrow(routing.distributed(frame), self._task(routing), RESULT_SPARK_SCHEMA)

    def close(self) -> None:
        """Ends what runs beside the batches."""
        if self._rounds is not None:
            self._rounds.close()
        if self._log is not None:
            self._log.close()
        if self._publisher is not None:
            self._publisher.close()

    def _open_rounds(self, compaction: CompactionConfig) -> RoundsBeside | None:
        if not compaction.beside:
            return None
        try:
            return RoundsBeside(self._table, self._commit_user, budget_ms=compaction.budget_ms)
        except InvalidRequestError as error:
            _LOG.warning("%s: %s", self._commit_user, error)
            return None

    def write(self, frame: DataFrame, micro_batch_id: int, query_id: str | None) -> BatchReport:
        """Writes one batch, once: of the frame that `with_tasks` gave, or else of outcomes or the table's columns.

        `query_id` is Spark's id of the streaming query.
        """
        clock = LapClock()
        self._refresh_schema()
        with self._turn() as limit:
            clock.lap("turn")
            report = self._write(frame, micro_batch_id, query_id, limit, clock)
        if self._rounds is None:
            return report
        buckets = {message.bucket_id for message in report.result.messages}
        self._rounds.after_batch(frame.sparkSession, buckets)
        return replace(report, beside=self._rounds.report())

    def _turn(self) -> AbstractContextManager[CompactionLimit | None]:
        return nullcontext() if self._rounds is None else self._rounds.batch(self._table)

    def _write(
        self,
        frame: DataFrame,
        micro_batch_id: int,
        query_id: str | None,
        limit: CompactionLimit | None,
        clock: LapClock,
    ) -> BatchReport:
        base = self._table.latest_snapshot()
        schema = self._table.schema
        log = None if self._log is None else TaskLog(self._log.identity, self._log.epoch, 0)
        pin = BatchPin(micro_batch_id, schema.id, schema.time_ms, None if base is None else base.id, limit, log)
        committer = self._committer(self._table, query_id)
        run = self._query_run(frame, query_id)
        digest = None if run is None else run.digests.digest(micro_batch_id)
        clock.lap("digest")
        check = committer.has_committed(micro_batch_id, digest=digest)
        if check.is_committed:  # 1
            if not is_same_input(check, micro_batch_id, digest):
                _LOG.warning(unproven_replay_text(self._table.name, self._commit_user, micro_batch_id))
            return BatchReport(self._commit_user, micro_batch_id, is_replay=True)
        if self._writes_all_batches:
            last = None if check.last is None else check.last.identifier
            refuse_missing_batches(last, micro_batch_id, table=self._table.name, pipeline=self._commit_user)
        if run is not None:
            run.digests.refuse_missing_files()
        clock.lap("look")
        collected, task_count = self._collect(frame, pin, run)  # 2
        result = sum_results(collected)
        self.arrow.saw(result.read.sizes)
        if self._planned is not None:
            self.arrow.follow(frame.sparkSession)
            if run is not None and self._follows_polls and result.read.sizes.largest:
                follow_sizes(run.query, self.arrow.sizes)
        clock.lap("job")
        tables = self._check(result, micro_batch_id, check.last)  # 3
        self._commit_dead_letters(result, micro_batch_id, query_id, digest)  # 4
        rest = self._table.complete_full_compaction(micro_batch_id, result.messages)
        self._renumber_job = RenumberJob(frame.sparkSession.sparkContext, self._table.handle, pin)
        committed = committer.commit(micro_batch_id, (*result.messages, *rest), digest=digest, carried=tables)  # 5
        committed = self._table.show_hidden_rows(committer, micro_batch_id, committed)
        if self._log is not None and committed.snapshots:
            self._log.committed(micro_batch_id, committed.snapshots[-1].id)
        clock.lap("commit")
        if self._publisher is not None:
            self._publisher.publish()
            clock.lap("publish")
        level0 = self._level0_counts(committed, result)
        clock.lap("count")
        return BatchReport(
            pipeline=self._commit_user,
            micro_batch_id=micro_batch_id,
            result=result,
            read_count=result.read_count,
            snapshot_ids=tuple(snapshot.id for snapshot in committed.snapshots),
            is_replay=committed.already_committed,
            level0_count=sum(level0),
            level0_max=max(level0, default=0),
            rewrite_count=committed.rewrite_count,
            rewritten_bytes=committed.rewritten_bytes,
            task_count=task_count,
            left_out=carried_columns(left_out_columns(schema, self._decoded), result.notes),
            times_ms=clock.times_ms,
        )

    def _collect(self, frame: DataFrame, pin: BatchPin, run: _QueryRun | None) -> tuple[list[bytes], int]:
        """What the tasks tell, and how many tasks there are at most."""
        if self._planned is not None:
            if run is None:
                raise InvalidRequestError("a frame of with_tasks runs in a streaming query; this batch belongs to none")
            pin.hand_over(frame.sparkSession.sparkContext)
            return run.query.collect_binary(), self._planned.task_count
        with self.arrow.in_force(frame.sparkSession):
            routing = self._plan(frame)
            task = self._task(routing, pin)
            told = routing.crossing.map_in_arrow(routing.distributed(frame), task, RESULT_SPARK_SCHEMA)
            return [row[0] for row in told.collect()], routing.task_count

    def _query_run(self, frame: DataFrame, query_id: str | None) -> _QueryRun | None:
        """The run of the query that this batch belongs to, looked for once."""
        if query_id is None:
            return None
        context = frame.sparkSession.sparkContext
        identity = (query_id, context.getLocalProperty(_RUN_PROPERTY))
        if self._run is None or self._run[0] != identity:
            query = ActiveQuery.find(frame, query_id)
            found = None if query is None else _QueryRun(query, ReadDigests(frame.sparkSession, query))
            self._run = (identity, found)
        return self._run[1]

    def _refresh_schema(self) -> None:
        """Follows a schema change made while the query runs."""
        latest_id = self._table.latest_schema_id()
        if latest_id is not None and latest_id != self._table.schema.id:
            self._table = self._table.with_options(dict(self._options))
            if self._planned is not None:
                refuse_other_columns(self._decoded, self._table.schema, self._table.name)

    def _committer(self, table: Table, query_id: str | None) -> Committer:
        """Kept from batch to batch: a committer knows the live files and reads only what is new."""
        identity = (table.location, table.schema.id, query_id)
        if identity not in self._committers:
            log = self._log.identity if self._log is not None and table is self._table else None
            self._committers[identity] = table.committer(self._commit_user, query_id, log=log, renumber=self._renumber)
        return self._committers[identity]

    def _renumber(
        self, _identifier: int, messages: Sequence[CommitMessage], base_id: int, headroom: int
    ) -> Sequence[CommitMessage]:
        assert self._renumber_job is not None, "only batches are committed"
        return self._renumber_job.run(messages, base_id, headroom)

    def _plan(self, frame: DataFrame) -> Routing:
        """The routing of this frame, planned once per schema of table and frame."""
        identity = (self._table.schema.id, schema_text(frame))
        if self._routing is None or self._routing[0] != identity:
            self._routing = (identity, self._route(frame))
        return self._routing[1]

    def _route(self, frame: DataFrame) -> Routing:
        spark = frame.sparkSession
        tasks = TaskPlan(
            shuffle_partitions=self._tasks_max or int(spark.conf.get(_SHUFFLE_PARTITIONS) or "200"),
            parallelism=spark.sparkContext.defaultParallelism,
        )
        names, is_rescaled = frame.columns, self._table.is_rescaled()
        if not is_outcomes(names):
            return route_rows(frame, self._table.schema, self._table.options, tasks, is_rescaled=is_rescaled)
        refuse_other_columns(self._decoded, self._table.schema, self._table.name)
        return route_outcomes(names, self._decoded, self._decoded_options, tasks, is_rescaled=is_rescaled)

    def _task(self, routing: Routing, pin: BatchPin | None = None) -> BucketTask:
        return BucketTask(
            table=self._table.handle,
            pipeline=self._pipeline,
            columns=routing.columns,
            bucket_count=routing.bucket_count,
            dead_letters=None if self._dead_letters is None else self._dead_letters.handle,
            pin=pin,
        )

    def _check(self, result: TaskResult, micro_batch_id: int, last: CommitTrace | None) -> str | None:
        """Raises where the batch must not be committed; gives what the history is to carry."""
        broken = result.read.broken_partitions()
        if broken or result.read_count != result.record_count:
            where = f"; rows of Spark partitions {broken} are missing or there twice" if broken else ""
            raise PipelineFailedError(
                f"{result.read_count} records entered, but the tasks tell of {result.applied} applied, "
                f"{result.dead_count} dead-lettered and {result.skipped_count} skipped{where}; nothing was committed. "
                "Either the source gave other rows when Spark computed a part of the batch again, or this is a bug of "
                "Freshet: please report it with the log of the run",
                pipeline=self._commit_user,
                micro_batch_id=micro_batch_id,
            )
        try:
            tables = after_batch(self._first_tables(last), result.tables)
        except StoppedByRecordError:
            self._discard(result)
            raise
        if self._max_dead_letters.is_exceeded(result.dead_count, result.read_count):
            self._discard(result)
            raise PipelineFailedError(
                f"{result.dead_count} of the {result.read_count} records of the batch are dead letters, more than "
                f"{limit_text(self._max_dead_letters)} allows; nothing was committed, the dead letters neither. "
                f"The first are:\n{sample_text(result.first_dead)}\nLook whether format and schema of the source are "
                "right; to go on all the same, raise the limit",
                pipeline=self._commit_user,
                micro_batch_id=micro_batch_id,
                kind=ErrorKind.INVALID_REQUEST,
            )

        return None if self._is_replay else carried_text(tables)

    @property
    def _is_replay(self) -> bool:
        """Of dead letters: what they are was read under the name of their pipeline."""
        return self._pipeline != self._commit_user

    def _first_tables(self, last: CommitTrace | None) -> FirstTables:
        if self._is_replay:
            last = self._table.committer(self._pipeline).last_commit()
        return first_tables(None if last is None else last.carried)

    def _discard(self, result: TaskResult) -> None:
        self._table.discard(result.messages)
        if self._dead_letters is not None:
            self._dead_letters.discard(result.dead_letter_messages)

    def _commit_dead_letters(
        self, result: TaskResult, micro_batch_id: int, query_id: str | None, digest: CommitDigest | None
    ) -> None:
        if self._dead_letters is None or not result.dead_letter_messages:
            return
        committer = self._committer(self._dead_letters, query_id)
        if not committer.has_committed(micro_batch_id, digest=digest).is_committed:
            committer.commit(micro_batch_id, result.dead_letter_messages, digest=digest)

    def _level0_counts(self, committed: CommitResult, result: TaskResult) -> list[int]:
        """Level-0 files of each bucket that was written; the others are not looked at, however many there are."""
        if not committed.snapshots:
            return []
        buckets = {message.bucket_id for message in result.messages}
        return self._table.level0_counts(committed.snapshots[-1], buckets)
