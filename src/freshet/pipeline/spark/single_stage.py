"""The plan of a batch that is run as one stage of one task, in one Python worker.

    as planned     scan ─ decoder (Python) ─ shuffle ─ task (Python)
    here           scan ─ coalesced to one partition ─ decoder and task (Python)
    where Spark computes columns in between, or there are several sources:
                   scan ─ decoder (Python) ─ … ─ coalesced to one partition ─ task (Python)

The nodes below are those of the plan that Spark has made for the batch, so the same ranges are read, counted and
reported in the same way; nothing is analysed, optimised or planned once more. What is left out is the shuffle. This is
the one place that makes nodes of a physical plan; the version of PySpark is pinned.

Which batches are so small was measured on two cores: docs/decisions/micro-batches.md.

Source: docs/explanation/spark.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import types as spark

from freshet._frozen import Frozen
from freshet.pipeline.spark.arrow_bridge import ArrowFunction, arrow_udf

if TYPE_CHECKING:  # the client of Kafka, which other sources do not need
    from freshet.logstore.kafka.record_sizes import RecordSizes
    from freshet.pipeline.query.wire.ranges import Ranges

RECORDS_MAX: Final = 4000
BYTES_MAX: Final = 4 << 20
"""By the mean of the records seen so far."""
RANGES_MAX: Final = 8
"""They are read one after the other, each with a round trip to its broker."""
TASKS_MAX: Final = 4
"""Tables whose batches are written by more tasks keep them: each bucket is a file that has to be on the disk."""

_MAP: Final = "MapInArrowExec"
_SHUFFLE: Final = "ShuffleExchangeExec"


def is_small(ranges: Ranges, sizes: RecordSizes) -> bool:
    """Whether one task takes a batch of these ranges; `sizes` are those of the records before it."""
    each = [of for ranges_of in ranges.values() for of in ranges_of]
    count = sum(max(0, of.end - of.start) for of in each)
    return len(each) <= RANGES_MAX and count <= RECORDS_MAX and count * sizes.mean <= BYTES_MAX


class Chained(Frozen):
    """One function after the other; a value that travels to the workers."""

    first: ArrowFunction
    then: ArrowFunction

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The call of an `ArrowFunction`."""
        return self.then(self.first(batches))


class SingleStage:
    """`task` in place of the task at the top of the plans of one query, without the shuffle before it."""

    def __init__(
        self, context: SparkContext, task: ArrowFunction, decoder: ArrowFunction | None, result: spark.StructType
    ) -> None:
        """`decoder` is the one that gives all rows of the task as they are; None where there is no such one."""
        jvm: Any = context._jvm
        self._coalesced = jvm.org.apache.spark.sql.execution.CoalesceExec
        self._task = arrow_udf(task, result)._judf.func()
        self._whole = None if decoder is None else arrow_udf(Chained(decoder, task), result)._judf.func()

    def of(self, plan: Any) -> Any | None:
        """The plan of a batch as one stage; None where it is none of those above."""
        if _kind(plan) != _MAP:
            return None
        below, call, function = plan.child(), plan.func(), self._task
        if _kind(below) == _SHUFFLE:
            below = below.child()
        arguments = call.children()
        if self._whole is not None:
            if _kind(below) != _MAP:
                return None
            function, arguments, below = self._whole, below.func().children(), below.child()
        if below.supportsColumnar():
            return None
        whole = call.copy(
            call.name(), function, call.dataType(), arguments, call.evalType(), call.udfDeterministic(), call.resultId()
        )
        return plan.copy(whole, plan.output(), self._coalesced(1, below), plan.isBarrier(), plan.profile())


def _kind(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())
