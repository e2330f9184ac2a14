"""Spark's `Jobs`, and the session that a command opens for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from freshet._frozen import Frozen
from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder
from freshet.pipeline.query.driver.direct_reads import DirectReads
from freshet.pipeline.query.driver.jobs import RecordParts
from freshet.pipeline.query.driver.one_table import OneTable
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.driver.work import Work
from freshet.pipeline.running.spark_pipeline import spark_settings
from freshet.pipeline.running.table_query import TableQuery
from freshet.pipeline.sources.raw_frame import read_offsets
from freshet.pipeline.sources.record_frame import raw_record_frame
from freshet.pipeline.spark.engine import SparkEngine
from freshet.pipeline.spark.hadoop_folder import open_checkpoint
from freshet.pipeline.spark.job import SparkJob
from freshet.pipeline.spark.packed_way import PackedWay
from freshet.pipeline.spark.session import session_of_a_command
from freshet.storage.table import TableHandle


class _PartReader(Frozen):
    """Reads parts in Spark's workers: their numbers in, their records out."""

    parts: RecordParts

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.parts.read(number)


class SparkJobs:
    """The `Jobs` of a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.engine = SparkEngine(spark)

    def folder(self, checkpoint: str) -> CheckpointFolder:
        """`Jobs.folder`."""
        return open_checkpoint(self._spark, checkpoint)

    def of_ranges(
        self, work: Work, name: str, config: SyncPipelineConfig, ranges: Sequence[OffsetRange], *, takes_losses: bool
    ) -> SparkJob:
        """`Jobs.of_ranges`: Spark reads them where only its source knows the options of the brokers."""
        source = config.sync.source.model_copy(update={"read": "auto"})
        direct = DirectReads.of(config.model_copy(update={"sources": (source,)}))
        if direct is None:
            frame = read_offsets(self._spark, source, ranges, takes_losses=takes_losses) if ranges else None
            return SparkJob(PackedWay(work, name), frame=frame)
        (client,) = direct.clients
        direct = replace(direct, clients=(replace(client, takes_losses=client.takes_losses or takes_losses),))
        return SparkJob(PackedWay(work, name), direct=direct, given={0: ranges})

    def of_parts(self, work: Work, name: str, parts: RecordParts) -> SparkJob:
        """`Jobs.of_parts`."""
        return SparkJob(PackedWay(work, name), frame=self._frame(parts))

    def into_table(
        self, config: PipelineConfig, commit: TableCommit, letters: TableHandle, parts: Sequence[RecordParts]
    ) -> tuple[OneTable, SparkJob]:
        """`Jobs.into_table`."""
        return TableQuery(self._spark, config, [self._frame(each) for each in parts]).once(commit, letters)

    def _frame(self, parts: RecordParts) -> DataFrame:
        return raw_record_frame(self._spark, parts.count, _PartReader(parts))


@contextmanager
def spark_jobs(config: PipelineConfig, purpose: str, jars: Sequence[Path] = ()) -> Iterator[SparkJobs]:
    """Jobs in a session of its own; `purpose` is in its name."""
    name = f"{config.name} {purpose}"
    with session_of_a_command(name, settings=spark_settings([config]), jars=jars) as spark:
        yield SparkJobs(spark)
