"""The changes of a table as a streaming frame with the columns of the table that a pipeline writes, and `_ROW_KIND`."""

from __future__ import annotations

from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from freshet.pipeline.config.catalogs import prefixed, source_options
from freshet.pipeline.config.model import PipelineConfig, SourceConfig, TableSourceConfig
from freshet.pipeline.exceptions import ConfigurationError, brief_reason
from freshet.pipeline.sources.batch_source import FORMAT, register
from freshet.storage.model.row_kind import ROW_KIND_COLUMN

_KIND: Final = f"`{ROW_KIND_COLUMN}`"


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
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame, allowMissingColumns=True)
    return whole
