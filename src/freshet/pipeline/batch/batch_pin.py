"""What the driver pins for the tasks of one micro-batch, and how it reaches tasks that were planned before.

The tasks of a streaming query that Freshet starts are a part of its plan. What changes from batch to batch travels as a
local property of the thread that runs the job; Spark hands it to every attempt of every task.
"""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyspark import SparkContext, TaskContext

from freshet.pipeline.decode.outcomes import TruncatedAt
from freshet.storage.table_engine import CompactionLimit, TaskLog

PROPERTY: Final = "freshet.batch"


@dataclass(frozen=True, slots=True)
class BatchPin:
    """The number of the batch, the schema that it is written to a table in, and the snapshot it was begun on.

    `limit` is how much its tasks compact where larger compactions run in the background, `log` what they need to log
    changes where the table has a log.
    """

    micro_batch_id: int
    schema_id: int
    schema_time_ms: int | None
    """When the schema was made: a table that is dropped and created again has one of the same id."""
    base_snapshot_id: int | None
    limit: CompactionLimit | None = None
    log: TaskLog | None = None
    is_committed: bool = False
    """True where the table holds the batch already, while another table of the query does not: nothing is written."""
    truncated: TruncatedAt | None = None
    """Where the batch truncates the source table: rows from before are left out."""
    upon_nothing: bool = False
    """The rows replace what is there, and are written as into an empty table."""


def hand_over(pins: Mapping[int, BatchPin], context: SparkContext) -> None:
    """The tasks of the jobs that this thread runs from now on find these pins, by the index of the table."""
    context.setLocalProperty(PROPERTY, b64encode(pickle.dumps(pins)).decode())


def task_log(pin: BatchPin) -> TaskLog | None:
    """The log for the attempt of the task that runs. Spark gives no number of an attempt twice in an application, and
    a later attempt has a larger one; the epoch distinguishes applications."""
    if pin.log is None:
        return None
    context = TaskContext.get()
    return pin.log if context is None else replace(pin.log, attempt=context.taskAttemptId())


def number_of_this_task() -> int:
    """The Spark partition whose rows the task that runs has; 0 outside of tasks."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def pin_of_this_task(table_index: int) -> BatchPin:
    """What the driver has handed over for a table to the task that runs."""
    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(PROPERTY)
    if text is None:
        raise RuntimeError("the driver has pinned no batch for this task: this is a bug of Freshet, please report it")
    pins: Mapping[int, BatchPin] = pickle.loads(b64decode(text))
    return pins[table_index]
