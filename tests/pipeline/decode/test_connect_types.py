"""Types of Debezium's fields, by its documented mappings, and that values of them are read in the types they give."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from freshet.pipeline.decode.sql_types import sql_type_of_field
from freshet.storage.model.sql_type import parse_sql_type
from tests.pipeline.records import change, decoded, pipeline_of, with_schema

CONNECT, TIME, DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."
LTZ = "TIMESTAMP(6) WITH LOCAL TIME ZONE"


def decimal(scale: Any, precision: Any = None) -> dict[str, Any]:
    parameters = {"scale": scale} | ({} if precision is None else {"connect.decimal.precision": precision})
    return {"type": "bytes", "name": f"{CONNECT}Decimal", "parameters": parameters}


def named(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "name": name, "version": 1}


FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"type": "int8"}, "TINYINT"),
    ({"type": "int16"}, "SMALLINT"),
    ({"type": "int32"}, "INT"),
    ({"type": "int64"}, "BIGINT"),
    ({"type": "float"}, "FLOAT"),
    ({"type": "float32"}, "FLOAT"),
    ({"type": "double"}, "DOUBLE"),
    ({"type": "float64"}, "DOUBLE"),
    ({"type": "boolean"}, "BOOLEAN"),
    ({"type": "string"}, "STRING"),
    ({"type": "bytes"}, "BYTES"),
    # --- decimals ---
    (decimal("2", "14"), "DECIMAL(14, 2)"),
    (decimal("0", "38"), "DECIMAL(38, 0)"),
    (decimal("38", "38"), "DECIMAL(38, 38)"),
    (decimal("0", "39"), "STRING"),
    (decimal("30", "65"), "STRING"),
    (decimal("5", "3"), "STRING"),
    (decimal("-2", "5"), "STRING"),
    (decimal("3"), "DECIMAL(38, 3)"),
    (decimal("x", "5"), "STRING"),
    (decimal(None, "5"), "STRING"),
    ({"type": "bytes", "name": f"{CONNECT}Decimal"}, "DECIMAL(38, 0)"),
    (named("struct", f"{DATA}VariableScaleDecimal"), "DECIMAL(38, 18)"),
    # --- dates and times ---
    (named("int32", f"{TIME}Date"), "DATE"),
    (named("int32", f"{CONNECT}Date"), "DATE"),
    (named("int32", f"{TIME}Time"), "TIME(3)"),
    (named("int64", f"{TIME}MicroTime"), "STRING"),
    (named("int64", f"{TIME}NanoTime"), "STRING"),
    (named("int32", f"{CONNECT}Time"), "TIME(3)"),
    (named("int64", f"{TIME}Timestamp"), "TIMESTAMP(3)"),
    (named("int64", f"{CONNECT}Timestamp"), "TIMESTAMP(3)"),
    (named("int64", f"{TIME}MicroTimestamp"), "TIMESTAMP(6)"),
    (named("int64", f"{TIME}NanoTimestamp"), "TIMESTAMP(9)"),
    (named("string", f"{TIME}ZonedTimestamp"), LTZ),
    (named("string", f"{TIME}IsoDate"), "DATE"),
    (named("string", f"{TIME}IsoTime"), "STRING"),
    (named("string", f"{TIME}IsoTimestamp"), "TIMESTAMP(6)"),
    (named("string", f"{TIME}ZonedTime"), "STRING"),
    (named("int32", f"{TIME}Year"), "INT"),
    (named("int64", f"{TIME}MicroDuration"), "BIGINT"),
    (named("string", f"{TIME}Interval"), "STRING"),
    # --- names of Debezium over plain types ---
    (named("string", f"{DATA}Json"), "STRING"),
    (named("string", f"{DATA}Xml"), "STRING"),
    (named("string", f"{DATA}Uuid"), "STRING"),
    ({**named("string", f"{DATA}Enum"), "parameters": {"allowed": "a,b"}}, "STRING"),
    ({**named("string", f"{DATA}EnumSet"), "parameters": {"allowed": "a,b"}}, "STRING"),
    ({**named("bytes", f"{DATA}Bits"), "parameters": {"length": "5"}}, "BYTES"),
    (named("struct", f"{DATA}geometry.Geometry"), "STRING"),
    (named("struct", f"{DATA}geometry.Point"), "STRING"),
    ({"type": "array", "items": {"type": "float"}, "name": f"{DATA}vector.FloatVector"}, "ARRAY<FLOAT>"),
    # --- nested ---
    ({"type": "array", "items": {"type": "int32", "optional": True}}, "ARRAY<INT>"),
    ({"type": "array", "items": named("int32", f"{TIME}Date")}, "ARRAY<DATE>"),
    ({"type": "array", "items": decimal("2", "5")}, "ARRAY<DECIMAL(5, 2)>"),
    ({"type": "array", "items": {"type": "array", "items": {"type": "string"}}}, "ARRAY<ARRAY<STRING>>"),
    ({"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}}, "MAP<STRING, STRING>"),
    ({"type": "map", "keys": {"type": "int64"}, "values": {"type": "array", "items": {"type": "double"}}},
     "MAP<BIGINT, ARRAY<DOUBLE>>"),
    ({"type": "struct", "fields": [{"type": "int32", "field": "a"}]}, "STRING"),
    # --- what is odd ---
    ({"type": "array"}, "STRING"),
    ({"type": "map", "keys": {"type": "string"}}, "STRING"),
    ({"type": "brand-new"}, "STRING"),
    ({}, "STRING"),
    ({"type": None, "name": 3}, "STRING"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "expected"), FIELDS, ids=str)
def test_types(field: dict[str, Any], expected: str) -> None:
    assert sql_type_of_field({**field, "optional": True, "field": "f"}) == expected
    parse_sql_type(expected)


def _number(text: int) -> str:
    return base64.b64encode(text.to_bytes(3, "big", signed=True)).decode()


VALUES: list[tuple[dict[str, Any], Any, str]] = [
    (decimal("2", "14"), _number(-12345), "-123.45"),
    (named("struct", f"{DATA}VariableScaleDecimal"), {"scale": 3, "value": _number(12345)}, "12.345000000000000000"),
    (named("int32", f"{TIME}Date"), 19_000, "2022-01-08"),
    (named("int32", f"{TIME}Time"), 3_600_001, "3600001"),
    (named("int64", f"{TIME}MicroTime"), 3_600_001_000, "01:00:00.001"),
    (named("int64", f"{TIME}MicroTime"), -3_020_399_999_999, "-838:59:59.999999"),
    (named("int64", f"{TIME}NanoTime"), 3_600_001_000_100, "01:00:00.0010001"),
    (named("int64", f"{TIME}Timestamp"), 1_700_000_000_123, "2023-11-14 22:13:20.123000"),
    (named("int64", f"{TIME}MicroTimestamp"), 1_700_000_000_123_456, "2023-11-14 22:13:20.123456"),
    (named("int64", f"{TIME}NanoTimestamp"), 1_700_000_000_123_456_789, "1700000000123456789"),
    (named("string", f"{TIME}ZonedTimestamp"), "2023-11-14T23:13:20.5+01:00", "2023-11-14 22:13:20.500000"),
    (named("string", f"{TIME}IsoDate"), "2022-01-08Z", "2022-01-08"),
    (named("string", f"{TIME}IsoTime"), "01:00:00.123456Z", "01:00:00.123456Z"),
    (named("string", f"{TIME}IsoTimestamp"), "2023-11-14T22:13:20.123456Z", "2023-11-14 22:13:20.123456"),
    ({"type": "bytes"}, base64.b64encode(b"\x00\xff").decode(), "b'\\x00\\xff'"),
    (named("bytes", f"{DATA}Bits"), base64.b64encode(b"\x05").decode(), "b'\\x05'"),
    ({"type": "array", "items": {"type": "int32"}}, [1, None], "[1, None]"),
    ({"type": "array", "items": named("int32", f"{TIME}Date")}, [0], "[datetime.date(1970, 1, 1)]"),
    ({"type": "array", "items": named("int64", f"{TIME}MicroTimestamp")}, [1],
     "[datetime.datetime(1970, 1, 1, 0, 0, 0, 1)]"),
    ({"type": "array", "items": decimal("2", "5")}, [_number(123)], "[Decimal('1.23')]"),
    ({"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}}, {"a": None}, "[('a', None)]"),
    (named("struct", f"{DATA}geometry.Point"), {"x": 1.5, "srid": None}, '{"x":1.5,"srid":null}'),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value", "expected"), VALUES, ids=str)
def test_values_fit_the_type(field: dict[str, Any], value: Any, expected: str) -> None:
    config = pipeline_of({"id": "BIGINT", "f": sql_type_of_field(field)}, on_unknown_field="add")
    fields = [{"type": "int64", "field": "id"}, {**field, "field": "f", "optional": True}]
    found = decoded(config, [with_schema(change("c", None, {"id": 1, "f": value}), fields)])
    assert found.shown == [f"+I(1, {expected})"]


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        (named("int32", f"{TIME}Time"), 86_400_000, "TIME(3)"),
        (named("struct", f"{DATA}VariableScaleDecimal"), {"scale": 19, "value": _number(1)}, "DECIMAL(38, 18)"),
        (decimal("2", "3"), _number(12345), "DECIMAL(3, 2)"),
    ],
)
def test_what_does_not_fit_is_a_dead_letter(field: dict[str, Any], value: Any, kind: str) -> None:
    """No digit is lost in silence."""
    config = pipeline_of({"id": "BIGINT", "f": kind})
    assert sql_type_of_field(field) == kind
    fields = [{"type": "int64", "field": "id"}, {**field, "field": "f", "optional": True}]
    found = decoded(config, [with_schema(change("c", None, {"id": 1, "f": value}), fields)])
    (text,) = found.shown
    assert text.startswith(f"dead f: the value of field f does not fit {kind}")
