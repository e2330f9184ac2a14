"""Runs of a pipeline on either engine that die at a named point, so that the other one finds what they left.

| point | it dies |
|---|---|
| planned | once `offsets` has the batch |
| altered | once the first table was altered for it |
| letters | once the dead letters of the batch are committed, before any table is |
| between | once a table has the batch, before the next one or the ledger |
| written | once all tables have the batch, before `commits` says so |

A point that a batch does not come to is passed by: the run goes to its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.local.workers import WorkerPool
from freshet.pipeline.query.driver.query_run import QueryRun
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.task import kafka_ranges
from freshet.pipeline.running.engine_pipeline import PipelineEngine
from freshet.pipeline.running.local_pipeline import LocalPipelines
from freshet.storage.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ("local", "spark")
POINTS = ("planned", "letters", "written")
"""Of a pipeline with one table."""
SYNC_POINTS = ("planned", "altered", "letters", "between", "written")

DIES = "the run dies here"


class Died(Exception):
    """The run dies here."""


def engine_of(name: str, spark: SparkSession) -> PipelineEngine:
    """The engine of this name, for a run in this process that finds no reader of Kafka of the run before."""
    if name == "local":
        kafka_ranges._reader.cache_clear()
        return LocalPipelines(WorkerPool(0))
    from freshet.pipeline.running.spark_pipeline import SparkPipelines

    return SparkPipelines(spark)


@contextmanager
def dying(point: str | None, after: int = 0) -> Iterator[None]:
    """Lets runs die in the batch after so many; without a point they do not."""
    with pytest.MonkeyPatch.context() as patch:
        if point is not None:
            _patch(patch, point, after)
        yield


def has_died(run: Callable[[], object]) -> bool:
    """Whether a run that may die has; any other end of it is raised."""
    try:
        run()
    except PipelineFailedError as error:
        if DIES not in str(error):
            raise
        return True
    return False


def _patch(patch: pytest.MonkeyPatch, point: str, after: int) -> None:
    begun = committed = 0
    lock = threading.Lock()
    write, commit, alter = QueryRun.write, TableCommit.commit, Table.alter

    def writing(run: QueryRun, batch: Any) -> Any:
        nonlocal begun, committed
        begun, committed = begun + 1, 0
        if begun > after and point == "planned":
            batch.settle()
            raise Died(DIES)
        report = write(run, batch)
        if begun > after and point == "written":
            raise Died(DIES)
        return report

    def committing(self: TableCommit, *arguments: Any, **named: Any) -> Any:
        nonlocal committed
        with lock:  # tables are committed side by side
            number = committed
            committed += 1
        if begun > after and (point == "letters" or (point == "between" and number)):
            raise Died(DIES)
        return commit(self, *arguments, **named)

    def altering(self: Table, *arguments: Any, **named: Any) -> Any:
        found = alter(self, *arguments, **named)
        if begun > after and point == "altered":
            raise Died(DIES)
        return found

    patch.setattr(QueryRun, "write", writing)
    patch.setattr(TableCommit, "commit", committing)
    patch.setattr(Table, "alter", altering)
