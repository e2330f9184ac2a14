"""The change stream of the CDC benchmarks in Avro, as Debezium writes it by Confluent's converter.

The rows are those of `cdc_records`. Decimals are bytes (`decimal.handling.mode=precise`, Debezium's default), the
schema is in a registry.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

from bench.cdc_records import columns_of, records
from tests.kit.schema_registry import SchemaRegistry
from tests.pipeline.avro_records import AvroTopic, decimal, envelope_of, optional

_TYPES: Final[dict[str, Any]] = {
    "BIGINT": "long", "INT": "int", "STRING": "string", "DOUBLE": "double", "BOOLEAN": "boolean",
    "DECIMAL(14,4)": decimal(4),
}  # fmt: skip


def avro_records(registry: SchemaRegistry, count: int, variant: str = "plain") -> Iterator[tuple[int, bytes]]:
    """(key, value) of each record; the schema is registered before the first one."""
    row = {name: _TYPES[kind] for name, kind in columns_of(variant).items()}
    topic = AvroTopic(
        registry, envelope_of({name: kind if name == "id" else optional(kind) for name, kind in row.items()})
    )
    for key, value in records(count, variant):
        change = json.loads(value)
        for image in (change["before"], change["after"]):
            if image is not None:
                image["total"] = Decimal(image["total"])
        yield key, topic.value(change)
