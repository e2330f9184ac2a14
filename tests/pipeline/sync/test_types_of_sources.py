"""Every type of each connector gets a column that takes all values of it: none of its ends is a dead letter."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from freshet.pipeline.decode.described_table import DescribedTable
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.sync.routing_report import _narrow_text
from freshet.pipeline.sync.table_changes import changes_of, new_table
from tests.kit.schema_registry import SchemaRegistry
from tests.pipeline.avro_records import AvroTopic, avro_change, connect, envelope_of, optional
from tests.pipeline.binlog_records import canal
from tests.pipeline.records import Record, change, with_schema
from tests.pipeline.sync.change_records import KEY, ORDERS
from tests.pipeline.sync.kit import many_plan, route_to, run, schema_of, sync_config

TIME, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
LTZ = "WITH LOCAL TIME ZONE"


def _decimal(precision: int, scale: int) -> dict[str, Any]:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return {"type": "bytes", "name": f"{CONNECT}Decimal", "parameters": parameters}


def _unscaled(number: int) -> str:
    return base64.b64encode(number.to_bytes(17, "big", signed=True)[-16:]).decode()


def _named(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "name": f"{TIME}{name}", "version": 1}


# Connector -> name of the type there: the field of its schema, the least and the largest value, the column
TYPES: dict[str, dict[str, tuple[dict[str, Any], list[Any], str]]] = {
    "mysql": {
        "tinyint": ({"type": "int16"}, [-128, 127], "SMALLINT"),
        "int unsigned": ({"type": "int64"}, [0, 2**32 - 1], "BIGINT"),
        "bigint": ({"type": "int64"}, [-(2**63), 2**63 - 1], "BIGINT"),
        "decimal(38,2)": (_decimal(38, 2), [_unscaled(-(10**38) + 1), _unscaled(10**38 - 1)], "DECIMAL(38, 2)"),
        "decimal(65,30)": (_decimal(65, 30), [_unscaled(-(10**38)), _unscaled(10**38)], "STRING"),
        "double": ({"type": "double"}, [-1.7976931348623157e308, 5e-324], "DOUBLE"),
        "date": (_named("int32", "Date"), [-719162, 2932896], "DATE"),
        "datetime(3)": (_named("int64", "Timestamp"), [-30610224000000, 253402300799999], "TIMESTAMP(3)"),
        "datetime(6)": (_named("int64", "MicroTimestamp"), [-30610224000000000, 253402300799999999], "TIMESTAMP(6)"),
        "timestamp(6)": (_named("string", "ZonedTimestamp"),
                         ["1970-01-01T00:00:01Z", "2038-01-19T03:14:07.999999Z"], f"TIMESTAMP(6) {LTZ}"),
        "time": (_named("int64", "MicroTime"), [-3020399999999, 3020399999999], "STRING"),
        "year": (_named("int32", "Year"), [1901, 2155], "INT"),
    },
    "postgresql": {
        "time(6)": (_named("int64", "MicroTime"), [0, 86400000000], "STRING"),
        "time(3)": (_named("int32", "Time"), [0, 86399999], "TIME(3)"),
        "timetz": (_named("string", "ZonedTime"), ["00:00:00Z", "23:59:59.999999Z"], "STRING"),
        "time[]": ({"type": "array", "items": _named("int64", "MicroTime")}, [[0, None], [86400000000]],
                   "ARRAY<STRING>"),
        "timestamp": (_named("int64", "MicroTimestamp"), [-62135596800000000, 253402300799999999], "TIMESTAMP(6)"),
        "timestamptz": (_named("string", "ZonedTimestamp"),
                        ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"], f"TIMESTAMP(6) {LTZ}"),
        "numeric(38,20)": (_decimal(38, 20), [_unscaled(-(10**38) + 1), _unscaled(10**38 - 1)], "DECIMAL(38, 20)"),
    },
    "sqlserver": {
        "time(7)": (_named("int64", "NanoTime"), [0, 86399999999900], "STRING"),
        "time(5)": (_named("int64", "MicroTime"), [0, 86399999990], "STRING"),
        "datetime2(7)": (_named("int64", "NanoTimestamp"), [-9223372036854775800, 9223372036854775800], "TIMESTAMP(9)"),
        "datetimeoffset(7)": (_named("string", "ZonedTimestamp"),
                              ["1700-01-01T00:00:00.0000001+14:00", "2262-01-01T00:00:00.9999999Z"],
                              f"TIMESTAMP(9) {LTZ}"),
        "money": (_decimal(19, 4), [_unscaled(-(2**63)), _unscaled(2**63 - 1)], "DECIMAL(19, 4)"),
    },
    "oracle": {
        "timestamp(9)": (_named("int64", "NanoTimestamp"), [-(2**62), 2**62], "TIMESTAMP(9)"),
        "timestamp(9) with time zone": (_named("string", "ZonedTimestamp"),
                                        ["1700-01-01T00:00:00.000000001Z", "2200-01-01T00:00:00.999999999+05:00"],
                                        f"TIMESTAMP(9) {LTZ}"),
        "date": (_named("int64", "Timestamp"), [-62135596800000, 253402300799000], "TIMESTAMP(3)"),
        "interval": (_named("int64", "MicroDuration"), [-(2**63), 2**63 - 1], "BIGINT"),
    },
}  # fmt: skip
CASES = [(connector, name) for connector, types in TYPES.items() for name in types]


def _record(connector: str, row: dict[str, Any], *fields: dict[str, Any]) -> Record:
    value = with_schema(change("c", None, row), [{"type": "int64", "field": "id"}, *fields])
    value["schema"]["fields"][2]["name"] = f"io.debezium.connector.{connector}.Source"
    return Record(json.dumps(value).encode(), KEY, topic=ORDERS)


@pytest.mark.parametrize(("connector", "name"), CASES, ids=[" ".join(case) for case in CASES])
def test_the_ends_of_a_type_are_no_dead_letters(connector: str, name: str) -> None:
    field, values, column = TYPES[connector][name]
    field = {**field, "field": "v", "optional": True}
    config = sync_config()
    records = [_record(connector, {"id": number, "v": value}, field) for number, value in enumerate(values)]
    described = DescribedTable.of(run(many_plan(config, {}), records).seen[ORDERS].to_document())
    assert dict(described.columns) == {"id": "BIGINT", "v": column}
    new = new_table(route_to(config, ORDERS), described)
    found = run(many_plan(config, {ORDERS: new.schema("lake.orders")}), records)
    assert [text for text in found.texts(0) + found.texts(1) if text.startswith("dead")] == []
    assert len(found.texts(1)) == len(values)
    assert not found.seen


def test_times_are_written_as_times_in_json_and_avro() -> None:
    """Alone and in arrays, negative and beyond a day; where the schema calls it none, a number is a number."""
    columns = schema_of({"id": "BIGINT", "v": "STRING", "a": "ARRAY<STRING>", "n": "STRING"})
    counts = [0, -3020399999999, 86400000000, 43200500000, None]
    texts = ["00:00:00", "-838:59:59.999999", "24:00:00", "12:00:00.5", "None"]
    expected = [f"+I({number}, {text}, {[text] if text != 'None' else [None]}, 5)" for number, text in enumerate(texts)]
    rows = [{"id": number, "v": count, "a": [count], "n": 5} for number, count in enumerate(counts)]
    fields: list[dict[str, Any]] = [
        {**_named("int64", "MicroTime"), "field": "v"},
        {"type": "array", "items": _named("int64", "MicroTime"), "field": "a"},
        {"type": "int32", "field": "n"},
    ]
    records = [_record("mysql", row, *fields) for row in rows] * 20
    found = run(many_plan(sync_config(), {ORDERS: columns}), records)
    assert found.texts(1) == expected * 20
    with SchemaRegistry() as registry:
        kind = optional(connect("long", f"{TIME}MicroTime"))
        topic = AvroTopic(
            registry, envelope_of({"id": "long", "v": kind, "a": {"type": "array", "items": kind}, "n": "int"})
        )
        config = sync_config(of="debezium-avro", source={"schema_registry": {"url": registry.url}})
        values = [Record(topic.value(avro_change("c", None, row)), topic=ORDERS) for row in rows]
        assert run(many_plan(config, {ORDERS: columns}), values).texts(1) == expected


def test_types_of_a_rule_stand_in_place_of_those_of_the_records() -> None:
    config = sync_config([{"from": "shop.public.(.*)", "to": "lake.$1", "types": {"v": "BIGINT", "gone": "INT"}}])
    field = {**_named("int64", "MicroTime"), "field": "v", "optional": True}
    records = [_record("mysql", {"id": 1, "v": 3020399999999}, field)]
    described = run(many_plan(config, {}), records).seen[ORDERS]
    route = route_to(config, ORDERS)
    new = new_table(route, described)
    assert new.columns == {"id": "BIGINT", "v": "BIGINT"}
    found = run(many_plan(config, {ORDERS: new.schema("lake.orders")}), records)
    assert (found.texts(1), found.seen) == (["+I(1, 3020399999999)"], {})
    (added,), _ = changes_of(schema_of({"id": "BIGINT"}), route, described)
    assert (added.name, str(added.type)) == ("v", "BIGINT")  # type: ignore[union-attr]
    assert changes_of(schema_of({"id": "BIGINT", "v": "INT"}), route, described) == ((), ())


def test_a_table_that_has_a_narrow_time_goes_on_and_is_named() -> None:
    field = {**_named("int64", "MicroTime"), "field": "v", "optional": True}
    for evolution in ("lenient", "freeze"):
        config = sync_config(schema_evolution=evolution)
        schema = schema_of({"id": "BIGINT", "v": "TIME(3)"})
        found = run(many_plan(config, {ORDERS: schema}), [_record("mysql", {"id": 1, "v": 1000}, field)])
        assert (found.texts(1), found.seen) == (["+I(1, 1)"], {})
        described = run(many_plan(config, {}), [_record("mysql", {"id": 1, "v": 1}, field)]).seen[ORDERS]
        text = _narrow_text(config, schema, route_to(config, ORDERS), described)
        assert "v TIME(3): finer or longer times" in text
        assert 'freshet sql /w "ALTER TABLE lake.orders ALTER COLUMN v TYPE STRING", or name' in text


def test_a_zoned_time_without_nanoseconds_of_sql_server_is_named_too() -> None:
    field = {**_named("string", "ZonedTimestamp"), "field": "v", "optional": True}
    config = sync_config()
    described = run(many_plan(config, {}), [_record("sqlserver", {"id": 1, "v": None}, field)]).seen[ORDERS]
    for digits, is_named in ((6, True), (9, False)):
        schema = schema_of({"id": "BIGINT", "v": f"TIMESTAMP({digits}) {LTZ}"})
        text = _narrow_text(config, schema, route_to(config, ORDERS), described)
        assert ('ALTER COLUMN v TYPE TIMESTAMP_LTZ(9)" --allow-lossy' in text) is is_named


def test_a_decimal_of_ticdc_without_digits_is_refused_with_the_setting() -> None:
    message = canal("INSERT", [{"id": "1", "v": "1.25"}], mysqlType={"id": "bigint", "v": "decimal"}, database="shop")
    name = "shop..orders"

    def described(rules: list[dict[str, Any]]) -> tuple[Any, Any, DescribedTable]:
        config = sync_config(rules, of="canal-json")
        found = run(many_plan(config, {}), [Record(message, topic="t")])
        return config, route_to(config, name), next(iter(found.seen.values()))

    rule = {"from": "shop.(.*)", "to": "lake.$1"}
    config, route, table = described([rule])
    with pytest.raises(InvalidRequestError, match="call the type of v decimal, .* content-compatible=true"):
        new_table(route, table)
    with pytest.raises(InvalidRequestError, match="content-compatible=true"):
        changes_of(schema_of({"id": "BIGINT"}), route, table)
    there = schema_of({"id": "BIGINT", "v": "DECIMAL(5,2)"})
    assert changes_of(there, route, table) == ((), ())
    found = run(many_plan(config, {name: there}), [Record(message, topic="t")])
    assert (found.texts(1), found.seen) == (["+I(1, 1.25)"], {})
    config, route, table = described([{**rule, "types": {"v": "DECIMAL(14, 2)"}}])
    assert new_table(route, table).columns["v"] == "DECIMAL(14, 2)"
