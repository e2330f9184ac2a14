"""Frames of raw records that are no stream (dead letters that are tried again, and none at all, for `check`), and the
changes of a table as a streaming frame with the columns of the table that a pipeline writes, and `_ROW_KIND`.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql import types as spark_types

from freshet.pipeline.config.catalogs import prefixed, source_options
from freshet.pipeline.config.model import PipelineConfig, SourceConfig, TableSourceConfig
from freshet.pipeline.decode.raw_records import FLAT_COLUMNS, HEADERS, RAW_SCHEMA
from freshet.pipeline.exceptions import ConfigurationError, brief_reason
from freshet.pipeline.sources.batch_source import FORMAT, register
from freshet.pipeline.sources.outcome_frame import HEADERS_TYPE, SPARK_TYPES
from freshet.pipeline.spark.arrow_bridge import ArrowFunction, KeptColumns
from freshet.storage.model.row_kind import ROW_KIND_COLUMN

_COLUMNS: Final = spark_types.StructType(
    [spark_types.StructField(name, SPARK_TYPES[RAW_SCHEMA.field(name).type]) for name in FLAT_COLUMNS]
)
_TASKS_MAX: Final = 200

_KIND: Final = f"`{ROW_KIND_COLUMN}`"


def raw_record_frame(spark: SparkSession, part_count: int, read: ArrowFunction) -> DataFrame:
    """Records that workers read, in the columns of `raw_frame`: `read` takes numbers of parts and gives batches of
    `raw_records.RAW_SCHEMA`."""
    numbers = KeptColumns([F.col("id")])
    parts = spark.range(0, part_count, 1, max(1, min(part_count, _TASKS_MAX)))
    return _with_headers(numbers.map_in_arrow(parts, read, _COLUMNS))


def no_records(spark: SparkSession) -> DataFrame:
    """The frame that has none: with it Spark analyses what it would do with records."""
    return _with_headers(spark.createDataFrame([], _COLUMNS))


def _with_headers(records: DataFrame) -> DataFrame:
    return records.withColumn(HEADERS, F.lit(None).cast(HEADERS_TYPE))


def table_frame(
    spark: SparkSession, source: SourceConfig, table: TableSourceConfig, config: PipelineConfig
) -> DataFrame:
    """The rows of one source; it has the columns of the target that it fills.

    Raises `ConfigurationError` naming the entry of `select` that Spark cannot analyse.
    """
    register(spark)
    reader = spark.readStream.format(FORMAT).option("warehouse", table.warehouse).option("table", table.name)
    frame = reader.options(**table.given, **prefixed(source_options(config, table))).load()
    wanted = source.select or {name: f"`{name}`" for name in config.table.columns if name in frame.columns}
    for name, text in wanted.items():
        try:
            _ = frame.selectExpr(f"{text} AS `{name}`").schema
        except PySparkException as error:
            raise ConfigurationError(f"select.{name}: {brief_reason(error)}") from error
    return frame.selectExpr(*(f"{text} AS `{name}`" for name, text in wanted.items()), _KIND)


def followed_frame(spark: SparkSession, config: PipelineConfig) -> DataFrame:
    """The rows of all sources of a pipeline that follows tables."""
    frames = [table_frame(spark, source, source.table, config) for source in config.sources if source.table is not None]
    return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames)
