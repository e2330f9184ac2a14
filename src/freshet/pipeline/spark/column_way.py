"""The way of frames whose columns are Spark's: those of users, of tables that are followed, and what Spark computes.

Frames have the columns of the table, or are outcomes (`decode.outcomes`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from freshet.pipeline.query.driver.direct_reads import DirectReads
from freshet.pipeline.query.driver.engine import Engine
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.driver.task_plan import TaskPlan
from freshet.pipeline.query.task.batch_work import BatchWork, TableWork
from freshet.pipeline.query.task.key_task import AssignerTask, KeyTask, MoverTask
from freshet.pipeline.query.task.write_task import WriteTask
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.query.wire.ranges import Ranges
from freshet.pipeline.spark.arrow_bridge import schema_text
from freshet.pipeline.spark.engine import InTask
from freshet.pipeline.spark.packed_way import RESULT_STRUCT
from freshet.pipeline.spark.routing import Routing, is_outcomes, route_outcomes, route_rows
from freshet.pipeline.spark.single_stage import TASKS_MAX, SingleStage
from freshet.storage.table import TableHandle

_NO_RANGES: Final = "a frame of users has no source of which workers read ranges"

OutcomesOfRanges = Callable[[SparkSession, DirectReads, Ranges], DataFrame]


class ColumnWay:
    """A `Way` into one table."""

    def __init__(
        self,
        commit: TableCommit,
        engine: Engine,
        pipeline: str,
        *,
        dead_letters: TableHandle | None = None,
        of_ranges: OutcomesOfRanges | None = None,
        outcomes: Callable[[DataFrame], DataFrame] | None = None,
    ) -> None:
        """`pipeline` is the name that dead letters carry; `of_ranges` gives the outcomes of ranges that workers read;
        `outcomes` those of the frame of a batch, where it is one of raw records."""
        self._commit = commit
        self._engine = engine
        self._pipeline = pipeline
        self._dead_letters = dead_letters
        self._of_ranges = of_ranges
        self._outcomes_of = outcomes
        self._options = commit.table.options
        self._routing: tuple[object, Routing] | None = None

    @property
    def table_name(self) -> str:
        """`Way.table_name`."""
        return self._commit.table.name

    def tasks(self, frame: DataFrame) -> tuple[DataFrame, int]:
        """`Way.tasks`."""
        return self._written(frame if self._outcomes_of is None else self._outcomes_of(frame))

    def tasks_of_ranges(self, spark: SparkSession, direct: DirectReads, ranges: Ranges) -> tuple[DataFrame, int]:
        """`Way.tasks_of_ranges`."""
        assert self._of_ranges is not None, _NO_RANGES
        return self._written(self._of_ranges(spark, direct, ranges))

    def single_stage(self, frame: DataFrame) -> SingleStage | None:
        """`Way.single_stage`."""
        routing, options = self._plan(frame), self._options
        if options.has_dynamic_buckets or options.has_postponed_buckets or routing.task_count > TASKS_MAX:
            return None
        if options.full_compaction_delta_commits is not None:
            return None  # some of its small batches compact all of the table
        task = replace(self._task(routing), parallelism=routing.task_count)
        return SingleStage(frame.sparkSession.sparkContext, InTask((task,)), None, RESULT_STRUCT)

    def followed(self) -> KeptValue[BatchWork] | None:
        """`Way.followed`: the columns of a frame are its own."""
        return None

    def _written(self, frame: DataFrame) -> tuple[DataFrame, int]:
        routing = self._plan(frame)
        stage = None if routing.assigners is None else InTask((self._stage(routing),))
        rows = routing.crossing.map_in_arrow(
            routing.distributed(frame, stage), InTask((self._task(routing),)), RESULT_STRUCT
        )
        return rows, routing.task_count

    def _plan(self, frame: DataFrame) -> Routing:
        """The routing of this frame, planned once per schema of table and frame."""
        identity = (self._commit.table.schema.id, schema_text(frame))
        if self._routing is None or self._routing[0] != identity:
            self._routing = (identity, self._route(frame))
        return self._routing[1]

    def _route(self, frame: DataFrame) -> Routing:
        table, tasks = self._commit.table, TaskPlan(self._engine.tasks_max, self._engine.parallelism)
        is_rescaled = table.engine.is_rescaled()
        if not is_outcomes(frame.columns):
            return route_rows(frame, table.schema, table.options, tasks, is_rescaled=is_rescaled)
        self._commit.refuse_other_columns()
        is_rescaled = is_rescaled or self._options.bucket != table.options.bucket
        return route_outcomes(frame.columns, self._commit.decoded, self._options, tasks, is_rescaled=is_rescaled)

    def _stage(self, routing: Routing) -> KeyTask:
        stage = routing.assigners
        assert stage is not None
        kind = MoverTask if stage.moves_rows else AssignerTask
        return kind(self._commit.table.handle, routing.columns, stage.count)

    def _task(self, routing: Routing) -> WriteTask:
        table = TableWork(
            table=self._commit.table.handle,
            pipeline=self._pipeline,
            columns=routing.columns,
            bucket_count=routing.bucket_count,
            dead_letters=self._dead_letters,
            are_moved=routing.assigners is not None and routing.assigners.moves_rows,
        )
        return WriteTask(KeptValue(BatchWork({}, {0: table})))
