"""The outcomes of records that are no stream: dead letters that are tried again, and no records at all, for `check`."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType, TimestampType

from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.sources.outcome_frame import decoded_frame, expression_failures
from freshet.pipeline.sources.raw_frame import kafka_records
from freshet.pipeline.spark.arrow_map import ArrowFunction, KeptColumns

RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
    ]
)
"""Records as Spark's Kafka source names their columns, without headers."""

_COLUMNS: Final = (
    StructType()
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
)
_TASKS_MAX: Final = 200


def record_frame(spark: SparkSession, records: pa.Table, config: PipelineConfig, source_index: int) -> DataFrame:
    """The outcomes of records of `RECORD_SCHEMA` as if they came from a source.

    Raises `ConfigurationError` naming the entry of `select` that is wrong.
    """
    raw = spark.createDataFrame(records) if records.num_rows else spark.createDataFrame([], _COLUMNS)
    return decoded_frame(kafka_records(raw), config, source_index)


def read_record_frame(
    spark: SparkSession, part_count: int, read: ArrowFunction, config: PipelineConfig, source_index: int
) -> DataFrame:
    """The same of records that the workers read: `read` takes numbers of parts and gives batches of `RECORD_SCHEMA`."""
    return decoded_frame(raw_record_frame(spark, part_count, read), config, source_index)


def raw_record_frame(spark: SparkSession, part_count: int, read: ArrowFunction) -> DataFrame:
    """The records themselves, as `raw_frame` has those of Kafka; `read` as above."""
    numbers = KeptColumns([F.col("id")])
    parts = spark.range(0, part_count, 1, min(part_count, _TASKS_MAX))
    return kafka_records(numbers.map_in_arrow(parts, read, _COLUMNS))


def failures_of_select(spark: SparkSession, config: PipelineConfig, source_index: int) -> dict[str, tuple[str, ...]]:
    """What may go wrong in the expressions of a source, by column.

    Raises `ConfigurationError` naming the entry of `select` that is wrong.
    """
    return expression_failures(kafka_records(spark.createDataFrame([], _COLUMNS)), config, source_index)
