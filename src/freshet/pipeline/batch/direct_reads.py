"""Batches whose records the workers read themselves: which ranges those are, and whether all of them were read.

Spark plans what a batch reads, and writes it down. Where `DirectReads` takes the ranges of that plan, the plan is not
run: a frame of the same records is. Source: docs/explanation/spark.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from freshet.logstore.kafka.range_reader import OffsetRange
from freshet.pipeline.batch.packed_rows import PackRule
from freshet.pipeline.batch.task_result import TaskResult
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.spark.active_query import ActiveQuery

Ranges = Mapping[int, Sequence[OffsetRange]]
"""What a batch reads of each Kafka source, by its index in the pipeline file."""


class DirectReads(Protocol):
    """How records reach the decoders without the JVM."""

    def takes(self, ranges: Ranges) -> bool:
        """Whether a batch of these ranges is read so."""

    def under(self, isolations: Mapping[int, str]) -> DirectReads:
        """The same with each source under its isolation of these."""

    def packed_schema(self) -> pa.Schema | None:
        """The columns of the outcomes, where they need nothing of Spark and may be packed."""

    def first_look(self, ranges: Ranges) -> tuple[DirectReads, Ranges] | None:
        """For a query that knows no table yet: some records of each range, from which its tables are described, and
        what reads them; None where the batch may as well be read whole."""

    def frame(self, spark: SparkSession, ranges: Ranges, rule: PackRule | None) -> DataFrame:
        """The outcomes of the records of these ranges, packed where there is a rule; each task says in a tally how far
        it came (`range_name`)."""


def planned_ranges(query: ActiveQuery, most: float = math.inf) -> Ranges | None:
    """What the plan of the batch reads; None where a source is not Kafka, or has more than `most` ranges."""
    found = query.kafka_ranges(most)
    return None if found is None else {index: [OffsetRange(*each) for each in ranges] for index, ranges in found}


def range_name(source_index: int, number: int) -> str:
    """What a range is called in tallies."""
    return f"{source_index}/{number}"


def refuse_unread(result: TaskResult, ranges: Ranges, *, pipeline: str, micro_batch_id: int) -> None:
    """Raises `PipelineFailedError` where the tasks have not come to the end of each range."""
    for index, of in ranges.items():
        for number, wanted in enumerate(of):
            reached = result.read.reached.get(range_name(index, number), wanted.start)
            if reached < wanted.end:
                raise PipelineFailedError(
                    f"{wanted}: the task that read them came to offset {reached}; nothing was committed. This is a "
                    "bug of Freshet: please report it with the log of the run, and set read: spark for now",
                    pipeline=pipeline,
                    micro_batch_id=micro_batch_id,
                )
