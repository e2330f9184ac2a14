"""Spark as the engine of a query (`query.driver.engine`): calls in its workers, batches of its streaming queries.

What is handed over to the tasks of a batch is a local property of the thread that runs the job; Spark hands it to every
attempt of every task.
"""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from freshet._frozen import Frozen
from freshet.pipeline.query.driver.background_rounds import POOL
from freshet.pipeline.query.driver.engine import EngineError, MicroBatch
from freshet.pipeline.query.wire.batch_pin import Handed, TaskPlace
from freshet.pipeline.spark.active_query import ActiveQuery

T = TypeVar("T")

_PROPERTY: Final = "freshet.batch"
_POOL: Final = "spark.scheduler.pool"
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_RUN_PROPERTY: Final = "spark.jobGroup.id"
"""Spark runs a query under the id of this run as its job group."""


class PlacedWork(Protocol):
    """A value that travels to the workers; what it does depends on where it runs."""

    def run(self, batches: Iterator[pa.RecordBatch], place: TaskPlace) -> Iterator[pa.RecordBatch]:
        """The rows of one task in, what is made of them out."""


class InTask(Frozen):
    """Works of a batch, one after the other, as an `ArrowFunction`: in the place of the task that calls it."""

    works: tuple[PlacedWork, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The call of an `ArrowFunction`."""
        place = place_of_this_task()
        for each in self.works:
            batches = each.run(batches, place)
        return batches


class _ItemCall(Frozen):
    """A call for one item, in the place of its task."""

    work: Callable[[Any, TaskPlace], bytes]

    def __call__(self, item: Any) -> bytes:
        return self.work(item, place_of_this_task())


def hand_over(handed: Handed, context: SparkContext) -> None:
    """The tasks of the jobs that this thread runs from now on find it."""
    context.setLocalProperty(_PROPERTY, b64encode(pickle.dumps(handed)).decode())


def place_of_this_task() -> TaskPlace:
    """Where the task runs that calls this."""
    context = TaskContext.get()
    if context is None:
        return TaskPlace(Handed())
    text = context.getLocalProperty(_PROPERTY)
    handed = Handed() if text is None else pickle.loads(b64decode(text))
    return TaskPlace(handed, context.partitionId(), context.taskAttemptId())


class SparkEngine:
    """The workers of a session, by default that of the batch that came last. `tasks_max` is by default
    `spark.sql.shuffle.partitions`."""

    def __init__(self, session: SparkSession | None = None, tasks_max: int | None = None) -> None:
        self._given = session
        self._tasks_max = tasks_max
        self._run: tuple[object, ActiveQuery | None] | None = None

    @property
    def parallelism(self) -> int:
        """Tasks that run at the same time."""
        return self.session.sparkContext.defaultParallelism

    @property
    def tasks_max(self) -> int:
        """Tasks that a batch has at most."""
        return self._tasks_max or int(self.session.conf.get(_SHUFFLE_PARTITIONS) or "200")

    def each(
        self, work: Callable[[T, TaskPlace], bytes], items: Sequence[T], *, group: str | None = None
    ) -> list[bytes]:
        """`Engine.each`."""
        if not items:
            return []
        context = self.session.sparkContext
        if group is not None:
            context.setLocalProperty(_POOL, POOL)
            context.setJobGroup(group, "calls of Freshet beside its batches")
        parts = min(len(items), self.parallelism)
        try:
            return context.parallelize(items, parts).map(_ItemCall(work)).collect()
        except (PySparkException, Py4JError) as error:
            if group is None:
                raise
            raise EngineError(str(error)) from error

    def cancel(self, group: str) -> None:
        """`Engine.cancel`."""
        self.session.sparkContext.cancelJobGroup(group)

    @property
    def session(self) -> SparkSession:
        """The session of its workers."""
        assert self._given is not None, "no batch has come yet"
        return self._given

    def batch(self, frame: DataFrame, number: int, query_id: str | None) -> MicroBatch:
        """A batch of a frame; `query_id` is Spark's id of its streaming query, or None."""
        self._given = frame.sparkSession
        return MicroBatch(number, self, query_id, self._query(frame, query_id), frame)

    def _query(self, frame: DataFrame, query_id: str | None) -> ActiveQuery | None:
        """The run of the query that a batch belongs to, looked for once."""
        if query_id is None:
            return None
        identity = (query_id, frame.sparkSession.sparkContext.getLocalProperty(_RUN_PROPERTY))
        query = None if self._run is None else self._run[1]
        is_over = query is not None and not query.is_active()  # users may set a job group of their own
        if self._run is None or self._run[0] != identity or is_over:
            self._run = (identity, ActiveQuery.find(frame, query_id))
        return self._run[1]
