"""The query of a pipeline into one table: the frame that Spark runs, and the run that writes its batches.

| records | the frame | its tasks |
|---|---|---|
| of decoders alone | raw records of each source, packed outcomes | in the plan of the query |
| with columns or rules that Spark computes | outcomes, column by column | in the plan of the query |
| the same, where fields become columns (`on_unknown_field: add`) | raw records | planned batch by batch |
| changes of tables | the columns of the table | planned batch by batch: their order is a position that Spark counts |
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from freshet.pipeline.checks.unread_records import UnreadRecords
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.decode.planning import plan_decoding, spark_expressions
from freshet.pipeline.query.driver.direct_reads import DirectReads
from freshet.pipeline.query.driver.jobs import decoded_table
from freshet.pipeline.query.driver.one_table import OneTable
from freshet.pipeline.query.driver.query_run import QueryRun
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.driver.table_setup import with_table
from freshet.pipeline.running.engine_pipeline import OpenTables
from freshet.pipeline.sources.outcome_frame import decoded_frame, outcomes_of_ranges
from freshet.pipeline.sources.raw_frame import read_stream, sets_poll_records
from freshet.pipeline.sources.record_frame import followed_frame
from freshet.pipeline.spark.column_way import ColumnWay
from freshet.pipeline.spark.engine import SparkEngine
from freshet.pipeline.spark.job import SparkJob
from freshet.pipeline.spark.packed_way import PackedWay
from freshet.pipeline.spark.table_sink import TableSink
from freshet.storage.model.schema import TableSchema
from freshet.storage.table import TableHandle

_SOURCE: Final = "_source_index"


class TableQuery:
    """The query of one pipeline file."""

    def __init__(self, spark: SparkSession, config: PipelineConfig, records: Sequence[DataFrame]) -> None:
        """`records` are the raw records of each source, streaming or not; none where the file follows tables.

        Raises `ConfigurationError` naming the entry of `select` that is wrong.
        """
        self._spark = spark
        self.engine = SparkEngine(spark)
        self._config = config
        self._records = records
        self._is_packed = not config.follows_tables and is_packed(config)
        adds = any(source.on_unknown_field == "add" for source in config.sources)
        self._is_planned = not config.follows_tables and (self._is_packed or not adds)
        self._columns: DataFrame | None = None
        if config.follows_tables:
            self._columns = followed_frame(spark, config)
        elif self._is_packed:
            for index in range(len(config.sources)):
                plan_decoding(config, index)
        else:
            decoded = reduce(
                DataFrame.unionByName, [decoded_frame(each, config, index) for index, each in enumerate(records)]
            )
            self._columns = decoded if self._is_planned else _numbered(records)

    @classmethod
    def of_streams(cls, spark: SparkSession, config: PipelineConfig, unread: Sequence[UnreadRecords]) -> TableQuery:
        """The query of the sources of a file as streams; `unread` says what they have to read."""
        records = [read_stream(spark, config.sources[index], each) for index, each in enumerate(unread)]
        return cls(spark, config, records)

    def open(self, tables: OpenTables) -> tuple[QueryRun, SparkJob]:
        """What writes the batches of streams, and their job."""
        config, letters = self._config, tables.dead_letters
        way, target = self._way_into(tables.commit(config), None if letters is None else letters.handle)
        job = SparkJob(
            way,
            direct=None if config.follows_tables else DirectReads.of(config),
            plans_batches=not self._is_planned and not config.follows_tables,
            follows_polls=not any(sets_poll_records(source) for source in config.sources),
            planned_before=tables.planned_before,
        )
        return tables.run(config, target, job), job

    def once(self, commit: TableCommit, letters: TableHandle) -> tuple[OneTable, SparkJob]:
        """The table that `commit` writes, and the job of records that are no streams."""
        way, target = self._way_into(commit, letters)
        return target, SparkJob(way, frame=self.frame())

    def _way_into(self, commit: TableCommit, letters: TableHandle | None) -> tuple[PackedWay | ColumnWay, OneTable]:
        config = self._config
        if self._is_packed:
            works, target = decoded_table(config, commit, self.engine, letters)
            self._packed = PackedWay(
                works,
                commit.table.name,
                [index for index in range(len(config.sources)) if plan_decoding(config, index).reads_headers],
                sources=len(config.sources),
                compacts=commit.table.options.full_compaction_delta_commits is not None,
            )
            return self._packed, target
        way = ColumnWay(
            commit,
            self.engine,
            config.name,
            dead_letters=letters,
            of_ranges=lambda spark, direct, ranges: outcomes_of_ranges(spark, direct, ranges, self._config),
            outcomes=None if self._is_planned or config.follows_tables else self._outcomes,
        )
        return way, OneTable(commit, self._follow_columns, config.table.expect)

    def frame(self) -> DataFrame:
        """The frame of the batches, once it is open; of a file whose tasks are planned batch by batch, without them."""
        return self._packed.union(self._records) if self._columns is None else self._columns

    def started_frame(self, sink: TableSink) -> DataFrame:
        """The frame that Spark runs."""
        return sink.with_tasks(self.frame()) if self._is_planned else self.frame()

    def _follow_columns(self) -> TableSchema:
        self._config = with_table(self._config)
        return self._config.table.table_schema

    def _outcomes(self, records: DataFrame) -> DataFrame:
        """The outcomes of the raw records of a batch, by the columns that the table has now."""
        config = self._config
        return reduce(
            DataFrame.unionByName,
            [
                decoded_frame(records.where(F.col(_SOURCE) == index).drop(_SOURCE), config, index)
                for index in range(len(config.sources))
            ],
        )


def is_packed(config: PipelineConfig) -> bool:
    """Whether the outcomes of a file cross packed: none of their columns, and no rule of `expect`, is Spark's."""
    if any(spark_expressions(source) for source in config.sources):
        return False
    return not any(plan_decoding(config, at).needs_spark for at in range(len(config.sources)))


def _numbered(records: Sequence[DataFrame]) -> DataFrame:
    """The raw records of all sources, with the index of their source."""
    return reduce(
        DataFrame.unionByName, [frame.withColumn(_SOURCE, F.lit(index)) for index, frame in enumerate(records)]
    )
