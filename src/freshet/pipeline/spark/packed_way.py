"""The way of records whose outcomes cross packed, since no column of theirs is Spark's, and their frames:

records ─ decoder ─ (task, table, bytes) ─ shuffle ─ tasks that write
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql import types as spark

from freshet.pipeline.decode.raw_records import FLAT_COLUMNS, HEADERS
from freshet.pipeline.query.driver.direct_reads import DirectReads, grouped
from freshet.pipeline.query.driver.work import Work
from freshet.pipeline.query.task.batch_work import BatchWork, RecordWork, StageWork
from freshet.pipeline.query.task.kafka_ranges import RangeWork
from freshet.pipeline.query.task.write_task import WriteTask
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.query.wire.packed_rows import PACKED, TABLE, TASK
from freshet.pipeline.query.wire.ranges import Ranges
from freshet.pipeline.query.wire.task_result import RESULT_COLUMN
from freshet.pipeline.spark.arrow_bridge import KeptColumns
from freshet.pipeline.spark.engine import InTask, PlacedWork
from freshet.pipeline.spark.single_stage import TASKS_MAX, SingleStage

RESULT_STRUCT: Final = spark.StructType([spark.StructField(RESULT_COLUMN, spark.BinaryType())])
_PACKED_STRUCT: Final = spark.StructType(
    [
        spark.StructField(TASK, spark.IntegerType()),
        spark.StructField(TABLE, spark.IntegerType()),
        spark.StructField(PACKED, spark.BinaryType()),
    ]
)
_TASKS_PER_CORE: Final = 2


class PackedWay:
    """A `Way`. Frames are those of raw records, of one source, or of packed outcomes (`union`)."""

    def __init__(
        self,
        work: Work,
        table_name: str,
        with_headers: Collection[int] = (),
        *,
        sources: int = 1,
        compacts: bool = False,
    ) -> None:
        """`sources` is how many the query has; `compacts` says that some of its batches compact all of the table."""
        self.frames = _PackedFrames(work, with_headers)
        self.table_name = table_name
        self._sources = sources
        self._compacts = compacts

    def union(self, records: Collection[DataFrame]) -> DataFrame:
        """The packed outcomes of the raw records of all sources."""
        whole: DataFrame | None = None
        for index, frame in enumerate(records):
            packed = self.frames.of_records(frame, index)
            whole = packed if whole is None else whole.unionByName(packed)
        assert whole is not None
        return whole

    def tasks(self, frame: DataFrame) -> tuple[DataFrame, int]:
        """`Way.tasks`."""
        packed = frame if self._is_decoded(frame) else self.frames.of_records(frame, 0)
        return self.frames.tasks(packed), self.frames.work.task_count

    def tasks_of_ranges(self, spark: SparkSession, direct: DirectReads, ranges: Ranges) -> tuple[DataFrame, int]:
        """`Way.tasks_of_ranges`."""
        return self.frames.tasks(self.frames.of_ranges(spark, direct, ranges)), self.frames.work.task_count

    def single_stage(self, frame: DataFrame) -> SingleStage | None:
        """`Way.single_stage`."""
        work = self.frames.work
        if work.stage_count or work.task_count > TASKS_MAX or work.numbered_tables or self._compacts:
            return None
        kept, context = work.now(), frame.sparkSession.sparkContext
        task = WriteTask(kept, parallelism=work.task_count)
        decoding = RecordWork(kept, 0)
        if not work.is_shuffled:
            return SingleStage(context, InTask((decoding, task)), None, RESULT_STRUCT) if self._sources == 1 else None
        decoder = InTask((decoding,)) if self._sources == 1 else None
        return SingleStage(context, InTask((task,)), decoder, RESULT_STRUCT)

    def followed(self) -> KeptValue[BatchWork] | None:
        """`Way.followed`."""
        return self.frames.work.followed()

    def _is_decoded(self, frame: DataFrame) -> bool:
        """Whether outcomes of a frame have been packed, or written where nothing crosses."""
        return PACKED in frame.columns or frame.columns == RESULT_STRUCT.names


class _PackedFrames:
    """The frames of one query, for what its work is at the moment."""

    def __init__(self, work: Work, with_headers: Collection[int] = ()) -> None:
        """`with_headers` are the sources whose decoders take the headers of the records besides."""
        self.work = work
        self._with_headers = with_headers
        self._plain = KeptColumns([F.col(name) for name in FLAT_COLUMNS])
        self._whole = KeptColumns([F.col(name) for name in (*FLAT_COLUMNS, HEADERS)])
        self._numbers = KeptColumns([F.col("id")])
        self._packed = KeptColumns([F.col(name) for name in _PACKED_STRUCT.names])

    def of_records(self, frame: DataFrame, source_index: int) -> DataFrame:
        """The packed outcomes of raw records, streaming or not; written, where nothing crosses."""
        columns = self._whole if source_index in self._with_headers else self._plain
        return self._decoded(columns, columns.select(frame), RecordWork(self.work.now(), source_index))

    def of_ranges(self, spark_session: SparkSession, direct: DirectReads, ranges: Ranges) -> DataFrame:
        """The same of the records of these ranges, which the workers read."""
        cores = _TASKS_PER_CORE * spark_session.sparkContext.defaultParallelism
        whole: DataFrame | None = None
        for index, of in sorted(ranges.items()):
            if not of:
                continue
            groups = grouped(of, cores) if self.work.reads_together else tuple((number,) for number in range(len(of)))
            client = direct.clients[index].for_several(max(map(len, groups)))
            work = RangeWork(client, tuple(of), groups, self.work.now(), index)
            numbers = spark_session.range(0, len(groups), 1, len(groups))
            frame = self._decoded(self._numbers, numbers, work)
            whole = frame if whole is None else whole.unionByName(frame)
        assert whole is not None, "a batch without records is the engine's"
        return whole

    def tasks(self, packed: DataFrame) -> DataFrame:
        """Packed outcomes followed by the stage, where there is one, and the tasks that write: a row for each."""
        work = self.work
        if not work.is_shuffled:
            return packed
        if work.stage_count:
            packed = packed.repartitionById(work.stage_count, F.col(TASK))
            packed = self._packed.map_in_arrow(packed, InTask((StageWork(work.now()),)), _PACKED_STRUCT)
        packed = packed.repartitionById(work.task_count, F.col(TASK))
        return self._packed.map_in_arrow(packed, InTask((WriteTask(work.now()),)), RESULT_STRUCT)

    def _decoded(self, columns: KeptColumns, frame: DataFrame, decoding: PlacedWork) -> DataFrame:
        if self.work.is_shuffled:
            return columns.map_in_arrow(frame, InTask((decoding,)), _PACKED_STRUCT)
        return columns.map_in_arrow(frame, InTask((decoding, WriteTask(self.work.now()))), RESULT_STRUCT)
