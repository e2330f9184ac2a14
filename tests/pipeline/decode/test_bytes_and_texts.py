"""A text is read as bytes only where the mode or the record's schema says that it holds some; bytes are no number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from freshet.pipeline.config.pipeline_file import PipelineConfig
from tests.kit.schema_registry import SchemaRegistry
from tests.pipeline.avro_records import AvroTopic, avro_change, avro_pipeline, connect, envelope_of, optional
from tests.pipeline.records import change, decoder_of, flat_with_schema, pipeline_of, run, with_schema
from tests.pipeline.sync.kit import many_plan, schema_of, sync_config
from tests.pipeline.sync.kit import run as run_many

TIMES = 5
BITS = "io.debezium.data.Bits"
BYTES = ("BYTES", "VARBINARY(30)")
NUMBERS = ("TINYINT", "INT", "BIGINT", "DOUBLE", "DECIMAL(20, 2)", "BOOLEAN")


def dead(sql: str, hint: str = "") -> str:
    exactly = " (exactly)" if sql.startswith("DECIMAL") and not hint else ""
    return f"dead v: the value of field v does not fit {sql}{hint}{exactly}"


def read(config: PipelineConfig, records: list[Any]) -> list[str]:
    """What the records become by either path."""
    decoder = decoder_of(config)
    careful = run(replace(decoder, is_careful=True), records).shown
    assert run(decoder, records * TIMES).shown == careful * TIMES
    return careful


def of_schema(sql: str, *fields: tuple[dict[str, Any], Any], form: str = "debezium-json", **settings: Any) -> list[str]:
    """What values become whose schema is the one with them."""
    records = []
    for schema, value in fields:
        row = {"id": 1, "v": value}
        types = [{"type": "int64", "field": "id"}, {"optional": True, "field": "v", **schema}]
        is_flat = form == "debezium-unwrapped"
        records.append(flat_with_schema(row, types) if is_flat else with_schema(change("c", None, row), types))
    return read(pipeline_of({"id": "BIGINT", "v": sql}, format=form, **settings), records)


@pytest.mark.parametrize("mode", ["string", "double"])
def test_texts_that_are_no_numbers_are_none_where_decimals_are_texts(mode: str) -> None:
    config = pipeline_of({"id": "BIGINT", "v": "DECIMAL(20, 2)"}, decimal_handling_mode=mode)
    texts = ["free", "NULL", "0x10", "AeJA", "/w==", "nan=", "1234", "12.50", "-3"]
    rows = [{"id": 1, "v": text} for text in texts]
    numbers = {"1234": "+I(1, 1234.00)", "12.50": "+I(1, 12.50)", "-3": "+I(1, -3.00)"}
    wanted = [numbers.get(text, dead("DECIMAL(20, 2)")) for text in texts]
    assert read(config, [change("c", None, row) for row in rows]) == wanted
    flat = pipeline_of({"id": "BIGINT", "v": "DECIMAL(20, 2)"}, decimal_handling_mode=mode, format="debezium-unwrapped")
    assert read(flat, rows) == wanted
    sync = sync_config(source={"decimal_handling_mode": mode})
    tables = {"shop.public.orders": schema_of({"id": "BIGINT", "v": "DECIMAL(20, 2)"})}
    found = run_many(many_plan(sync, tables), [change("c", None, row) for row in rows])
    shown = [*found.texts(1), *found.texts(0)]
    assert sorted(shown) == sorted(wanted)


def test_where_decimals_are_bytes_a_text_without_a_schema_is_base64() -> None:
    config = pipeline_of({"id": "BIGINT", "v": "DECIMAL(20, 2)"})
    assert read(config, [change("c", None, {"id": 1, "v": "AeJA"})]) == ["+I(1, 1234.56)"]


@pytest.mark.parametrize("form", ["debezium-json", "debezium-unwrapped"])
@pytest.mark.parametrize("sql", NUMBERS)
def test_bytes_are_no_number(sql: str, form: str) -> None:
    bits = ({"type": "bytes", "name": BITS, "parameters": {"length": "24"}}, "1234")
    plain = ({"type": "bytes"}, "true" if sql == "BOOLEAN" else "1234")
    assert of_schema(sql, bits, plain, form=form) == [
        dead(sql, f" (its schema calls it {BITS})"), dead(sql, " (its schema calls it bytes)"),
    ]  # fmt: skip


@pytest.mark.parametrize("form", ["debezium-json", "debezium-unwrapped"])
@pytest.mark.parametrize("sql", BYTES)
def test_a_text_is_no_bytes_unless_the_mode_says_so(sql: str, form: str) -> None:
    hint = " (its schema calls it string; binary_handling_mode says what a text is)"
    text, octets = {"type": "string"}, {"type": "bytes"}
    assert of_schema(sql, (text, "free"), (octets, "q80="), form=form) == [dead(sql, hint), "+I(1, b'\\xab\\xcd')"]
    assert (
        of_schema(sql, (text, "abcd"), (octets, "q80="), form=form, binary_handling_mode="hex")
        == ["+I(1, b'\\xab\\xcd')"] * 2
    )
    assert of_schema(sql, (text, "q80="), (text, "free!"), form=form, binary_handling_mode="base64") == [
        "+I(1, b'\\xab\\xcd')", dead(sql),
    ]  # fmt: skip
    json = {"type": "string", "name": "io.debezium.data.Json"}
    assert of_schema(sql, (json, "free"), form=form) == [dead(sql, hint.replace("string", json["name"], 1))]


NO_TEXTS = [1234, 12345678, True, [0], {"a": 1}, 12.5]
"""The texts of most would be base64, hex, or a character for each byte."""


@pytest.mark.parametrize("mode", ["bytes", "base64", "base64-url-safe", "hex"])
@pytest.mark.parametrize("sql", BYTES)
def test_only_a_text_holds_bytes(sql: str, mode: str) -> None:
    columns = {"id": "BIGINT", "v": sql}
    rows = [{"id": 1, "v": value} for value in NO_TEXTS]
    wanted = [dead(sql)] * len(rows)
    debezium = pipeline_of(columns, binary_handling_mode=mode)
    assert read(debezium, [change("c", None, row) for row in rows]) == wanted
    assert read(pipeline_of(columns, format="debezium-unwrapped", binary_handling_mode=mode), rows) == wanted
    assert read(pipeline_of(columns, format="json", binary_handling_mode=mode), rows) == wanted
    assert (
        of_schema(sql, ({"type": "int32"}, 1234), ({"type": "boolean"}, True), binary_handling_mode=mode) == wanted[:2]
    )


def test_only_a_text_holds_bytes_in_arrays_and_canal() -> None:
    array = {"type": "array", "items": {"type": "int32", "optional": True}}
    assert of_schema("ARRAY<BYTES>", (array, [1234])) == [dead("ARRAY<BYTES>")]
    message = {"type": "INSERT", "database": "shop", "table": "orders", "data": [{"id": "1", "v": 1234}], "ts": 1}
    assert read(pipeline_of({"id": "BIGINT", "v": "BYTES"}, format="canal-json"), [message]) == [dead("BYTES")]


def test_arrays_too() -> None:
    array = {"type": "array", "items": {"type": "bytes", "optional": True}}
    assert of_schema("ARRAY<BIGINT>", (array, ["1234"])) == [dead("ARRAY<BIGINT>")]
    assert of_schema("ARRAY<BYTES>", (array, ["q80="])) == ["+I(1, [b'\\xab\\xcd'])"]


def test_in_avro() -> None:
    decimal, decimals = "DECIMAL(20, 2)", "MAP<STRING, DECIMAL(20, 2)>"
    no_text = " (its schema calls it string; binary_handling_mode says what a text is)"
    cases: list[tuple[Any, Any, str, str]] = [
        ("string", "free", decimal, dead(decimal)),
        ("string", "12.50", decimal, "+I(1, 12.50)"),
        ("string", "free", "BYTES", dead("BYTES", no_text)),
        (connect("bytes", BITS), b"\xd7m\xf8", "BIGINT", dead("BIGINT", f" (its schema calls it {BITS})")),
        ("bytes", b"\xd7m\xf8", "BIGINT", dead("BIGINT", " (its schema calls it bytes)")),
        ("bytes", b"\xd7m\xf8", decimal, dead(decimal, " (its schema calls it bytes)")),
        ("bytes", b"\xab\xcd", "BYTES", "+I(1, b'\\xab\\xcd')"),
        ({"type": "map", "values": "string"}, {"a": "free"}, decimals, dead(decimals)),
    ]
    with SchemaRegistry() as registry:
        for number, (kind, value, sql, wanted) in enumerate(cases):
            topic = AvroTopic(registry, envelope_of({"id": "long", "v": optional(kind)}), f"t{number}-value")
            config = avro_pipeline(registry, {"id": "BIGINT", "v": sql})
            assert read(config, [topic.value(avro_change("c", None, {"id": 1, "v": value}))]) == [wanted]
