"""Records as they arrive, and envelopes over them: what the tests of the transforms share.

The literals are captured shapes: Debezium 3.5 on PostgreSQL, the `schema` shortened to the members that a converter
writes for the fields of a row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from pyspark.sql import DataFrame, Row, SparkSession

from freshet.pipeline.config.pipeline_file import PipelineConfig, parse_pipeline
from freshet.pipeline.spark.sources import kafka_records
from freshet.pipeline.transforms import envelope

KAFKA_COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)

SOURCE = {
    "version": "3.5.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": 1700000000123, "snapshot": "false",
    "db": "shop", "sequence": '["23456","23480"]', "schema": "public", "table": "orders", "txId": 771, "lsn": 23480,
    "xmin": None, "ts_us": 1700000000123456, "ts_ns": 1700000000123456000,
}  # fmt: skip

ORDERS = {"id": "BIGINT", "status": "STRING", "total": "DECIMAL(14,4)", "at": "TIMESTAMP(6)", "doc": "STRING"}
ORDER_SCHEMA = [
    {"type": "int64", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "status"},
    {
        "type": "bytes", "optional": True, "name": "org.apache.kafka.connect.data.Decimal", "version": 1,
        "parameters": {"scale": "2", "connect.decimal.precision": "14"}, "field": "total",
    },
    {"type": "int64", "optional": True, "name": "io.debezium.time.Timestamp", "version": 1, "field": "at"},
    {"type": "string", "optional": True, "field": "doc"},
]  # fmt: skip
TOAST = "__debezium_unavailable_value"


def change(op: str, before: Any = None, after: Any = None, **source: Any) -> dict[str, Any]:
    """A change envelope without schema."""
    return {
        "before": before, "after": after, "source": {**SOURCE, **source}, "transaction": None, "op": op,
        "ts_ms": 1700000000999, "ts_us": 1700000000999123, "ts_ns": 1700000000999123456,
    }  # fmt: skip


def with_schema(payload: Any, fields: Sequence[Mapping[str, Any]] = ORDER_SCHEMA) -> dict[str, Any]:
    """The same with the schema beside it."""
    row = {"type": "struct", "fields": list(fields), "optional": True, "name": "shop.public.orders.Value"}
    members = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        {"type": "struct", "fields": [{"type": "string", "optional": False, "field": "version"}], "field": "source"},
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ]
    schema = {
        "type": "struct",
        "fields": members,
        "optional": False,
        "name": "shop.public.orders.Envelope",
        "version": 2,
    }
    return {"schema": schema, "payload": payload}


def flat_with_schema(payload: Any, fields: Sequence[Mapping[str, Any]] = ORDER_SCHEMA) -> dict[str, Any]:
    """An unwrapped row, or a key, with the schema beside it."""
    return {"schema": {"type": "struct", "fields": list(fields), "optional": False, "name": "V"}, "payload": payload}


@dataclass(frozen=True)
class Record:
    """One Kafka record; `value` and `key` are JSON values, bytes, or None for no value at all."""

    value: Any
    key: Any = None
    topic: str = "shop.public.orders"
    partition: int = 0


def pipeline_of(
    columns: Mapping[str, str] = ORDERS,
    *,
    primary_key: Sequence[str] = ("id",),
    options: Mapping[str, Any] | None = None,
    **source: Any,
) -> PipelineConfig:
    """A checked pipeline file with one Kafka source; `source` holds further keys of it."""
    kafka = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    document = {
        "name": "orders",
        "sources": [{"kafka": kafka, "format": "debezium-json", **source}],
        "table": {
            "warehouse": "/w", "name": "shop.orders", "columns": dict(columns), "primary_key": list(primary_key),
            "options": {"bucket": 1, **(options or {})},
        },
        "checkpoint": "/c",
    }  # fmt: skip
    config, problems = parse_pipeline(yaml.safe_dump(document, sort_keys=False), "test.yaml", {})
    assert config is not None, [str(problem) for problem in problems]
    return config


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


KINDS = ("+I", "-U", "+U", "-D")


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
