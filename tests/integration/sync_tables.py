"""Many tables by one query, of a real broker: they are created, follow their sources, and what does not fit is refused.

Run by `test_own_sessions` in a process of its own.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from freshet.pipeline.exceptions import PipelineFailedError
from tests.integration.source_world import SyncWorld
from tests.kit.schema_registry import SchemaRegistry
from tests.kit.source_database import Row, SourceTable
from tests.pipeline.avro_records import (
    AvroTopic,
    avro_change,
    decimal,
    envelope_of,
    optional,
    record_of,
)

pytest_plugins = ["tests.integration.source_fixtures"]
pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.mark.parametrize("read", ["spark", "python"])
def test_tables_are_created_and_follow_their_sources(world: SyncWorld, read: str) -> None:
    world.read = read
    orders = world.table("orders", {"id": "int", "total": "double", "created": "timestamp"})
    people = world.table("people", {"id": "bigint", "name": "text", "born": "date"})
    world.send(orders, orders.upsert(*({"id": i, "total": i / 2, "created": None} for i in range(50))))
    world.send(people, people.upsert({"id": 1, "name": "Ada", "born": None}))
    first = world.run()
    world.assert_equal()
    assert [row["batch"] for row in world.ledger().values()] == [0, 0, 0]
    assert any("is created" in text for text in first[0].report.table_events)

    orders.add_column("note", "text")
    items = world.table("items", {"id": "int", "n": "int"})
    world.send(orders, orders.upsert({"id": 1, "total": 9.5, "created": None, "note": "späť"}))
    world.send(orders, orders.delete(2, 3))
    world.send(items, items.upsert({"id": 7, "n": 1}))
    people.columns["id"] = "bigint"
    (second,) = world.run()
    world.assert_equal()
    ledger = world.ledger()
    assert (ledger["lake.orders"]["batch"], ledger["lake.people"]["batch"], ledger[""]["batch"]) == (1, 0, 1)
    assert second.report.read_count == second.report.result.record_count == 1 + 4 + 1


def test_types_widen_and_never_narrow(world: SyncWorld) -> None:
    numbers = world.table("numbers", {"id": "int", "n": "int"})
    world.send(numbers, numbers.upsert({"id": 1, "n": 1}))
    world.run()
    numbers.columns["n"] = "bigint"
    world.send(numbers, numbers.upsert({"id": 2, "n": 1 << 40}))
    world.run()
    numbers.columns["n"] = "int"
    world.send(numbers, numbers.upsert({"id": 3, "n": 3}))
    world.run()
    world.assert_equal()
    assert world.types("numbers") == ["INT NOT NULL", "BIGINT"]


def test_what_is_new_is_refused_where_tables_are_frozen(world: SyncWorld) -> None:
    table = world.table("a", {"id": "int", "n": "int"})
    world.more = "  schema_evolution: freeze"
    world.send(table, table.upsert({"id": 1, "n": 1}))
    world.run()
    table.add_column("more", "text")
    world.send(table, table.upsert({"id": 2, "n": 2, "more": "x"}))
    with pytest.raises(PipelineFailedError, match="new more STRING, and schema_evolution is freeze"):
        world.run()
    world.more = "  schema_evolution: ignore"
    (progress,) = world.run()
    assert progress.report.result.notes == {"unknown field more": 1}
    assert world.rows("a") == {1: {"id": 1, "n": 1}, 2: {"id": 2, "n": 2}}


def test_types_are_guessed_where_records_bring_none(world: SyncWorld) -> None:
    table = world.table("a", {"id": "int", "n": "int", "t": "text"}, with_schema=False)
    world.send(table, table.upsert({"id": 1, "n": 1, "t": "x"}))
    with pytest.raises(PipelineFailedError, match="bring no schema .* set schema: infer"):
        world.run()
    world.more = "  schema: infer"
    world.run()
    table.add_column("flag", "int")
    world.send(table, table.upsert({"id": 2, "n": 2, "t": None, "flag": True}))
    world.run()
    world.assert_equal()
    assert world.types("a") == ["BIGINT NOT NULL", "BIGINT", "STRING", "BOOLEAN"]


def test_shards_go_into_one_table_where_that_is_said(world: SyncWorld) -> None:
    one, two = (world.table(f"orders_{number}", {"id": "int", "n": "int"}) for number in (1, 2))
    world.rules = f"[{{from: '{world.db}.public.(.*)_(\\d+)', to: 'lake.$1', options: {{bucket: 2}}}}]"
    world.send(one, one.upsert({"id": 1, "n": 1}))
    world.send(two, two.upsert({"id": 2, "n": 2}))
    with pytest.raises(PipelineFailedError, match="both go to table lake.orders"):
        world.run()
    world.rules = world.rules.replace("options", "merge: true, options")
    world.run()
    assert world.rows("orders") == {**one.rows, **two.rows}


def test_metadata_and_computed_columns_partition_a_table(world: SyncWorld) -> None:
    table = world.table("a", {"id": "int", "created": "timestamp"})
    keys = "primary_key: [dt, id], partition_by: [dt], options: {bucket: 1}"
    world.rules = f"[{{from: '{world.db}.public.a', to: lake.a, {keys}}}]"
    world.more = (
        "  metadata_columns: {_table: table, _op_ts: op_ts, _op: op, _offset: offset}\n"
        "  computed_columns: {dt: \"date_format(created, 'yyyy-MM-dd')\"}"
    )
    day = 86_400_000_000
    world.send(table, table.upsert({"id": 1, "created": 20_000 * day}, {"id": 2, "created": 20_001 * day}))
    world.send(table, table.upsert({"id": 2, "created": 20_002 * day}))
    world.run()
    found = world.rows("a")
    moment = datetime(2024, 10, 4, tzinfo=UTC).replace(tzinfo=None)
    assert found[1]["created"] == moment
    assert {key: (row["dt"], row["_table"], row["_op"]) for key, row in found.items()} == {
        1: ("2024-10-04", "a", "c"), 2: ("2024-10-06", "a", "u"),
    }  # fmt: skip
    assert found[2]["_op_ts"] == datetime.fromtimestamp(1_700_000_000_003 / 1000, UTC)


def test_records_that_are_no_changes_are_counted_or_dead_letters(world: SyncWorld) -> None:
    table = world.table("a", {"id": "int", "n": "int"})
    world.rules = f"[{{exclude: '.*[.]tmp_.*'}}, {{from: '{world.db}.public.(a|tmp_b)', to: 'lake.$1'}}]"
    excluded, other = world.table("tmp_b", {"id": "int"}), world.table("c", {"id": "int"})
    world.send(table, table.upsert(*({"id": i, "n": i} for i in range(3))))
    world.send(table, [(b"{}", b"no json"), (b"{}", None), (b"{}", b'{"ts_ms":1}'), (b"{}", b'{"op":"c","after":{}}')])
    world.send(table, [(b"{}", json.dumps({"status": "BEGIN", "id": "1"}).encode())])
    world.send(excluded, excluded.upsert({"id": 1}))
    world.send(other, other.upsert({"id": 1}))
    (progress,) = world.run()
    result = progress.report.result
    assert result.skipped == {
        "tombstone": 1, "heartbeat": 1, "transaction": 1, f"excluded by a rule: {excluded.topic}": 1,
        f"no rule takes its table: {other.topic}": 1,
    }  # fmt: skip
    assert (result.applied, result.dead_count, result.read_count) == (3, 2, 10)
    world.assert_equal("a")
    assert world.target("dead_letters").scan().to_arrow().num_rows == 2


@pytest.mark.parametrize("read", ["spark", "python"])
def test_records_in_avro(world: SyncWorld, read: str) -> None:
    with SchemaRegistry() as registry:
        world.read, world.format, world.source = read, "debezium-avro", f"schema_registry: {{url: '{registry.url}'}}"
        tables = [SourceTable(world.db, "public", name, {"id": "bigint", "n": "bigint"}) for name in ("a", "b")]
        world.tables = {table.name: table for table in tables}
        for table in tables:
            world.broker.create_topic(table.topic, kafka_partitions=2)

        def send(table: SourceTable, row: Row, schema: Any) -> None:
            values = AvroTopic(registry, envelope_of(schema), f"{table.topic}-value")
            keys = AvroTopic(registry, record_of({"id": "long"}, "Key"), f"{table.topic}-key")
            op = "u" if row["id"] in table.rows else "c"
            table.rows[row["id"]] = row
            datum = avro_change(op, None, row, db=table.db, schema="public", table=table.name)
            world.send(table, [(keys.value({"id": row["id"]}), values.value(datum))])

        plain = {"id": "long", "n": optional("long")}
        for table in tables:
            for number in range(5):
                send(table, {"id": number, "n": number}, plain)
        world.run()
        world.assert_equal()
        tables[0].add_column("total", "text")
        send(tables[0], {"id": 1, "n": 7, "total": Decimal("1.50")}, {**plain, "total": optional(decimal(2, 9))})
        send(tables[1], {"id": 1, "n": 8}, plain)
        (progress,) = world.run()
        world.assert_equal()
        assert any("new total DECIMAL(9, 2)" in text for text in progress.report.table_events)


def test_a_ledger_belongs_to_one_pipeline(world: SyncWorld) -> None:
    table = world.table("a", {"id": "int", "n": "int"})
    world.send(table, table.upsert({"id": 1, "n": 1}))
    world.run()
    other = world.folder / "other.yaml"
    text = world.file.read_text().replace("name: shop", "name: other").replace("/c\n", "/c2\n")
    other.write_text(
        text.replace("'lake.$1'", "'lake.x_$1'").replace("sync:", "sync:\n  ledger: lake._freshet_ledger_shop")
    )
    with pytest.raises(PipelineFailedError, match="is the ledger of another pipeline"):
        world.run(other)
    world.send(table, table.upsert({"id": 2, "n": 2}))
    world.run()
    world.assert_equal()
    assert not world.catalog.has_table("lake.x_a")


def test_a_source_table_does_not_go_into_the_dead_letters(world: SyncWorld) -> None:
    table = world.table("dead_letters", {"id": "int", "n": "int"})
    world.send(table, table.upsert({"id": 1, "n": 1}))
    with pytest.raises(PipelineFailedError, match="is the table of the dead letters of this pipeline"):
        world.run()
    assert "id" not in world.target("dead_letters").schema.by_name


def test_another_source_for_a_table_that_is_there_stops_the_query(world: SyncWorld) -> None:
    a, b = (world.table(name, {"id": "int", "n": "int"}) for name in ("a", "b"))
    world.rules = f"[{{from: '{world.db}.public.a', to: lake.x, options: {{bucket: 2}}}}]"
    world.send(a, a.upsert({"id": 1, "n": 1}))
    world.send(b, b.upsert({"id": 1, "n": 7}))
    world.run()
    world.rules = world.rules.replace("public.a", "public.b")
    world.send(b, b.upsert({"id": 2, "n": 7}))
    with pytest.raises(PipelineFailedError, match="which the ledger says has the rows of"):
        world.run()
    assert world.rows("x") == a.rows
    world.resume("lake.x", anew=True)
    world.run()
    assert world.rows("x") == b.rows


def test_a_table_that_cannot_be_created_stops_the_query(world: SyncWorld) -> None:
    table = world.table("a", {"id": "int", "n": "int"})
    world.rules = f"[{{from: '{world.db}.public.a', to: lake.a, options: {{bucket: 2, merge-engine: first-row,"
    world.rules += " sequence.field: n}}]"
    world.send(table, table.upsert({"id": 1, "n": 1}))
    with pytest.raises(PipelineFailedError, match=r"lake.a for .* cannot be created as rule 0 of sync.tables says"):
        world.run()
    world.rules = world.rules.replace("merge-engine: first-row, sequence.field: n", "")
    world.run()
    world.assert_equal()


def test_decimals_of_two_scales_become_one_that_takes_both(world: SyncWorld) -> None:
    table = world.table("a", {"id": "int", "n": "decimal(9, 2)"})
    world.send(table, table.upsert({"id": 1, "n": "1.25"}))
    world.run()
    table.columns["n"] = "decimal(9, 4)"
    world.send(table, table.upsert({"id": 2, "n": "1.2345"}))
    world.run()
    assert str(world.target("a").schema.by_name["n"].type) == "DECIMAL(11, 4)"
    assert {key: row["n"] for key, row in world.rows("a").items()} == {1: Decimal("1.2500"), 2: Decimal("1.2345")}
