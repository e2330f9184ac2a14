"""The one job of a batch of many tables.

    raw records ─ ManyDecoder ─ (task, table, packed outcomes) ─ shuffle ─ ManyTask ─ a result for each table

Where the workers read the records themselves, the first two steps are one. It is planned for each batch, since tables
and columns come while the query runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql import types as spark

from freshet.logstore.kafka.range_reader import OffsetRange, RangeProgress
from freshet.pipeline.batch.batch_pin import BatchPin
from freshet.pipeline.batch.direct_reads import DirectReads, Ranges, range_name
from freshet.pipeline.batch.kept_value import KeptValue
from freshet.pipeline.batch.packed_rows import PACKED, TASK, PackedTasks, PackRule, value_of
from freshet.pipeline.batch.task_result import RESULT_SPARK_SCHEMA
from freshet.pipeline.decode.outcomes import Tally
from freshet.pipeline.decode.raw_records import FLAT_COLUMNS
from freshet.pipeline.errors.repeating_errors import error_document
from freshet.pipeline.sources.direct_frame import DirectClient, DirectSources, notes_of, read_ranges
from freshet.pipeline.spark.arrow_map import ArrowFunction, KeptColumns
from freshet.pipeline.sync.many_decoder import ManyDecoder
from freshet.pipeline.sync.many_plan import ManyPlan
from freshet.pipeline.sync.many_task import TABLE, ManyTask
from freshet.storage.exceptions import NotFoundError

_COLUMNS: Final = (TASK, TABLE, PACKED)
_SPARK_SCHEMA: Final = spark.StructType(
    [
        spark.StructField(TASK, spark.IntegerType()),
        spark.StructField(TABLE, spark.IntegerType()),
        spark.StructField(PACKED, spark.BinaryType()),
    ]
)
_ARROW_SCHEMA: Final = pa.schema([(TASK, pa.int32()), (TABLE, pa.int32()), (PACKED, pa.binary())])
_TASKS_PER_CORE: Final = 2
LOOK_RECORDS: Final = 20_000
LOOK_RECORDS_MIN: Final = 64
"""Records of a first look in all, and in each of its pieces."""
_LOOK_PIECES: Final = 3
LOOK_SHARE: Final = 3
"""A batch is looked at first where it has so many times the records of the look."""
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"


def task_count(spark_session: SparkSession) -> int:
    """Tasks behind the shuffle."""
    shuffle = int(spark_session.conf.get(_SHUFFLE_PARTITIONS) or "200")
    return max(1, min(shuffle, spark_session.sparkContext.defaultParallelism))


@dataclass(frozen=True, slots=True)
class Packing:
    """Raw records to packed outcomes; a value that travels to the workers."""

    plan: KeptValue[ManyPlan]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As `ArrowFunction`."""
        yield from _rows(ManyDecoder(self.plan.value)(batches))


@dataclass(frozen=True, slots=True)
class RangePacking:
    """Numbers of groups of ranges to packed outcomes of their records; a value that travels to the workers. The ranges
    of a group are read at the same time, by their numbers."""

    client: DirectClient
    ranges: tuple[OffsetRange, ...]
    groups: tuple[tuple[int, ...], ...]
    plan: KeptValue[ManyPlan]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As `ArrowFunction`."""
        decoder = ManyDecoder(self.plan.value)
        for batch in numbers:
            for group in batch.column(0).to_pylist():
                numbers_of = self.groups[group]
                wanted = [(self.ranges[number], RangeProgress(self.ranges[number].start)) for number in numbers_of]
                try:
                    yield from _rows(decoder(read_ranges(self.client, wanted)))
                except NotFoundError as error:  # another attempt would not find it either
                    yield from _rows(decoder.tally(Tally(error=error_document(error))))
                    return
                notes: Counter[str] = Counter()
                for _, progress in wanted:
                    notes.update(notes_of(progress))
                reached = {
                    range_name(0, number): progress.reached
                    for number, (_, progress) in zip(numbers_of, wanted, strict=True)
                }
                yield from _rows(decoder.tally(Tally(notes=notes, reached=reached)))


class ManyJob:
    """A `BatchJob`; `plan` gives what the decoders know now, `task` the work of the tasks by the pins of a batch."""

    def __init__(
        self, plan: Callable[[], KeptValue[ManyPlan]], task: Callable[[Mapping[int, BatchPin]], ManyTask]
    ) -> None:
        self._plan = plan
        self._task = task

    def tasks(self, frame: DataFrame, pins: Mapping[int, BatchPin] | None = None) -> tuple[DataFrame, int]:
        """As `BatchJob` says; the frame is one of raw records, or what `ManyDirect` gives."""
        assert pins is not None, "planned batch by batch"
        count = self._plan().value.rules[0].task_count
        if tuple(frame.columns) != _COLUMNS:
            columns = KeptColumns([F.col(name) for name in FLAT_COLUMNS])
            frame = columns.map_in_arrow(columns.select(frame), Packing(self._plan()), _SPARK_SCHEMA)
        distributed = frame.repartitionById(count, F.col(TASK))
        crossing = KeptColumns([F.col(name) for name in _COLUMNS])
        return crossing.map_in_arrow(distributed, self._task(pins), RESULT_SPARK_SCHEMA), count

    def single_stage(self, frame: DataFrame, decoder: ArrowFunction | None) -> None:
        """As `BatchJob` says: the job is planned for each batch."""

    def packed(self, spark: SparkSession, schema: pa.Schema) -> PackedTasks | None:
        """As `BatchJob` says: what crosses is packed already."""
        return None


@dataclass(frozen=True, slots=True)
class ManyDirect:
    """A `DirectReads`: the workers read the records of the source."""

    sources: DirectSources
    plan: Callable[[], KeptValue[ManyPlan]]

    def takes(self, ranges: Ranges) -> bool:
        """As `DirectReads` says: always. Measured, a batch of a few records in a hundred topics: 0.7 s, and 30 s where
        Spark has a task and a consumer for each Kafka partition."""
        return True

    def first_look(self, ranges: Ranges) -> tuple[DirectReads, Ranges] | None:
        """As `DirectReads` says: the job of a first batch, which else is run twice, is run once and a little more."""
        pieces = look_pieces(ranges[0])
        if pieces is None:
            return None
        client = self.sources.clients[0].for_a_look()
        return replace(self, sources=replace(self.sources, clients=(client,))), {0: pieces}

    def under(self, isolations: Mapping[int, str]) -> DirectReads:
        """As `DirectReads` says."""
        return replace(self, sources=self.sources.under(isolations))

    def packed_schema(self) -> pa.Schema | None:
        """As `DirectReads` says: outcomes are packed table by table."""
        return None

    def frame(self, spark_session: SparkSession, ranges: Ranges, rule: PackRule | None) -> DataFrame:
        """The packed outcomes of the records of these ranges."""
        return range_frame(spark_session, self.sources.clients[0], ranges[0], self.plan())


def range_frame(
    spark_session: SparkSession, client: DirectClient, ranges: Sequence[OffsetRange], plan: KeptValue[ManyPlan]
) -> DataFrame:
    """The packed outcomes of the records of some ranges."""
    groups = grouped(ranges, _TASKS_PER_CORE * spark_session.sparkContext.defaultParallelism)
    numbers = spark_session.range(0, len(groups), 1, max(1, len(groups)))
    several = client.for_several(max(map(len, groups), default=0))
    packing = RangePacking(several, tuple(ranges), groups, plan)
    return KeptColumns([F.col("id")]).map_in_arrow(numbers, packing, _SPARK_SCHEMA)


def look_pieces(ranges: Sequence[OffsetRange]) -> tuple[OffsetRange, ...] | None:
    """The beginning, the middle and the end of each range; None where that is not far less than all of them."""
    count = max(LOOK_RECORDS_MIN, LOOK_RECORDS // max(1, _LOOK_PIECES * len(ranges)))
    whole = sum(each.end - each.start for each in ranges)
    if not whole or whole < LOOK_SHARE * count * _LOOK_PIECES * len(ranges):
        return None
    pieces = []
    for each in ranges:
        last = each.end - count
        if last < each.start + (_LOOK_PIECES - 1) * count:
            pieces.append(each)
            continue
        starts = (each.start, (each.start + last) // 2, last)
        pieces += [replace(each, start=start, end=start + count) for start in starts]
    return tuple(pieces)


def grouped(ranges: Sequence[OffsetRange], count: int) -> tuple[tuple[int, ...], ...]:
    """The numbers of the ranges in at most so many groups of about equally many records."""
    groups: list[list[int]] = [[] for _ in range(min(count, len(ranges)))]
    sizes = [0] * len(groups)
    for number in sorted(range(len(ranges)), key=lambda number: ranges[number].start - ranges[number].end):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(number)
        sizes[smallest] += ranges[number].end - ranges[number].start
    return tuple(tuple(sorted(group)) for group in groups)


def _rows(packed: Iterator[tuple[int, int, pa.Buffer]]) -> Iterator[pa.RecordBatch]:
    for task, table, content in packed:
        columns: list[Any] = [pa.array([task], pa.int32()), pa.array([table], pa.int32()), value_of(content)]
        yield pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)
