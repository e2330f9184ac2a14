"""The one job of each batch of a query: what reads its records, and how its results come back.

| the records are read by | the plan is |
|---|---|
| the workers (`direct_reads`) | that of a frame of their ranges |
| Spark, of a frame of `with_tasks` | that of the query itself, which has the tasks in it |
| the same, and the batch is small (`small_batches`) | that of the query without its shuffle: one task |
| Spark, of any other frame | made here, batch by batch |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from freshet.pipeline.batch.arrow_batches import BATCH_BYTES, ArrowBatches
from freshet.pipeline.batch.batch_pin import BatchPin, hand_over
from freshet.pipeline.batch.direct_reads import DirectReads, Ranges, planned_ranges
from freshet.pipeline.batch.kafka_polls import follow_sizes
from freshet.pipeline.batch.packed_rows import PackedTasks
from freshet.pipeline.batch.replayed_isolation import read_under
from freshet.pipeline.batch.small_batches import RANGES_MAX, is_small
from freshet.pipeline.batch.task_result import TaskResult, sum_results
from freshet.pipeline.batch.whole_job import run_whole_job
from freshet.pipeline.identity.planned_isolation import PlannedBefore
from freshet.pipeline.spark.active_query import ActiveQuery, collected_binary
from freshet.pipeline.spark.arrow_map import ArrowFunction
from freshet.pipeline.spark.batch_settings import batch_settings
from freshet.pipeline.spark.single_stage import SingleStage
from freshet.storage.exceptions import InvalidRequestError

Look = tuple[DirectReads, Ranges]
"""Some of the records of a batch, and what reads them."""


class BatchJob(Protocol):
    """The one job of a batch: how the rows of a frame reach the tasks that write them."""

    def tasks(self, frame: DataFrame, pins: Mapping[int, BatchPin] | None = None) -> tuple[DataFrame, int]:
        """The frame followed by the work of its tasks, a row for each (`task_result`), and how many there are at most.

        `pins` are those of the batch by the index of the table; None for the plan of a query, whose tasks find those
        of each batch (`pin_of_this_task`).
        """

    def single_stage(self, frame: DataFrame, decoder: ArrowFunction | None) -> SingleStage | None:
        """All work of a small batch of `tasks` of this frame in one task; None where its tasks have to be several.
        `decoder` is the one that gives all rows of the frame as they are, if there is one."""

    def packed(self, spark: SparkSession, schema: pa.Schema) -> PackedTasks | None:
        """The tasks for outcomes of this schema that come packed; None where they have to cross as rows."""


class QueryJob:
    """Runs `job` for the batches of one query; `table_name` is what messages call its tables."""

    def __init__(
        self,
        job: BatchJob,
        table_name: str,
        *,
        direct: DirectReads | None,
        is_of_many: bool,
        follows_polls: bool,
        planned_before: PlannedBefore | None = None,
    ) -> None:
        """`is_of_many`: the job is planned for each batch, whoever reads its records. `direct`, `follows_polls` and
        `planned_before` are those of `QueryRun`."""
        self._job = job
        self._table_name = table_name
        self._direct = direct
        self._direct_now = direct
        """The same for the batch whose ranges were asked for last."""
        self._is_of_many = is_of_many
        self._follows_polls = follows_polls
        self._planned_before = planned_before
        self._planned_tasks: int | None = None
        self._single: SingleStage | None = None
        self._is_small = False
        """Whether the batch whose ranges were asked for last is run in one task."""
        self._ran: int | None = None
        """The batch whose plan of the query has run."""
        self.arrow = ArrowBatches()
        """What bounds the Arrow batches of the query."""

    @property
    def is_planned(self) -> bool:
        """Whether the query has its tasks in its own plan."""
        return self._planned_tasks is not None

    def with_tasks(self, frame: DataFrame, decoder: ArrowFunction | None = None) -> DataFrame:
        """A streaming frame followed by the work of its tasks, which each `run` collects; `decoder` as `BatchJob`
        says."""
        rows, self._planned_tasks = self._job.tasks(frame)
        self._single = self._job.single_stage(frame, decoder)
        self._ran = None
        return rows

    def ranges(self, query: ActiveQuery | None, micro_batch_id: int) -> Ranges | None:
        """What the workers read themselves of the batch; None where Spark does."""
        self._is_small = False
        before = self._before(micro_batch_id)
        self._direct_now = self._direct if self._direct is None or before is None else self._direct.under(before)
        is_of_use = self.is_planned or self._is_of_many
        if query is None or not is_of_use or (self._direct is None and self._single is None):
            return None
        ranges = planned_ranges(query, RANGES_MAX if self._direct is None else math.inf)
        if ranges and self._direct is not None and self._direct.takes(ranges):
            return ranges
        self._is_small = self._single is not None and bool(ranges) and is_small(ranges or {}, self.arrow.sizes)
        return None

    def first_look(self, ranges: Ranges | None) -> Look | None:
        """Some of the records, from which the tables are described; None where few are read, or Spark reads them."""
        return None if self._direct_now is None or ranges is None else self._direct_now.first_look(ranges)

    def run(
        self,
        frame: DataFrame,
        micro_batch_id: int,
        pins: Mapping[int, BatchPin],
        query: ActiveQuery | None,
        ranges: Ranges | None,
        look: Look | None = None,
    ) -> tuple[TaskResult, int]:
        """The result of all tasks, and how many there are at most. What is set for the batch that comes next follows
        the records of this one. Raises `TableFailedError` where the work on a table failed for good."""
        before = self._before(micro_batch_id)
        with nullcontext() if query is None or before is None else read_under(query, before):
            collected, task_count = run_whole_job(
                lambda: self._collect(frame, micro_batch_id, pins, query, ranges, look),
                table=self._table_name,
                micro_batch_id=micro_batch_id,
            )
        result = sum_results(collected)
        self._follow_sizes(frame, result, query)
        return result, task_count

    def _collect(
        self,
        frame: DataFrame,
        micro_batch_id: int,
        pins: Mapping[int, BatchPin],
        query: ActiveQuery | None,
        ranges: Ranges | None,
        look: Look | None,
    ) -> tuple[list[bytes], int]:
        """The results of the tasks, and how many tasks there are at most."""
        if look is not None:
            direct, pieces = look
            return self._collect_direct(direct, frame.sparkSession, pieces, pins)
        if ranges is not None and self._direct_now is not None:
            return self._collect_direct(self._direct_now, frame.sparkSession, ranges, pins)
        if self._planned_tasks is not None:
            if query is None:
                raise InvalidRequestError("a frame of with_tasks runs in a streaming query; this batch belongs to none")
            hand_over(pins, frame.sparkSession.sparkContext)
            if self._is_small and self._single is not None:
                results = query.collect_in_one_task(self._single)
                if results is not None:
                    return results, 1
            # What its stages gave at the first time, assigners of dynamic buckets too, is of other pins.
            anew, self._ran = self._ran == micro_batch_id, micro_batch_id
            return query.collect_binary(anew=anew), self._planned_tasks
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

    def _before(self, micro_batch_id: int) -> Mapping[int, str] | None:
        """The isolations of a batch that was planned under others than those of the sources now."""
        before = self._planned_before
        return before.isolations if before is not None and before.micro_batch_id == micro_batch_id else None

    def _follow_sizes(self, frame: DataFrame, result: TaskResult, query: ActiveQuery | None) -> None:
        """The Arrow batches and polls of the batch that comes next follow the records of this one."""
        self.arrow.saw(result.read.sizes)
        if self._planned_tasks is None:
            return
        self.arrow.follow(frame.sparkSession)
        if query is not None and self._follows_polls and result.read.sizes.largest:
            follow_sizes(query, self.arrow.sizes)
