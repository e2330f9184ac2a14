"""Many tables of records in Avro: sorted by the column, described by their writer schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from freshet.pipeline.decode.avro.source_tables import sql_type_of_node
from freshet.pipeline.decode.avro.writer_schema import parse_schema
from tests.kit.schema_registry import SchemaRegistry
from tests.pipeline.avro_records import AvroTopic, avro_change, connect, decimal, envelope_of, optional, record_of
from tests.pipeline.records import Record
from tests.pipeline.sync.kit import Result, many_plan, run, schema_of, sync_config

ORDERS, USERS = "shop.public.orders", "shop.public.users"
ROW: Mapping[str, Any] = {"id": "long", "n": optional("int")}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as server:
        yield server


class Table:
    """The topic of a source table."""

    def __init__(self, registry: SchemaRegistry, name: str, row: Mapping[str, Any]) -> None:
        self._name = name
        self._values = AvroTopic(registry, envelope_of(row), f"{name}-value")
        self._keys = AvroTopic(registry, record_of({"id": "long"}, "Key"), f"{name}-key")

    def change(self, op: str, row: Mapping[str, Any]) -> Record:
        db, schema, table = self._name.split(".")
        before, after = (row, None) if op == "d" else (None, row)
        datum = avro_change(op, before, after, db=db, schema=schema, table=table)
        return Record(self._values.value(datum), self._keys.value({"id": row["id"]}), topic=self._name)


def plan(registry: SchemaRegistry, tables: Mapping[str, Mapping[str, str]], **section: Any) -> Any:
    source = {"schema_registry": {"url": registry.url}}
    config = sync_config(of="debezium-avro", source=source, **section)
    return many_plan(config, {name: schema_of(columns) for name, columns in tables.items()})


def seen(found: Result) -> dict[str, tuple[Mapping[str, str], tuple[str, ...]]]:
    return {name: (each.columns, each.keys) for name, each in found.seen.items()}


def test_two_tables_in_one_block(registry: SchemaRegistry) -> None:
    orders, users = Table(registry, ORDERS, ROW), Table(registry, USERS, {"id": "long", "name": optional("string")})
    known = plan(registry, {ORDERS: {"id": "BIGINT", "n": "INT"}, USERS: {"id": "BIGINT", "name": "STRING"}})
    records = [
        orders.change("c", {"id": 1, "n": 5}), users.change("c", {"id": 1, "name": "Ada"}),
        Record(None, b"\0"), orders.change("d", {"id": 1, "n": 5}), Record(b"no avro", None),
        users.change("u", {"id": 2, "name": None}),
    ]  # fmt: skip
    found = run(known, records * 30)
    assert found.texts(1) == ["+I(1, 5)", "-D(1, 5)"] * 30
    assert found.texts(2) == ["+I(1, Ada)", "+U(2, None)"] * 30
    assert found.tally.read == 180 == found.record_count
    assert found.tally.skipped == {"tombstone": 30}
    assert not found.seen


def test_a_new_table_and_a_new_field(registry: SchemaRegistry) -> None:
    row = {**ROW, "total": optional(decimal(2, 9)), "at": optional(connect("long", "io.debezium.time.MicroTimestamp"))}
    users, orders = Table(registry, USERS, row), Table(registry, ORDERS, {**ROW, "n": optional("long"), "x": "double"})
    narrow = Table(registry, ORDERS, ROW)
    known = plan(registry, {ORDERS: {"id": "BIGINT", "n": "INT"}})
    values = {"id": 1, "n": 1, "total": None, "at": None}
    found = run(known, [narrow.change("c", {"id": 1, "n": 1}), users.change("c", values)])
    columns = {"id": "BIGINT", "n": "INT", "total": "DECIMAL(9, 2)", "at": "TIMESTAMP(6)"}
    assert seen(found) == {USERS: (columns, ("id",))}
    found = run(known, [narrow.change("c", {"id": 1, "n": 1}), orders.change("c", {"id": 1, "n": 1, "x": 0.5})])
    assert seen(found) == {ORDERS: ({"n": "BIGINT", "x": "DOUBLE"}, ("id",))}


def test_metadata_columns(registry: SchemaRegistry) -> None:
    orders = Table(registry, ORDERS, ROW)
    columns = {"id": "BIGINT", "n": "INT", "t": "STRING", "at": "TIMESTAMP(3) WITH LOCAL TIME ZONE"}
    known = plan(registry, {ORDERS: columns}, metadata_columns={"t": "table", "at": "op_ts"})
    (row,) = run(known, [orders.change("c", {"id": 1, "n": 5})]).rows[1]
    assert row["_d2"] == "orders"
    assert row["_d3"].timestamp() == 1700000000.123


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("int", "INT"), ("float", "FLOAT"), ("bytes", "BYTES"), ("boolean", "BOOLEAN"),
        (optional("string"), "STRING"), (decimal(2, 39), "STRING"), (["null", "int", "string"], "STRING"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1}, "DECIMAL(5, 1)"),
        ({"type": "int", "logicalType": "date"}, "DATE"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "TIMESTAMP(6)"),
        ({"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}, "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ({"type": "array", "items": optional("int")}, "ARRAY<INT>"),
        ({"type": "map", "values": "double"}, "MAP<STRING, DOUBLE>"),
        ({"type": "enum", "name": "e", "symbols": ["a"]}, "STRING"),
        ({"type": "record", "name": "r", "fields": [{"name": "x", "type": "int"}]}, "STRING"),
    ],
)  # fmt: skip
def test_types(kind: Any, expected: str) -> None:
    schema = parse_schema(json.dumps({"type": "record", "name": "v", "fields": [{"name": "x", "type": kind}]}))
    assert sql_type_of_node(schema.root.fields["x"]) == expected
