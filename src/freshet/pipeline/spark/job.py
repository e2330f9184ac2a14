"""The one job of each batch of a query on Spark: what reads its records, and how its results come back.

| the records are read by | the plan is |
|---|---|
| the workers (`query.driver.direct_reads`) | that of a frame of their ranges |
| Spark, of a frame of `with_tasks` | that of the query itself, which has the tasks in it |
| the same, and the batch is small (`single_stage`) | that of the query without its shuffle: one task |
| Spark, of any other frame | made here, batch by batch |

The job of a batch, run again as a whole where Spark could not repair it after an executor was lost.

Spark computes the shuffle output of a lost executor again. Where that output is not what it was (the report of an
assigner names other index files at each attempt, and frames of users need not be deterministic) and a task behind the
shuffle has ended already, Spark ends the job, since rows of both attempts would come together. Nothing of the batch is
committed then: the same job from the start gives one consistent result, and what the first has written are orphans.
Source: `spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch`, Spark 4.2.

Parameters of Kafka's client that change while a query runs, for the batches of Spark's source.

| parameter | changes |
|---|---|
| `max.poll.records` | as the sizes of the records do, where it is half or twice the other |
| `isolation.level` | for a batch that was planned under another one (`identity.planned_isolation`) |

Spark takes them when a query starts. The consumers of each batch are made by the parameters that the source holds, or
taken from those that are kept. They are kept by group, and must have the parameters that their group had at first. So
another value comes with another group; what is kept of the old one goes after some idle minutes.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Final, Protocol, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.logstore.kafka.record_sizes import RecordSizes
from freshet.pipeline.identity.planned_isolation import PlannedBefore
from freshet.pipeline.query.driver.direct_reads import DirectReads, look_pieces
from freshet.pipeline.query.driver.engine import MicroBatch
from freshet.pipeline.query.task.batch_work import BatchWork
from freshet.pipeline.query.wire.batch_pin import BatchPin, Handed
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.query.wire.ranges import Ranges
from freshet.pipeline.query.wire.task_result import TaskResult, sum_results
from freshet.pipeline.spark.active_query import ActiveQuery, collected_binary
from freshet.pipeline.spark.arrow_batches import BATCH_BYTES, ArrowBatches, batch_settings
from freshet.pipeline.spark.engine import SparkEngine, hand_over
from freshet.pipeline.spark.fetch_sizes import CLIENT_POLL_RECORDS, FETCH_MIN_BYTES, poll_records
from freshet.pipeline.spark.single_stage import RANGES_MAX, SingleStage, is_small
from freshet.storage.exceptions import InvalidRequestError

_STATE: Final = "state"
"""The folder of a checkpoint in which Spark keeps what stateful operators know."""

ATTEMPTS_MAX: Final = 4
"""As often as Spark tries a task."""

_MIXED_ATTEMPTS: Final = "shuffle map stage with indeterminate output was failed and retried"
_LOG: Final = logging.getLogger(__name__)

_Result = TypeVar("_Result")
_POLL: Final = "max.poll.records"
_FETCH: Final = "max.partition.fetch.bytes"
_ISOLATION: Final = "isolation.level"
_GROUP: Final = "group.id"
_MARK: Final = re.compile(r"-poll\d+$")


class Way(Protocol):
    """How the records of a query reach the tasks that write them (`packed_way`, `column_way`)."""

    @property
    def table_name(self) -> str:
        """What messages call the tables."""

    def tasks(self, frame: DataFrame) -> tuple[DataFrame, int]:
        """A frame followed by the work of its tasks, a row for each (`task_result`), and how many there are at most."""

    def tasks_of_ranges(self, spark: SparkSession, direct: DirectReads, ranges: Ranges) -> tuple[DataFrame, int]:
        """The same of the records of ranges that the workers read."""

    def single_stage(self, frame: DataFrame) -> SingleStage | None:
        """All work of a small batch of `tasks` of this frame in one task; None where its tasks have to be several."""

    def followed(self) -> KeptValue[BatchWork] | None:
        """The work of the batch that comes next, where it is another one than that of the first plan."""


class SparkJob:
    """A `Job`: runs the batches of one query."""

    def __init__(
        self,
        way: Way,
        *,
        direct: DirectReads | None = None,
        plans_batches: bool = False,
        follows_polls: bool = False,
        planned_before: PlannedBefore | None = None,
        given: Ranges | None = None,
        frame: DataFrame | None = None,
    ) -> None:
        """`direct` reads the records of its Kafka sources for Spark, batch by batch, where it takes them; with
        `plans_batches` the job is planned for each batch, whoever reads its records. `follows_polls` says that the
        polls of its Kafka sources follow the sizes of their records. `planned_before` is a batch that is read under
        another isolation than the sources have now. A job that is no query's reads `given` ranges, or `frame`.
        """
        self._way = way
        self._direct = direct
        self._plans_batches = plans_batches
        self._follows_polls = follows_polls
        self._planned_before = planned_before
        self._given = given
        self._frame = frame
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

    def with_tasks(self, frame: DataFrame) -> DataFrame:
        """A streaming frame followed by the work of its tasks, which each `run` collects.

        So the plan of a query holds all that a batch does, and nothing is planned for one batch but what Spark plans.
        """
        rows, self._planned_tasks = self._way.tasks(frame)
        self._single = self._way.single_stage(frame)
        self._ran = None
        return rows

    def ranges(self, batch: MicroBatch) -> Ranges | None:
        """`Job.ranges`."""
        self._is_small = False
        query, direct = _query_of(batch), self._direct_of(batch)
        if query is None:
            return self._given
        is_of_use = self.is_planned or self._plans_batches
        if not is_of_use or (direct is None and self._single is None):
            return None
        ranges = _planned_ranges(query, RANGES_MAX if direct is None else math.inf)
        if ranges and direct is not None and direct.takes(ranges):
            return ranges
        self._is_small = self._single is not None and bool(ranges) and is_small(ranges or {}, self.arrow.sizes)
        return None

    def planned_ranges(self, batch: MicroBatch) -> Ranges | None:
        """`Job.planned_ranges`."""
        query = _query_of(batch)
        return None if query is None else _planned_ranges(query, math.inf)

    def first_look(self, batch: MicroBatch, ranges: Ranges | None) -> Ranges | None:
        """`Job.first_look`: the job of a first batch, which else is run twice, is run once and a little more."""
        pieces = look_pieces((ranges or {}).get(0, ()))
        return None if pieces is None else {0: pieces}

    def run(
        self, batch: MicroBatch, pins: Mapping[int, BatchPin], ranges: Ranges | None, *, is_look: bool = False
    ) -> tuple[TaskResult, int]:
        """`Job.run`. What is set for the batch that comes next follows the records of this one."""
        before, query = self._before(batch), _query_of(batch)
        with nullcontext() if query is None or before is None else read_under(query, before):
            collected, task_count = retry_whole_job(
                lambda: self._collect(batch, pins, ranges, is_look=is_look),
                table=self._way.table_name,
                micro_batch_id=batch.number,
            )
        result = sum_results(collected)
        self._follow_sizes(batch.frame, result, query)
        return result, task_count

    def keep_state(self, batch: MicroBatch) -> None:
        """`Job.keep_state`: Spark ends a query whose stateful operators have not all run, and keeps no state."""
        if batch.query is not None and not self.is_planned and batch.query.folder.numbers(_STATE):
            batch.frame.write.format("noop").mode("overwrite").save()

    def _collect(
        self, batch: MicroBatch, pins: Mapping[int, BatchPin], ranges: Ranges | None, *, is_look: bool
    ) -> tuple[list[bytes], int]:
        """The results of the tasks, and how many tasks there are at most."""
        assert isinstance(batch.engine, SparkEngine)
        spark, query, direct = batch.engine.session, _query_of(batch), self._direct_of(batch)
        if ranges and direct is not None:
            hand_over(Handed(pins), spark.sparkContext)
            with batch_settings(spark, size_bytes=BATCH_BYTES):
                reads = direct.for_a_look() if is_look else direct
                rows, task_count = self._way.tasks_of_ranges(spark, reads, ranges)
                return collected_binary(rows), task_count
        if self._planned_tasks is not None:
            if query is None:
                raise InvalidRequestError("a frame of with_tasks runs in a streaming query; this batch belongs to none")
            hand_over(Handed(pins, self._way.followed()), spark.sparkContext)
            if self._is_small and self._single is not None:
                results = query.collect_in_one_task(self._single)
                if results is not None:
                    return results, 1
            # What its stages gave at the first time, assigners of dynamic buckets too, is of other pins.
            anew, self._ran = self._ran == batch.number, batch.number
            return query.collect_binary(anew=anew), self._planned_tasks
        hand_over(Handed(pins, self._way.followed()), spark.sparkContext)
        with self.arrow.in_force(spark):
            rows, task_count = self._way.tasks(batch.frame if self._frame is None else self._frame)
            # Not `collected_binary`: `collect` makes the session with these limits the active one.
            return [row[0] for row in rows.collect()], task_count

    def _direct_of(self, batch: MicroBatch) -> DirectReads | None:
        """What reads the records of a batch, under the isolation that it was planned with."""
        before = self._before(batch)
        return self._direct if self._direct is None or before is None else self._direct.under(before)

    def _before(self, batch: MicroBatch) -> Mapping[int, str] | None:
        """The isolations of a batch that was planned under others than those of the sources now."""
        before = self._planned_before
        return before.isolations if before is not None and before.micro_batch_id == batch.number else None

    def _follow_sizes(self, frame: Any, result: TaskResult, query: ActiveQuery | None) -> None:
        """The Arrow batches and polls of the batch that comes next follow the records of this one."""
        self.arrow.saw(result.read.sizes)
        if self._planned_tasks is None:
            return
        self.arrow.follow(frame.sparkSession)
        if query is not None and self._follows_polls and result.read.sizes.largest:
            follow_sizes(query, self.arrow.sizes)


def _query_of(batch: MicroBatch) -> ActiveQuery | None:
    """The query of a batch that `SparkEngine.batch` has made."""
    assert batch.query is None or isinstance(batch.query, ActiveQuery)
    return batch.query


def _planned_ranges(query: ActiveQuery, most: float) -> Ranges | None:
    """What the plan of the batch reads; None where a source is not Kafka, or has more than `most` ranges."""
    found = query.kafka_ranges(most)
    return None if found is None else {index: [OffsetRange(*each) for each in ranges] for index, ranges in found}


def retry_whole_job(run: Callable[[], _Result], *, table: str, micro_batch_id: int) -> _Result:
    """What `run` gives; called again where it fails because results of two attempts would come together."""
    for attempt in range(1, ATTEMPTS_MAX):
        try:
            return run()
        except (Py4JError, PySparkException) as error:
            if _MIXED_ATTEMPTS not in str(error):
                raise
            _LOG.warning(
                "table %s: the job of batch %d is run again from its start, since an executor was lost whose shuffle "
                "output cannot be computed as it was (attempt %d of %d)",
                table,
                micro_batch_id,
                attempt + 1,
                ATTEMPTS_MAX,
            )
    return run()


def follow_sizes(query: ActiveQuery, sizes: RecordSizes) -> None:
    """The next batch of a query polls as these sizes ask for. Of several sources none gets more than it has: which
    of them has the large records is not known."""
    try:
        sources = query.kafka_parameters().values()
        for parameters in sources:
            now = int(parameters.get(_POLL) or CLIENT_POLL_RECORDS)  # a map of the JVM knows no default
            wanted = poll_records(int(parameters.get(_FETCH) or FETCH_MIN_BYTES), sizes)
            if 2 * wanted <= now or (len(sources) == 1 and wanted >= 2 * now):
                parameters[_GROUP] = f"{_MARK.sub('', str(parameters.get(_GROUP)))}-poll{wanted}"
                parameters[_POLL] = str(wanted)
    except Py4JError as error:
        _LOG.warning("polls keep their number of records: %s", error)


@contextmanager
def read_under(query: ActiveQuery, isolations: Mapping[int, str]) -> Iterator[None]:
    """The jobs of the block read each Kafka source under its isolation of these."""
    sources = query.kafka_parameters()
    kept = {index: {key: each.get(key) for key in (_ISOLATION, _GROUP)} for index, each in sources.items()}
    for index, parameters in sources.items():
        parameters[_ISOLATION] = isolations[index]
        parameters[_GROUP] = f"{kept[index][_GROUP]}-{isolations[index]}"
    try:
        yield
    finally:
        for index, parameters in sources.items():
            for key, text in kept[index].items():
                parameters[key] = text
