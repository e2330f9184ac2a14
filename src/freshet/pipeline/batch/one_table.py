"""A query into one table: how the rows of its frames reach the tasks that write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from freshet.pipeline.batch.assigner_task import AssignerTask
from freshet.pipeline.batch.batch_pin import BatchPin
from freshet.pipeline.batch.bucket_task import BucketTask
from freshet.pipeline.batch.dead_letters import DeadLetterCommit
from freshet.pipeline.batch.direct_reads import DirectReads
from freshet.pipeline.batch.key_task import KeyTask
from freshet.pipeline.batch.mover_task import MoverTask
from freshet.pipeline.batch.packed_rows import PackedTasks, PackRule
from freshet.pipeline.batch.query_run import QueryRun
from freshet.pipeline.batch.routing import Routing, TaskPlan, is_outcomes, route_outcomes, route_rows
from freshet.pipeline.batch.small_batches import TASKS_MAX
from freshet.pipeline.batch.table_commit import TableCommit
from freshet.pipeline.batch.task_result import RESULT_SPARK_SCHEMA
from freshet.pipeline.config.model import CompactionConfig, MaxDeadLetters
from freshet.pipeline.decode.outcomes import DATA_PREFIX
from freshet.pipeline.identity.missing_batches import AcceptedLoss
from freshet.pipeline.identity.planned_isolation import PlannedBefore
from freshet.pipeline.spark.arrow_map import ArrowFunction, schema_text
from freshet.pipeline.spark.single_stage import SingleStage
from freshet.storage.model.schema import TableSchema
from freshet.storage.table import Table, TableHandle

_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"


def one_table_run(
    table: Table,
    commit_user: str,
    *,
    decoded: TableSchema | None = None,
    dead_letters: Table | None = None,
    letter_commit: DeadLetterCommit | None = None,
    max_dead_letters: MaxDeadLetters | None = None,
    options: Mapping[str, str] | None = None,
    tasks_max: int | None = None,
    pipeline: str | None = None,
    compaction: CompactionConfig | None = None,
    writes_all_batches: bool = False,
    follows_polls: bool = False,
    direct: DirectReads | None = None,
    accepted_loss: AcceptedLoss | None = None,
    planned_before: PlannedBefore | None = None,
) -> QueryRun:
    """A query whose rows all go into `table`; arguments as those of `TableCommit`, `OneTableJob` and `QueryRun`.

    `letter_commit` commits dead letters, by default under the identity of their batch.
    """
    commit = TableCommit(table, commit_user, decoded=decoded, options=options, compaction=compaction)
    letters = None if dead_letters is None else dead_letters.handle
    return QueryRun(
        [commit],
        OneTableJob(commit, pipeline or commit_user, dead_letters=letters, tasks_max=tasks_max),
        commit_user,
        pipeline=pipeline,
        dead_letters=letter_commit or dead_letters,
        max_dead_letters=max_dead_letters,
        writes_all_batches=writes_all_batches,
        follows_polls=follows_polls,
        direct=direct,
        accepted_loss=accepted_loss,
        planned_before=planned_before,
    )


class OneTableJob:
    """The job of a batch whose rows all go into one table."""

    def __init__(
        self, commit: TableCommit, pipeline: str, *, dead_letters: TableHandle | None, tasks_max: int | None
    ) -> None:
        """`pipeline` is the name that dead letters carry."""
        self._commit = commit
        self._pipeline = pipeline
        self._dead_letters = dead_letters
        self._tasks_max = tasks_max
        self._decoded_options = commit.table.options
        self._routing: tuple[object, Routing] | None = None

    def tasks(self, frame: DataFrame, pins: Mapping[int, BatchPin] | None = None) -> tuple[DataFrame, int]:
        """As `BatchJob` says."""
        routing = self._plan(frame)
        task = self._task(routing, None if pins is None else pins[0])
        distributed = routing.distributed(frame, self._assigner(routing, task))
        rows = routing.crossing.map_in_arrow(distributed, task, RESULT_SPARK_SCHEMA)
        return rows, routing.task_count

    def packed(self, spark: SparkSession, schema: pa.Schema) -> PackedTasks | None:
        """As `BatchJob` says."""
        routing = self._outcomes(spark, schema.names)
        if routing.task is None or routing.assigners is not None or self._decoded_options.has_postponed_buckets:
            return None
        decoded = self._commit.decoded
        indexes = {name: index for index, name in enumerate(decoded.column_names)}
        partition_columns = tuple(f"{DATA_PREFIX}{indexes[name]}" for name in decoded.partition_keys)
        rule = PackRule(partition_columns, routing.bucket_count is not None, routing.task_count)
        return PackedTasks(rule, lambda pins: self._task(routing, pins[0]), schema)

    def single_stage(self, frame: DataFrame, decoder: ArrowFunction | None) -> SingleStage | None:
        """As `BatchJob` says."""
        routing, options = self._plan(frame), self._decoded_options
        if options.has_dynamic_buckets or options.has_postponed_buckets or routing.task_count > TASKS_MAX:
            return None
        if options.full_compaction_delta_commits is not None:
            return None  # some of its small batches compact all of the table
        task = replace(self._task(routing, None), parallelism=routing.task_count)
        return SingleStage(frame.sparkSession.sparkContext, task, decoder, RESULT_SPARK_SCHEMA)

    def _plan(self, frame: DataFrame) -> Routing:
        """The routing of this frame, planned once per schema of table and frame."""
        identity = (self._commit.table.schema.id, schema_text(frame))
        if self._routing is None or self._routing[0] != identity:
            self._routing = (identity, self._route(frame))
        return self._routing[1]

    def _route(self, frame: DataFrame) -> Routing:
        spark, table = frame.sparkSession, self._commit.table
        if is_outcomes(frame.columns):
            return self._outcomes(spark, frame.columns)
        is_rescaled = table.engine.is_rescaled()
        return route_rows(frame, table.schema, table.options, self._task_plan(spark), is_rescaled=is_rescaled)

    def _task_plan(self, spark: SparkSession) -> TaskPlan:
        return TaskPlan(
            shuffle_partitions=self._tasks_max or int(spark.conf.get(_SHUFFLE_PARTITIONS) or "200"),
            parallelism=spark.sparkContext.defaultParallelism,
        )

    def _outcomes(self, spark: SparkSession, names: Sequence[str]) -> Routing:
        """The routing of a frame of outcomes with these columns."""
        table, tasks = self._commit.table, self._task_plan(spark)
        is_rescaled = table.engine.is_rescaled()
        self._commit.refuse_other_columns()
        is_rescaled = is_rescaled or self._decoded_options.bucket != table.options.bucket
        return route_outcomes(names, self._commit.decoded, self._decoded_options, tasks, is_rescaled=is_rescaled)

    def _assigner(self, routing: Routing, task: BucketTask) -> KeyTask | None:
        stage = routing.assigners
        if stage is None:
            return None
        kind = MoverTask if stage.moves_rows else AssignerTask
        return kind(task.table, task.columns, stage.count, task.pin)

    def _task(self, routing: Routing, pin: BatchPin | None) -> BucketTask:
        return BucketTask(
            table=self._commit.table.handle,
            pipeline=self._pipeline,
            columns=routing.columns,
            bucket_count=routing.bucket_count,
            dead_letters=self._dead_letters,
            pin=pin,
            are_moved=routing.assigners is not None and routing.assigners.moves_rows,
        )
