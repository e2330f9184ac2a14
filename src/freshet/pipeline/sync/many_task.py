"""One task of a batch of many tables: packed outcomes in, the files of each table written, the results of all as one.

Of each table what arrives is gathered as in `bucket_task`, which writes it; the tables are written one after the other.
An error that would come again is a result with the number of its table, so that the driver knows which one failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from freshet.pipeline.batch.batch_pin import BatchPin
from freshet.pipeline.batch.bucket_task import Arrived, BucketTask, forget_garbage
from freshet.pipeline.batch.gathered_rows import MEMORY_BYTES
from freshet.pipeline.batch.kept_value import KeptValue
from freshet.pipeline.batch.lap_clock import LapClock
from freshet.pipeline.batch.packed_rows import PACKED, unpacked
from freshet.pipeline.batch.task_result import encode_error, encode_results
from freshet.pipeline.errors.repeating_errors import REPEATING_ERRORS, ReportedError
from freshet.storage.exceptions import RetryableError

TABLE: Final = "table"
_MEMORY_BYTES_MIN: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TableTask:
    """The work for one table, and the columns of the outcomes that come for it."""

    task: BucketTask
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class ManyTask:
    """A value that travels to the workers; the tables by their number in the query."""

    kept: KeptValue[Mapping[int, TableTask]]
    """What stays the same from batch to batch: their pins come besides."""
    pins: Mapping[int, BatchPin]

    @property
    def tables(self) -> Mapping[int, TableTask]:
        """The tables by their number in the query, the ledger is 0."""
        return self.kept.value

    def task(self, number: int) -> BucketTask:
        """The work of this batch for a table."""
        return replace(self.tables[number].task, pin=self.pins[number])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Takes the packed outcomes of one Spark partition, gives the results of the tables that have any, as one."""
        clock = LapClock()
        memory_bytes = max(_MEMORY_BYTES_MIN, MEMORY_BYTES // max(1, len(self.tables) - 1))
        with ExitStack() as stack:
            arrived: dict[int, Arrived] = {}
            tasks: dict[int, BucketTask] = {}
            number = 0
            try:
                for batch in batches:
                    packed = batch.column(PACKED)
                    for number, value in zip(batch.column(TABLE).to_pylist(), packed, strict=True):
                        if number not in arrived:
                            tasks[number] = self.task(number)
                            own = Arrived(tasks[number], memory_bytes)
                            arrived[number] = stack.enter_context(closing(own))
                        outcomes = unpacked(value.as_buffer(), self.tables[number].schema)
                        arrived[number].add(outcomes)
                clock.lap("receive")
                results, spent_ms = [], 0.0
                for number, each in sorted(arrived.items()):
                    results.append(_within(tasks[number], spent_ms).finish(each, clock))
                    spent_ms += results[-1].budget_spent_ms
                    clock = LapClock()
                    each.close()
            except RetryableError:
                raise
            except (ReportedError, *REPEATING_ERRORS) as error:
                yield encode_error(error, number)
                return
        if results:
            yield encode_results(results)
        forget_garbage()


def _within(task: BucketTask, spent_ms: float) -> BucketTask:
    """The work for a table once those before it have spent so much of the time of the task."""
    pin = task.pinned()
    if pin.limit is None:
        return task
    left_ms = max(0, round(pin.limit.budget_ms - spent_ms))
    return replace(task, pin=replace(pin, limit=replace(pin.limit, budget_ms=left_ms)))
