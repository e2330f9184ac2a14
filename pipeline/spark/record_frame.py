"""The outcomes of records that are no stream: dead letters that are tried again, and no records at all, for `check`."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.spark.outcome_frame import decoded_frame
from freshet.pipeline.spark.sources import kafka_records

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

_COLUMNS: Final = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
_HEADERS: Final = "ARRAY<STRUCT<key: STRING, value: BINARY>>"


def record_frame(spark: SparkSession, records: pa.Table, config: PipelineConfig, source_index: int) -> DataFrame:
    """The outcomes of records of `RECORD_SCHEMA` as if they came from a source.

    Raises `ConfigurationError` naming the entry of `select` that is wrong.
    """
    raw = spark.createDataFrame(records) if records.num_rows else spark.createDataFrame([], _COLUMNS)
    frame = kafka_records(raw.withColumn("headers", F.lit(None).cast(_HEADERS)))
    return decoded_frame(frame, config.sources[source_index], source_index, config, config.table.table_schema)
