"""Tasks of a batch in this process: the work on one table, run where its pin is handed over."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from freshet.pipeline.query.task.batch_work import BatchWork, TableWork
from freshet.pipeline.query.task.write_task import WriteTask
from freshet.pipeline.query.wire.batch_pin import BatchPin, Handed, TaskPlace
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.query.wire.task_result import TableFailedError, TaskResult, sum_results


def at(pin: BatchPin) -> TaskPlace:
    """The place of a task of the only table of a batch."""
    return TaskPlace(Handed({0: pin}))


def write_task(*works: TableWork) -> WriteTask:
    """The task that writes these tables."""
    return WriteTask(KeptValue(BatchWork({}, {work.number: work for work in works})))


def task_results(work: TableWork, pin: BatchPin, batches: Iterable[pa.RecordBatch]) -> list[bytes]:
    """What a task hands to the driver."""
    return [batch.column(0)[0].as_py() for batch in write_task(work).run(iter(batches), at(pin))]


def summed(results: list[bytes]) -> TaskResult:
    """The sum of what tasks handed over; raises the error among it that the driver would raise."""
    try:
        return sum_results(results)
    except TableFailedError as error:
        raise error.cause from None


def task_result(work: TableWork, pin: BatchPin, batches: Iterable[pa.RecordBatch]) -> TaskResult:
    """What a task reports, or the error that it reports."""
    return summed(task_results(work, pin, batches))
