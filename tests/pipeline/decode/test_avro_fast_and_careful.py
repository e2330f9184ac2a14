"""Random records in Avro: the rows of their twins in JSON, and by the fast path what the careful path gives."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.hypothesis_profile import examples
from tests.kit.schema_registry import SchemaRegistry
from tests.pipeline.avro_records import (
    CONNECT,
    DEBEZIUM,
    AvroTopic,
    avro_change,
    avro_pipeline,
    connect,
    decimal,
    envelope_of,
    optional,
    record_of,
)
from tests.pipeline.records import TOAST, Record, change, decoder_of, pipeline_of, run, with_schema

COLUMNS = {
    "id": "BIGINT", "b": "BOOLEAN", "i": "INT", "small": "SMALLINT", "f": "FLOAT", "d": "DOUBLE",
    "total": "DECIMAL(14,4)", "wide": "DECIMAL(38,6)", "any": "DECIMAL(20,3)", "s": "STRING", "v": "VARCHAR(3)",
    "x": "BYTES", "day": "DATE", "t": "TIME(3)", "at": "TIMESTAMP(6)", "ms": "TIMESTAMP(3)", "z": "TIMESTAMP_LTZ(3)",
    "ns": "TIMESTAMP(9)", "a": "ARRAY<STRING>", "m": "MAP<STRING, STRING>", "e": "STRING", "text": "STRING",
}  # fmt: skip
VARIABLE = {
    "type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}  # fmt: skip
ROW: dict[str, Any] = {
    "id": "long", "b": "boolean", "i": "int", "small": {"type": "int", "connect.type": "int16"}, "f": "float",
    "d": "double", "total": decimal(2), "wide": decimal(5, 38), "any": VARIABLE, "s": "string", "v": "string",
    "x": "bytes", "day": connect("int", f"{DEBEZIUM}Date"), "t": connect("long", f"{DEBEZIUM}MicroTime"),
    "at": connect("long", f"{DEBEZIUM}MicroTimestamp"),
    "ms": connect("long", f"{CONNECT}Timestamp", logicalType="timestamp-millis"),
    "z": {"type": "string", "connect.name": f"{DEBEZIUM}ZonedTimestamp"},
    "ns": connect("long", f"{DEBEZIUM}NanoTimestamp"), "a": {"type": "array", "items": optional("string")},
    "m": {"type": "map", "values": optional("string")},
    "e": {"type": "string", "connect.name": "io.debezium.data.Enum"}, "text": "long", "extra": "string",
}  # fmt: skip
FACTS = {
    name: kind.get("connect.name", "") if isinstance(kind, dict) else "" for name, kind in ROW.items()
}  # fmt: skip
SCHEMA_OF_JSON = [
    {"type": "any", "optional": True, "field": name, **({"name": fact} if fact else {}),
     **({"parameters": {"scale": str(ROW[name]["scale"])}} if fact.endswith("data.Decimal") else {})}
    for name, fact in FACTS.items()
]  # fmt: skip

LONGS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, 1, -1, 86_399_999_999, 86_400_000_000, 1700000000123456, 1700000000123, 1700000000123000]),
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "b": st.booleans(),
    "i": st.integers(-(2**31), 2**31 - 1),
    "small": st.integers(-40_000, 40_000),
    "f": st.floats(width=32),
    "d": st.floats(),
    "total": st.decimals(-(10**11), 10**11, places=2).map(lambda value: value.quantize(Decimal("0.01"))),
    "wide": st.integers(-(10**37), 10**37).map(lambda unscaled: Decimal(unscaled).scaleb(-5, Context(prec=40))),
    "any": st.fixed_dictionaries({"scale": st.integers(-2, 6), "value": st.binary(min_size=1, max_size=9)}),
    "s": st.one_of(st.text(max_size=5), st.sampled_from([TOAST, "x" * 40])),
    "v": st.text(max_size=5),
    "x": st.one_of(st.binary(max_size=9), st.sampled_from([TOAST.encode(), b"x" * 40])),
    "day": st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(0, 40_000)),
    "t": LONGS,
    "at": LONGS,
    "ms": LONGS,
    "z": st.sampled_from(["2023-11-14T22:13:20.123Z", "2023-11-14T22:13:20+01:00", "never"]),
    "ns": LONGS,
    "a": st.one_of(st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=2), st.just([TOAST])),
    "m": st.one_of(st.dictionaries(st.text(max_size=2), st.one_of(st.none(), st.text(max_size=3)), max_size=2),
                   st.just({TOAST: TOAST})),
    "e": st.sampled_from(["new", "old"]),
    "text": LONGS,
    "extra": st.just("more"),
}  # fmt: skip
FITTING: dict[str, Any] = {
    "b": True, "i": 5, "small": 6, "f": 0.5, "d": 1.5, "total": Decimal("12.50"), "wide": Decimal("1.50000"),
    "any": {"scale": 2, "value": b"\x04\xe2"}, "s": "text", "v": "abc", "x": b"\xab", "day": 19782, "t": 36_000_000_000,
    "at": 1700000000123456, "ms": 1700000000123, "z": "2023-11-14T22:13:20.123Z", "ns": 1700000000123456789,
    "a": ["p"], "m": {"k": "v"}, "e": "new", "text": 7, "extra": None,
}  # fmt: skip


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    row = {"id": draw(st.integers(0, 3)), **FITTING}
    for name in draw(st.lists(st.sampled_from(list(VALUES)), max_size=3)):
        row[name] = draw(st.one_of(st.none(), VALUES[name], VALUES[name]))
    return row


@st.composite
def changes(draw: st.DrawFn) -> tuple[Any, ...]:
    op = draw(st.sampled_from(["c", "r", "u", "u", "d", "m", "x"]))
    before = draw(rows()) if op == "d" and draw(st.integers(0, 9)) else None
    after = draw(rows()) if op != "d" and draw(st.integers(0, 9)) else None
    if op == "u" and after and draw(st.booleans()):
        changed = draw(rows())
        before = {**after, **{name: changed[name] for name in ("s", "i", "x", "id")}}
    return op, before, after, draw(st.sampled_from(["orders"] * 6 + ["users", ""])), draw(st.integers(0, 9)) == 0


def twin(row: dict[str, Any] | None) -> dict[str, Any] | None:
    """A row as Connect's JSON converter writes it."""
    return None if row is None else {name: _twin(name, value) for name, value in row.items()}


def _twin(name: str, value: Any) -> Any:
    match value:
        case Decimal():
            unscaled = int(value.scaleb(ROW[name]["scale"], Context(prec=60)))
            return _base64(unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True))
        case bytes():
            return _base64(value)
        case float():
            return _number(value, name == "f")
        case dict() if name == "any":
            return {"scale": value["scale"], "value": _base64(value["value"])}
    return value


def _number(value: float, single: bool) -> Any:
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return float(str(np.float32(value))) if single else value


def _base64(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as server:
        yield server


SETTINGS: list[dict[str, Any]] = [
    {},
    {"options": {"changelog-producer": "input"}},
    {"options": {"ignore-delete": True}},
    {"primary_key": []},
    {"only": {"table": "orders"}},
    {"only": "any"},
    {"options": {"merge-engine": "aggregation", "fields.d.aggregate-function": "sum"}},
    {"select": {**dict.fromkeys(COLUMNS), "s": "_source.lsn", "e": "_op", "i": "_source.txId", "v": "_source.name"}},
    {"select": {**dict.fromkeys(COLUMNS), "s": "_source", "text": "_ts_ms"}},
]


@pytest.mark.few(1)
@pytest.mark.hypothesis
@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_an_envelope_is_what_its_twin_in_json_is(registry: SchemaRegistry, number: int) -> None:
    keys = dict(SETTINGS[number])
    if "select" in keys:
        keys["select"] = {column: text or column for column, text in keys["select"].items()}
    topic = AvroTopic(
        registry, envelope_of({name: kind if name == "id" else optional(kind) for name, kind in ROW.items()})
    )
    avro = decoder_of(avro_pipeline(registry, COLUMNS, **keys))
    careful = replace(avro, is_careful=True)
    twins = replace(decoder_of(pipeline_of(COLUMNS, format="debezium-json", **keys)), is_careful=True)

    @settings(max_examples=examples(40))
    @given(st.lists(changes(), min_size=1, max_size=12), st.booleans())
    def check(found: list[tuple[Any, ...]], repeated: bool) -> None:
        found = found * 4 if repeated else found
        records, jsons = [], []
        for op, before, after, table, is_tombstone in found:
            key = {"id": 1}
            datum = avro_change(op, before, after, table=table)
            records.append(Record(None if is_tombstone else topic.value(datum), key))
            body = with_schema({**change(op, twin(before), twin(after), table=table)}, SCHEMA_OF_JSON)
            jsons.append(Record(None if is_tombstone else json.dumps(body).encode(), key))
        fast, slow, expected = run(avro, records), run(careful, records), run(twins, jsons)
        assert fast.shown == slow.shown
        assert (fast.tally.skipped, fast.tally.notes) == (slow.tally.skipped, slow.tally.notes)
        assert set(fast.tally.tables) == set(slow.tally.tables)
        assert slow.shown == expected.shown
        assert (slow.tally.skipped, slow.tally.notes) == (expected.tally.skipped, expected.tally.notes)

    check()


@pytest.mark.hypothesis
def test_a_plain_row_is_the_same_by_both_paths(registry: SchemaRegistry) -> None:
    fields = {name: kind if name == "id" else optional(kind) for name, kind in ROW.items()}
    topic = AvroTopic(registry, record_of(fields), "rows-value")
    fast = decoder_of(avro_pipeline(registry, COLUMNS, format="avro"))
    careful = replace(fast, is_careful=True)

    @settings(max_examples=examples(40))
    @given(st.lists(rows(), min_size=1, max_size=12))
    def check(found: list[dict[str, Any]]) -> None:
        records = [topic.value(each) for each in found]
        left, right = run(fast, records), run(careful, records)
        assert left.shown == right.shown and left.tally.notes == right.tally.notes

    check()


@st.composite
def spoiled(draw: st.DrawFn, value: bytes) -> bytes:
    """A value with some octets that are others, gone, or too many."""
    octets = bytearray(value)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(octets)))
        match draw(st.sampled_from(["other", "more", "less", "end"])):
            case "other":
                octets[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "more":
                octets[at:at] = draw(st.binary(min_size=1, max_size=3))
            case "less":
                del octets[at : at + draw(st.integers(1, 4))]
            case _:
                del octets[at:]
    return value[:5] + bytes(octets[5:])


@pytest.mark.hypothesis
def test_spoiled_datums(registry: SchemaRegistry) -> None:
    """They leave those around them alone, and nothing hangs. What becomes of them may differ by path: a branch that a
    union of null and one type does not have is the other type to arrow-avro, and fastavro refuses it."""
    fields = {name: kind if name == "id" else optional(kind) for name, kind in ROW.items()}
    topic = AvroTopic(registry, envelope_of(fields), "spoiled-value")
    decoder = decoder_of(avro_pipeline(registry, COLUMNS))
    good = topic.value(avro_change("c", None, {"id": 1, **FITTING}))
    (expected,) = run(decoder, [good]).shown

    @settings(max_examples=examples(60))
    @given(spoiled(good))
    def check(value: bytes) -> None:
        found = run(decoder, [good, good, value, good]).shown
        assert [found[0], found[1], found[3]] == [expected] * 3

    check()
