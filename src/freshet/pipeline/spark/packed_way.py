"""The way of records whose outcomes cross packed: no column of theirs is Spark's (`packed_frames`)."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame, SparkSession

from freshet.pipeline.query.driver.direct_reads import DirectReads
from freshet.pipeline.query.driver.work import Work
from freshet.pipeline.query.task.batch_work import BatchWork, RecordWork
from freshet.pipeline.query.task.write_task import WriteTask
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.query.wire.packed_rows import PACKED
from freshet.pipeline.query.wire.ranges import Ranges
from freshet.pipeline.spark.engine import InTask
from freshet.pipeline.spark.packed_frames import RESULT_STRUCT, PackedFrames
from freshet.pipeline.spark.single_stage import TASKS_MAX, SingleStage


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
        self.frames = PackedFrames(work, with_headers)
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
        if work.stage_count or work.task_count > TASKS_MAX or work.has_numbered_tasks or self._compacts:
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
