"""Changes of three tables of a PostgreSQL as Debezium writes them, with and without their schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.pipeline.records import Record, change, flat_with_schema, with_schema
from tests.pipeline.sync.kit import Result, schema_of

COLUMNS = {"id": "BIGINT", "n": "INT"}
ORDERS, USERS, ITEMS = (f"shop.public.{name}" for name in ("orders", "users", "items"))
KNOWN = {ORDERS: schema_of(COLUMNS), USERS: schema_of({"id": "BIGINT", "name": "STRING"})}
FIELDS: Mapping[str, dict[str, Any]] = {
    "id": {"type": "int64", "field": "id"},
    "number": {"type": "int64", "field": "number"},
    "n": {"type": "int32", "field": "n", "optional": True},
    "big": {"type": "int64", "field": "n", "optional": True},
    "text": {"type": "string", "field": "n", "optional": True},
    "note": {"type": "string", "field": "note", "optional": True},
    "name": {"type": "string", "field": "name", "optional": True},
}
KEY = flat_with_schema({"id": 1}, [FIELDS["id"]])


def plain(table: str, row: Mapping[str, Any], op: str = "c") -> Record:
    """A record without a schema."""
    images = (row, None) if op == "d" else (None, row)
    return Record(change(op, *images, table=table.split(".")[2]), {"id": row.get("id")}, topic=table)


def typed(table: str, row: Mapping[str, Any], *fields: str, op: str = "c") -> Record:
    """A record with the schema of these fields, as Connect's converter writes it."""
    images = (row, None) if op == "d" else (None, row)
    value = with_schema(change(op, *images, table=table.split(".")[2]), [FIELDS[name] for name in fields])
    return Record(_compact(value), KEY, topic=table)


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def assert_counted(found: Result, count: int) -> None:
    """Read = outcomes + skipped."""
    assert found.tally.error is None
    assert found.tally.read == count
    assert found.record_count == count
