"""Many tables of records that are rows: a topic stands for a table, unless unwrapped rows name theirs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.pipeline.decode.change import RawRecord, Skipped
from freshet.pipeline.decode.decoder import RecordDecoder
from freshet.pipeline.decode.flat import is_tombstone
from freshet.pipeline.decode.reading import read_record
from freshet.pipeline.decode.record_block import block_of
from freshet.pipeline.decode.source_table import SourceTable, table_of, table_of_topic
from freshet.pipeline.sync.record_sorter import RecordSorter
from freshet.pipeline.sync.table_decoding import HELD, Held, ManyPlan, TableDecoding
from tests.kit.schema_registry import SchemaRegistry
from tests.pipeline.avro_records import AvroTopic, decimal, optional, record_of
from tests.pipeline.records import Record, flat_with_schema, octets, raw_batch
from tests.pipeline.records import run as run_alone
from tests.pipeline.sync.kit import Result, many_plan, run, schema_of, sync_config

COLUMNS = {"id": "BIGINT", "n": "INT"}
ID = {"type": "int64", "optional": False, "field": "id"}
N = {"type": "int32", "optional": True, "field": "n"}
BIG = {"type": "int64", "optional": True, "field": "n"}
OP = {"type": "string", "optional": True, "field": "__op"}
ORDERS, ITEMS = SourceTable("shop", "public", "orders"), SourceTable("shop", "public", "items")
T = SourceTable("", "", "t")


def plan_of(
    format_name: str,
    table: SourceTable | None,
    columns: Mapping[str, str] = COLUMNS,
    rules: Any = ({"exclude": "tmp.*"}, {"from": ".*", "to": "lake.o"}),
    **section: Any,
) -> ManyPlan:
    """Of one table that is known, or of none."""
    config = sync_config(rules, of=format_name, **section)
    plan = many_plan(config, {"a.b.c": schema_of(columns)})
    return replace(plan, tables={} if table is None else dict.fromkeys([table], *plan.tables.values()))


def seen(found: Result) -> dict[str, tuple[dict[str, str], tuple[str, ...]]]:
    return {name: (dict(each.columns), each.keys) for name, each in found.seen.items()}


def assert_counted(found: Result, count: int) -> None:
    assert found.tally.error is None and found.tally.read == found.record_count == count


# --- plain Avro -------------------------------------------------------------------------------------------------------


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as server:
        yield server


def avro_plan(registry: SchemaRegistry, table: SourceTable | None, **more: Any) -> ManyPlan:
    return plan_of("avro", table, source={"schema_registry": {"url": registry.url}}, **more)


def test_avro_by_topic(registry: SchemaRegistry) -> None:
    rows = AvroTopic(registry, record_of({"id": "long", "n": optional("int")}), "t-value")
    others = AvroTopic(registry, record_of({"k": "string", "d": optional(decimal(2, 9))}), "u.v-value")
    keys = AvroTopic(registry, record_of({"k": "string"}, "Key"), "u.v-key")
    here = [Record(rows.value({"id": number, "n": None if number % 2 else 7}), topic="t") for number in range(40)]
    broken = [Record(here[0].value[:-1], topic="t"), Record(b"\1no avro", topic="t"), Record(None, topic="t")]
    found = run(avro_plan(registry, T), [*here, *broken])
    assert found.texts(1)[:40] == [f"+I({number}, {None if number % 2 else 7})" for number in range(40)]
    assert all(text.startswith("dead ") for text in found.texts(1)[40:]) and len(found.texts(1)) == 42
    assert found.tally.skipped == {"tombstone": 1} and not found.seen
    assert_counted(found, 43)
    new = Record(others.value({"k": "a", "d": None}), keys.value({"k": "a"}), topic="u.v")
    found = run(avro_plan(registry, T), [*here, new, Record(None, keys.value({"k": "b"}), topic="w")])
    assert seen(found) == {"u.v": ({"k": "STRING", "d": "DECIMAL(9, 2)"}, ("k",))}


def test_avro_of_another_writer_schema(registry: SchemaRegistry) -> None:
    old = AvroTopic(registry, record_of({"id": "long", "n": optional("int")}), "t-value")
    new = AvroTopic(registry, record_of({"id": "long", "n": "long", "x": optional("double")}), "t-value")
    records = [
        Record(old.value({"id": 1, "n": 1}), topic="t"),
        Record(new.value({"id": 2, "n": 2, "x": 0.5}), topic="t"),
    ]
    found = run(avro_plan(registry, T), records)
    assert seen(found) == {"t": ({"n": "BIGINT", "x": "DOUBLE"}, ())}
    wide = {"id": "BIGINT", "n": "BIGINT", "x": "DOUBLE"}
    found = run(avro_plan(registry, T, columns=wide), records)
    assert found.texts(1) == ["+I(1, 1, None)", "+I(2, 2, 0.5)"] and not found.seen


def test_values_that_are_no_avro_are_no_new_table(registry: SchemaRegistry) -> None:
    found = run(avro_plan(registry, None), [Record(b"{}", topic="t")] * 2)
    assert found.seen["t"].is_empty
    plan = replace(avro_plan(registry, None), tables={T: Held("nothing", is_nothing=True)})
    found = run(plan, [Record(b"{}", topic="t")] * 2)
    assert len(found.texts(0)) == 2 and not found.seen
    assert_counted(found, 2)


# --- row kinds --------------------------------------------------------------------------------------------------------


def test_row_kinds_by_topic() -> None:
    more: dict[str, Any] = {"options": {"rowkind.field": "kind", "bucket": 1}, "schema": "infer"}
    plan = plan_of("row-kind", T, {**COLUMNS, "kind": "STRING"}, **more)
    rows = [{"id": 1, "n": number, "kind": kind} for number, kind in enumerate(("+I", "-U", "+U", "-D", "?"))]
    found = run(plan, [Record(row, topic="t") for row in rows])
    assert found.texts(1)[:4] == ["+I(1, 0, +I)", "-U(1, 1, -U)", "+U(1, 2, +U)", "-D(1, 3, -D)"]
    assert found.texts(1)[4] == "dead None: kind is no row kind (+I, -U, +U, -D): ?"
    assert_counted(found, 5)
    found = run(
        plan,
        [Record({"k": 1, "kind": "-D"}, {"k": 1}, topic="u"), Record({"id": 1, "x": True, "kind": "+I"}, topic="t")],
    )
    assert seen(found) == {"u": ({"k": "BIGINT", "kind": "STRING"}, ("k",)), "t": ({"x": "BOOLEAN"}, ())}


def test_the_field_of_the_kind_is_said_by_the_rule() -> None:
    """A table may have been created without it."""
    rules = [
        {"from": "t", "to": "lake.o", "options": {"rowkind.field": "op"}},
        {"from": ".*", "to": "lake.x"},
    ]
    config = sync_config(rules, of="row-kind", options={"rowkind.field": "kind"})
    plan = many_plan(config, {"..t": schema_of({**COLUMNS, "kind": "STRING"})})
    found = run(plan, [Record({"id": 1, "n": 2, "op": "-D", "kind": "+I"}, topic="t")])
    assert found.texts(1) == ["-D(1, 2, +I)"] and not found.tally.notes


# --- rows that Debezium has unwrapped ---------------------------------------------------------------------------------


def unwrapped(row: Mapping[str, Any], topic: str = "shop.public.orders", key: Any = None, **added: Any) -> Record:
    """`added` are fields that the transformation adds, without their prefix."""
    value = {**row, **{f"__{name}": each for name, each in added.items()}}
    return Record(value, {"id": row.get("id")} if key is None else key, topic)


def test_unwrapped_rows_by_topic() -> None:
    plan = plan_of("debezium-unwrapped", ORDERS)
    records = [
        unwrapped({"id": 1, "n": 2}, op="c"),
        unwrapped({"id": 1, "n": 3}, op="u"),
        unwrapped({"id": 1, "n": 3}, deleted="true"),
        Record(None, {"id": 7}, "shop.public.orders"),
        Record(b"null", {"id": 8}, "shop.public.orders"),
        Record({"schema": None, "payload": None}, flat_with_schema({"id": 9}, [ID]), "shop.public.orders"),
        Record({"ts_ms": 1}, {"serverName": "shop"}, "__debezium-heartbeat.shop"),
        Record({"status": "BEGIN", "id": "1", "event_count": None, "data_collections": None}, None, "shop.transaction"),
        Record({"source": {}, "databaseName": "shop", "ddl": ""}, None, "shop"),
    ]
    found = run(plan, records)
    gone = [f"-D({number}, {n})" for number, n in ((1, 3), (7, None), (8, None), (9, None))]
    assert found.texts(1) == ["+I(1, 2)", "+U(1, 3)", *gone]
    assert found.tally.skipped == {"heartbeat": 1, "transaction": 1, "schema change": 1}
    assert not found.seen
    assert_counted(found, len(records))


def test_unwrapped_rows_that_name_their_table() -> None:
    """By either form of the added fields; one topic may hold several tables."""
    plan = plan_of("debezium-unwrapped", ORDERS)
    names = {"source_db": "shop", "source_schema": "public", "source_table": "orders"}
    records = [
        unwrapped({"id": 1, "n": 2}, "all", **names),
        unwrapped({"id": 2, "n": 2}, "all", db="shop", schema="public", table="orders"),
        unwrapped({"id": 3, "n": 2}, "all", deleted="true", **names),
        Record(flat_with_schema({"id": 4, "n": 2, "__table": "orders", "__db": "shop", "__schema": "public"}, [ID, N]),
               None, "all"),
        unwrapped({"id": 5, "n": 2, "ts_ms": 5}, source_db="no table"),
        unwrapped({"id": 6, "n": 1}, "all", **{**names, "source_table": "items"}),
    ]  # fmt: skip
    found = run(plan, records[:-1])
    assert found.texts(1) == ["+I(1, 2)", "+I(2, 2)", "-D(3, 2)", "+I(4, 2)", "+I(5, 2)"]
    assert_counted(found, 5)
    assert seen(run(plan, records)) == {"shop.public.items": ({"id": "BIGINT", "n": "BIGINT"}, ("id",))}


def test_tombstones_of_tables_that_are_not_known() -> None:
    """The rows of their topic may name other tables: a deletion is not lost."""
    named = unwrapped({"id": 1, "n": 2}, "pg.public.orders", db="shop", schema="public", table="orders")
    gone = [Record(None, {"id": 1}, "pg.public.orders"), Record(b"null", {"id": 1}, "pg.public.orders")]
    excluded = Record(None, {"id": 1}, "tmp_a")
    plan = plan_of("debezium-unwrapped", ORDERS)
    found = run(plan, [named, *gone, excluded])
    assert found.texts(1) == ["+I(1, 2)"]
    assert len(found.texts(0)) == 2
    assert "knows no table pg.public.orders of its topic: have the connector write" in found.texts(0)[0]
    assert found.tally.skipped == {"excluded by a rule: tmp_a": 1}
    assert_counted(found, 4)
    found = run(replace(plan, only="lake.other"), gone)
    assert not found.rows and sum(found.tally.skipped.values()) == 2
    held = replace(plan, tables={SourceTable("pg", "public", "orders"): Held(HELD)})
    found = run(held, gone)
    assert found.tally.skipped == {f"{HELD}: pg.public.orders": 2}


def test_types_of_unwrapped_rows() -> None:
    """Of the schema beside them; added fields are no columns."""
    plan = plan_of("debezium-unwrapped", ORDERS)

    def typed(value: Any, *fields: Any, topic: str = "shop.public.orders") -> Record:
        compact = json.dumps(flat_with_schema({"id": 1, "n": value, "__op": "c"}, [*fields, OP]), separators=(",", ":"))
        return Record(compact.encode(), flat_with_schema({"id": 1}, [ID]), topic)

    assert not run(plan, [typed(1, ID, N)] * 3).seen
    tombstone = Record(None, {"id": 1}, "shop.public.orders")
    wide = typed(1 << 40, ID, BIG)
    for records in ([typed(1, ID, N), tombstone, wide], [tombstone, wide], [wide, typed(1, ID, N)]):
        assert run(plan, records).seen["shop.public.orders"].columns == {"n": "BIGINT"}
    found = run(plan, [typed(1, ID, N, topic="shop.public.items"), tombstone])
    assert seen(found) == {"shop.public.items": (COLUMNS, ("id",))}
    assert found.seen["shop.public.items"].is_typed
    spaced = Record(flat_with_schema({"id": 1, "n": 2, "x": 1.5}, [ID, N, {"type": "double", "field": "x"}]), None)
    assert run(plan, [spaced]).seen["shop.public.orders"].columns == {"x": "DOUBLE"}
    infer = plan_of("debezium-unwrapped", ORDERS, schema="infer")
    assert run(infer, [unwrapped({"id": 1, "n": 1, "x": True}, op="c")]).seen["shop.public.orders"].columns == {
        "x": "BOOLEAN"
    }


def test_metadata_of_unwrapped_rows() -> None:
    columns = {"id": "BIGINT", "t": "STRING", "d": "STRING", "o": "STRING", "at": "TIMESTAMP(3) WITH LOCAL TIME ZONE"}
    metadata = {"t": "table", "d": "db", "o": "op", "at": "op_ts"}
    plan = plan_of("debezium-unwrapped", ORDERS, columns, metadata_columns=metadata)
    names = {"source_db": "shop", "source_schema": "public", "source_table": "orders", "source_ts_ms": 1000}
    for times in (1, 20):
        found = run(plan, [unwrapped({"id": 1}, op="u", ts_ms=5000, **names), unwrapped({"id": 2}, ts_ms=2000)] * times)
        assert found.texts(1) == [
            "+U(1, orders, shop, u, 1970-01-01 00:00:01)", "+I(2, None, None, None, 1970-01-01 00:00:02)",
        ] * times  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("a.b.c", ("a", "b", "c")), ("a.b", ("a", "", "b")), ("a", ("", "", "a")), ("a.b.c.d", ("", "", "a.b.c.d")),
        ("a..c", ("", "", "a..c")), (".b", ("", "", ".b")), ("", ("", "", "")),
    ],
)  # fmt: skip
def test_tables_of_topics(topic: str, expected: tuple[str, str, str]) -> None:
    """Their names are those of the topics, in whichever parts."""
    assert table_of_topic("debezium-unwrapped", topic) == SourceTable(*expected)
    assert str(SourceTable(*expected)) == topic
    assert table_of_topic("json", topic) == table_of_topic("avro", topic) == SourceTable("", "", topic)
    assert table_of_topic("debezium-json", topic) is None


_MEMBERS = st.sampled_from(
    ["__table", "__source_table", "__db", "__source_db", "__schema", "ts_ms", "payload", "schema", "source",
     "databaseName", "id", "status", "event_count", "data_collections", "__op", "__deleted"]
)  # fmt: skip
_VALUES = st.sampled_from([None, "a", "", 3, True, "t", {"id": 1}, {"__table": "x"}, [1]])
_ROWS = st.dictionaries(_MEMBERS, _VALUES, max_size=5)
_SHAPES = st.one_of(
    _ROWS,
    _ROWS.map(lambda row: {"schema": {"fields": []}, "payload": row}),
    st.sampled_from([b"", b"{", b"\xff", b"null", b"[]", b"3", None, {"schema": None, "payload": None}]),
)


@given(st.lists(st.tuples(_SHAPES, st.sampled_from(["a.b.c", "t"])), min_size=1, max_size=8))
def test_unwrapped_rows_are_sorted_as_the_careful_path_reads_them(records: list[tuple[Any, str]]) -> None:
    block = block_of(raw_batch([Record(value, {"serverName": "x"}, topic) for value, topic in records]))
    there = np.flatnonzero([value is not None for value, _ in records])
    for table, indexes in RecordSorter("debezium-unwrapped").sort(block, there).by_table.items() if len(there) else ():
        for index in indexes.tolist():
            value, topic = records[index]
            raw = RawRecord(octets({"serverName": "x"}), octets(value), topic=topic)
            reading = read_record("debezium-unwrapped", raw)
            if table is None:
                continue  # that path decides
            assert not is_tombstone(raw.value)
            named = None if isinstance(reading, Skipped) else table_of(reading.source)
            if isinstance(reading, Skipped):
                assert table_of(change_names(value)) == table, "it says its table, and what it is"
            else:
                assert table == (named or table_of_topic("debezium-unwrapped", topic))


def change_names(value: Any) -> dict[str, Any]:
    row = value["payload"] if set(value) == {"schema", "payload"} and isinstance(value["payload"], dict) else value
    return {
        part: row.get(f"__source_{part}") if row.get(f"__source_{part}") is not None else row.get(f"__{part}")
        for part in ("db", "schema", "table")
    }


_NAMED = {"__source_db": "shop", "__source_schema": "public", "__source_table": "orders"}
_ANY = st.sampled_from(
    [
        unwrapped({"id": 1, "n": 2}), unwrapped({"id": 1, "n": "x"}), unwrapped({"id": 2, "n": 1}, deleted="true"),
        Record({"id": 3, "n": 1, **_NAMED}, None, "other"), Record(b"{"),
        Record({"id": 4, **_NAMED}, None, "shop.public.items"),
        Record(flat_with_schema({"id": 5, "n": 1, **_NAMED}, [ID, N]), None, "other"), Record(b"{", None, "t"),
        Record({"id": 6, "n": 1}, {"id": 6}, "shop.public.items"), Record(None, {"id": 1}), Record(b"null", {"id": 1}),
        Record(None, {"id": 1}, "other"), Record(b"null", None, "shop.public.items"), unwrapped({"ts_ms": 1, "id": 7}),
        Record(None, b"{"), Record({"schema": {}, "payload": None}, {"id": 8}), unwrapped({"id": None, "n": 1}),
    ]
)  # fmt: skip


def _of(record: Record) -> str | None:
    """The table by hand: what the row names, else its topic; None for what is no row of tables that are not known."""
    value = record.value
    if value in (None, b"null", b"{") or (isinstance(value, dict) and value.get("payload", "") is None):
        return record.topic if record.topic in (str(ORDERS), str(ITEMS)) else None
    row = value.get("payload", value) if isinstance(value, dict) else {}
    return str(ORDERS) if "__source_table" in row else record.topic


@pytest.mark.dear("each table is decoded twice")
@given(st.lists(_ANY, max_size=30))
def test_each_table_gets_what_its_own_decoder_gives(records: list[Record]) -> None:
    """The oracle is the decoder of one table, over the records that are its by hand."""
    config = sync_config(of="debezium-unwrapped")
    plan = many_plan(config, {str(table): schema_of(COLUMNS) for table in (ORDERS, ITEMS)})
    found = run(plan, records)
    assert found.tally.error is None and found.tally.read == found.record_count == len(records)
    skipped = 0
    for table in (ORDERS, ITEMS):
        decoding = plan.tables[table]
        assert isinstance(decoding, TableDecoding)
        alone = run_alone(RecordDecoder(decoding.plan), [each for each in records if _of(each) == str(table)])
        assert found.texts(decoding.index) == [text for text in alone.shown if text]
        skipped += sum(alone.tally.skipped.values())
    assert len(found.texts(0)) == sum(_of(each) is None for each in records)
    assert sum(found.tally.skipped.values()) == skipped


def test_truncates_of_unwrapped_rows() -> None:
    """Of the table of their topic, or of the one that they name."""
    records = [
        unwrapped({"id": 1, "n": 2}),
        Record({"__op": "t"}, None, "shop.public.orders"),
        Record({"__op": "t", **_NAMED}, None, "other"),
        Record({"__op": "t", "__table": "unknown"}, None, "shop.public.orders"),
    ]
    found = run(plan_of("debezium-unwrapped", ORDERS, source={"on_truncate": "apply"}), records[:3])
    assert [each.offset for each in found.tally.truncated] == [1, 2] and found.tally.skipped == {"truncate": 2}
    assert_counted(found, 3)
    found = run(plan_of("debezium-unwrapped", ORDERS, source={"on_truncate": "skip"}), records)
    assert found.seen["unknown"].is_empty
    found = run(plan_of("debezium-unwrapped", ORDERS), records[:2])
    assert found.tally.error is not None
