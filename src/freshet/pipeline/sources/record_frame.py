"""Raw records that are no stream: dead letters that are tried again, and none at all, for `check`."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql import types as spark_types

from freshet.pipeline.decode.raw_records import FLAT_COLUMNS, HEADERS, RAW_SCHEMA
from freshet.pipeline.sources.outcome_frame import HEADERS_TYPE, SPARK_TYPES
from freshet.pipeline.spark.arrow_map import ArrowFunction, KeptColumns

_COLUMNS: Final = spark_types.StructType(
    [spark_types.StructField(name, SPARK_TYPES[RAW_SCHEMA.field(name).type]) for name in FLAT_COLUMNS]
)
_TASKS_MAX: Final = 200


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
