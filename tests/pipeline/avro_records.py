"""Records in Avro as Debezium writes them through Confluent's converter, for the tests of both Avro formats.

The literals are the shapes of Debezium 3.5 on PostgreSQL: names and annotations of Connect on the types of a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import fastavro

from freshet.pipeline.config.pipeline_file import PipelineConfig
from tests.kit.schema_registry import SchemaRegistry
from tests.pipeline.records import ORDERS, SOURCE, pipeline_of

CONNECT = "org.apache.kafka.connect.data."
DEBEZIUM = "io.debezium.time."


def optional(kind: Any) -> Any:
    return ["null", kind]


def connect(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """A type with the annotations of Connect."""
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


def decimal(scale: int, precision: int = 14) -> dict[str, Any]:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return connect(
        "bytes", f"{CONNECT}Decimal", logicalType="decimal", scale=scale, precision=precision,
        **{"connect.parameters": parameters},
    )  # fmt: skip


ORDER_ROW: dict[str, Any] = {
    "id": "long",
    "status": optional("string"),
    "total": optional(decimal(2)),
    "at": optional(connect("long", f"{DEBEZIUM}Timestamp")),
    "doc": optional("string"),
}


def record_of(fields: Mapping[str, Any], name: str = "Value", namespace: str = "shop.public.orders") -> dict[str, Any]:
    """A record with these fields."""
    members = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "namespace": namespace, "fields": members}


SOURCE_TYPES: dict[str, Any] = {
    "version": "string", "connector": "string", "name": "string", "ts_ms": "long",
    "snapshot": ["null", {"type": "string", "connect.name": "io.debezium.data.Enum"}], "db": "string",
    "sequence": optional("string"), "schema": "string", "table": "string", "txId": optional("long"),
    "lsn": optional("long"), "xmin": optional("long"), "ts_us": optional("long"), "ts_ns": optional("long"),
}  # fmt: skip


def envelope_of(row: Mapping[str, Any] = ORDER_ROW) -> dict[str, Any]:
    """The envelope of rows with these fields, in Debezium's order."""
    block = record_of({"id": "string", "total_order": "long", "data_collection_order": "long"}, "block", "event")
    return record_of(
        {
            "before": optional(record_of(row)),
            "after": ["null", "shop.public.orders.Value"],
            "source": record_of(SOURCE_TYPES, "Source", "io.debezium.connector.postgresql"),
            "transaction": optional(block),
            "op": "string",
            "ts_ms": optional("long"),
            "ts_us": optional("long"),
            "ts_ns": optional("long"),
        },
        "Envelope",
    )


def wire(schema_id: int, schema: Any, datum: Any) -> bytes:
    """A value in the wire format."""
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema, {}), datum)
    return b"\0" + schema_id.to_bytes(4, "big") + stream.getvalue()


class AvroTopic:
    """Writes the records of one schema."""

    def __init__(self, registry: SchemaRegistry, schema: Any, subject: str = "shop.public.orders-value") -> None:
        self.schema_id = registry.register(subject, schema)
        self._schema = fastavro.parse_schema(schema, {})

    def value(self, datum: Any) -> bytes:
        """A value in the wire format."""
        stream = BytesIO()
        fastavro.schemaless_writer(stream, self._schema, datum)
        return b"\0" + self.schema_id.to_bytes(4, "big") + stream.getvalue()


def avro_change(op: str, before: Any = None, after: Any = None, **source: Any) -> dict[str, Any]:
    """The datum of an envelope."""
    return {
        "before": before, "after": after, "source": {**SOURCE, **source}, "transaction": None, "op": op,
        "ts_ms": 1700000000999, "ts_us": 1700000000999123, "ts_ns": 1700000000999123456,
    }  # fmt: skip


def avro_pipeline(
    registry: SchemaRegistry,
    columns: Mapping[str, str] = ORDERS,
    **more: Any,
) -> PipelineConfig:
    """A pipeline of one source in Avro."""
    return pipeline_of(columns, schema_registry={"url": registry.url}, **{"format": "debezium-avro", **more})
