"""Records as frames of Spark's Kafka source, and the outcomes that expressions make of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.spark.sources import kafka_records
from freshet.pipeline.transforms import envelope
from tests.pipeline.records import (
    KINDS,
    ORDER_SCHEMA,
    ORDERS,
    TOAST,
    Record,
    change,
    flat_with_schema,
    pipeline_of,
    with_schema,
)

__all__ = [
    "ORDERS",
    "ORDER_SCHEMA",
    "TOAST",
    "Record",
    "change",
    "flat_with_schema",
    "kafka_frame",
    "outcomes",
    "pipeline_of",
    "shown",
    "with_schema",
]

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
        rows.append(
            (_octets(record.key), _octets(record.value), record.topic, record.partition, offset, None, headers)
        )  # fmt: skip
    return spark.createDataFrame(rows, KAFKA_COLUMNS)


def outcomes(spark: SparkSession, config: PipelineConfig, records: Sequence[Record | Any]) -> list[list[Row]]:
    """The rows that each record became, in the order of `sub`."""
    found = envelope(kafka_records(kafka_frame(spark, records)), config, config.sources[0]).collect()
    by_offset: dict[int, list[Row]] = {offset: [] for offset in range(len(records))}
    for row in sorted(found, key=lambda row: (row["order"].offset, row["order"].sub)):
        by_offset[row["order"].offset].append(row)
    return list(by_offset.values())


def shown(rows: Sequence[Row]) -> str:
    """Outcome of one record as text: `+I(1, x)`, `dead column: reason`, `skip reason`."""
    return "; ".join(_shown(row) for row in rows)


def _shown(row: Row) -> str:
    match row.tag:
        case 0:
            values = ", ".join(str(value) for value in row.data)
            kept = f" keep {','.join(row.unavailable)}" if row.unavailable else ""
            return f"{KINDS[row.row_kind]}({values}){kept}"
        case 1:
            return f"dead {row['column']}: {row.reason}"
        case _:
            return f"skip {row.reason}"


def _octets(value: Any) -> bytearray | None:
    if value is None:
        return None
    return bytearray(value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode())
