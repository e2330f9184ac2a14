"""Columns that the source renames in the case of their letters alone: their values go on into the table's column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from freshet.pipeline.decode.outcomes import SeenSchema
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.sync.sync_tables import SyncTables
from freshet.pipeline.sync.table_decoding import ManyPlan
from tests.kit.schema_registry import SchemaRegistry
from tests.pipeline.avro_records import AvroTopic, avro_change, envelope_of, optional
from tests.pipeline.binlog_records import canal
from tests.pipeline.records import Record, change, flat_with_schema, with_schema
from tests.pipeline.sync.change_records import KEY, ORDERS
from tests.pipeline.sync.kit import Result, many_plan, run, schema_of, source_table, sync_config
from tests.pipeline.sync.test_sync_tables import STARTS, World

SCHEMA = schema_of({"id": "BIGINT", "Name": "STRING"})
TWO = "differ in the case of their letters alone"
NAMES = ("id", "Name", "NAME", "nAMe")


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as server:
        yield server


def _typed(row: Mapping[str, Any], before: Mapping[str, Any] | None = None, op: str = "c") -> Record:
    fields = [{"type": "int64" if name.lower() == "id" else "string", "optional": True, "field": name} for name in row]
    images = (row, None) if op == "d" else (before, row)
    return Record(with_schema(change(op, *images), fields), KEY, topic=ORDERS)


def _unwrapped(row: Mapping[str, Any]) -> Record:
    fields = [{"type": "int64" if name == "id" else "string", "optional": True, "field": name} for name in row]
    return Record(flat_with_schema(row, fields), KEY, topic=ORDERS)


def _canal(row: Mapping[str, Any]) -> Record:
    texts = {name: None if value is None else str(value) for name, value in row.items()}
    types = {name: "bigint" if name == "id" else "varchar(9)" for name in row}
    return Record(canal("INSERT", [texts], database="shop.public", mysqlType=types), topic="t")


def _avro(registry: SchemaRegistry, row: Mapping[str, Any]) -> Record:
    types: dict[str, Any] = {name: "long" if name == "id" else optional("string") for name in row}
    topic = AvroTopic(registry, envelope_of(types), f"{'-'.join(row)}-value")
    return Record(topic.value(avro_change("c", None, row)), topic=ORDERS)


FORMATS = {"debezium-json": _typed, "debezium-unwrapped": _unwrapped, "canal-json": _canal, "debezium-avro": None}


@pytest.mark.parametrize("form", FORMATS)
def test_the_column_that_is_called_so_is_written(registry: SchemaRegistry, form: str) -> None:
    source = {"schema_registry": {"url": registry.url}} if form == "debezium-avro" else {}
    config = sync_config(of=form, source=source)
    make = FORMATS[form] or (lambda row: _avro(registry, row))
    rows: list[tuple[dict[str, Any], str]] = [
        ({"id": 1, "Name": "a"}, "+I(1, a)"),
        ({"id": 2, "NAME": "b"}, "+I(2, b)"),
        ({"id": 3, "nAMe": None}, "+I(3, None)"),
        ({"id": 4, "NAME": "left", "Name": "d"}, "+I(4, d)"),
        ({"id": 5, "NAME": "x", "nAMe": "y"}, f"dead Name: fields NAME and nAMe {TWO}"),
    ]  # fmt: skip
    table = SourceTable("shop.public", "", "orders") if form == "canal-json" else source_table(ORDERS)
    plan = many_plan(config, {ORDERS: SCHEMA}, passed_over=NAMES)
    plan = replace(plan, tables={table: plan.tables[source_table(ORDERS)]})
    for times in (1, 30):
        found = run(plan, [make(row) for row, _ in rows * times])
        assert found.texts(1) == [text for _, text in rows] * times


def test_an_update_and_a_deletion_of_another_spelling() -> None:
    """Of the key too; a change of the key is a deletion and an insert."""
    plan = many_plan(sync_config(), {ORDERS: SCHEMA}, passed_over=(*NAMES, "ID"))
    records = [
        _typed({"ID": 1, "NAME": "b"}, {"ID": 1, "NAME": "a"}, "u"),
        _typed({"ID": 2, "NAME": "b"}, {"ID": 1, "NAME": "a"}, "u"),
        _typed({"ID": 2, "NAME": "b"}, None, "d"),
    ]
    assert run(plan, records).texts(1) == ["+U(1, b)", "-D(1, None); +I(2, b)", "-D(2, b)"]


def test_two_columns_that_a_field_is_called_like() -> None:
    schema = schema_of({"id": "BIGINT", "Name": "STRING", "name": "STRING"})
    found = run(many_plan(sync_config(), {ORDERS: schema}, passed_over=NAMES), [_typed({"id": 1, "NAME": "x"})])
    assert found.texts(1) == ["dead Name: fields Name and name differ in the case of their letters alone"]


# --- on the driver ----------------------------------------------------------------------------------------------------


def _batch(world: World, tables: SyncTables, records: Sequence[Record]) -> Result:
    """What the decoders give once nothing is new to them, as the rounds of a batch find it."""
    for _ in range(5):
        tables.round(0, STARTS)
        plan: ManyPlan = tables.plan()
        found = run(plan, records)
        if not found.seen:
            return found
        seen = [SeenSchema(source_table(name), each.to_document()) for name, each in found.seen.items()]
        tables.follow(seen, 0, STARTS)
    raise AssertionError("ever new")


OLD = [_typed({"id": 1, "Name": "a"})]
NEW = [_typed({"id": 2, "NAME": "b"}), _typed({"id": 3, "NAME": "c"})]


def test_a_run_goes_on_with_the_column(tmp_path: Path) -> None:
    world = World(tmp_path)
    tables = world.run()
    assert _batch(world, tables, OLD).texts(1) == ["+I(1, a)"]
    tables.take_events({})
    assert _batch(world, tables, [*OLD, *NEW]).texts(1) == ["+I(1, a)", "+I(2, b)", "+I(3, c)"]
    assert tables.take_events({}) == ("field 'NAME' of shop.public.orders fills column Name of lake.orders",)
    assert list(world.columns("lake.orders")) == ["id", "Name"]
    assert _batch(world, tables, OLD).texts(1) == ["+I(1, a)"]
    wider = [_typed({"id": 4, "NAME": "d", "more": "x"})]
    assert _batch(world, tables, wider).texts(1) == ["+I(4, d, x)"]
    back = [_typed({"id": 5, "Name": "e", "NAME": "left", "more": "y"})]
    assert _batch(world, tables, back).texts(1) == ["+I(5, e, y)"]


@pytest.mark.parametrize("evolution", ["lenient", "freeze"])
def test_a_table_that_is_created_from_both(tmp_path: Path, evolution: str) -> None:
    world = World(tmp_path)
    assert _batch(world, world.run(schema_evolution=evolution), [*OLD, *NEW]).texts(1) == [
        "+I(1, a)",
        "+I(2, b)",
        "+I(3, c)",
    ]
    assert list(world.columns("lake.orders")) == ["id", "Name"]


def test_freeze_stops(tmp_path: Path) -> None:
    world = World(tmp_path)
    tables = world.run(schema_evolution="freeze")
    _batch(world, tables, OLD)
    for _ in range(2):
        with pytest.raises(PipelineFailedError, match="renamed Name to NAME .* schema_evolution is freeze"):
            _batch(world, tables, NEW)


def test_freeze_leaves_a_second_column_of_the_same_letters_out(tmp_path: Path) -> None:
    both = [_typed({"id": 1, "Name": "a", "NAME": "b"})]
    tables = World(tmp_path).run(schema_evolution="freeze")
    assert _batch(World, tables, both).texts(1) == ["+I(1, a)"]  # type: ignore[arg-type]
