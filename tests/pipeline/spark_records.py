"""Records as frames of Spark's Kafka source, and the outcomes that a source makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.decode.outcomes import TAG, TAG_GONE, TAG_TALLY
from freshet.pipeline.decode.raw_records import OLD_KEY_HEADER
from freshet.pipeline.sources.outcome_frame import decoded_frame
from freshet.pipeline.sources.raw_frame import kafka_records
from tests.pipeline.records import Record, octets, shown

KAFKA_COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)


def kafka_frame(spark: SparkSession, records: Sequence[Record | Any]) -> DataFrame:
    """Records as Spark's Kafka source gives them, offsets counted from 0."""
    rows = []
    for offset, each in enumerate(records):
        record = each if isinstance(each, Record) else Record(each)
        headers = [("__debezium.context.connectorName", bytearray(b"postgresql"))]
        if record.old_key is not None:
            headers.append((OLD_KEY_HEADER, bytearray(octets(record.old_key) or b"")))
        rows.append((octets(record.key), octets(record.value), record.topic, record.partition, offset, None, headers))
    return spark.createDataFrame(rows, KAFKA_COLUMNS)


def outcome_rows(
    spark: SparkSession, config: PipelineConfig, records: Sequence[Record | Any]
) -> list[list[dict[str, Any]]]:
    """The rows of each record in the order of `sub`."""
    frame = decoded_frame(kafka_records(kafka_frame(spark, records)), config, 0)
    by_offset: list[list[dict[str, Any]]] = [[] for _ in records]
    for row in frame.toArrow().to_pylist():
        if row[TAG] not in (TAG_TALLY, TAG_GONE):
            by_offset[row["_offset"]].append(row)
    for rows in by_offset:
        rows.sort(key=lambda row: row["_sub"])
    return by_offset


def outcomes(spark: SparkSession, config: PipelineConfig, records: Sequence[Record | Any]) -> list[str]:
    """Each record as text; "" for those that are skipped."""
    return [shown(rows) for rows in outcome_rows(spark, config, records)]
