"""Unchanged values that a record does not carry (TOAST): in every form, operation and format, by every path.

The forms are those of a capture (Debezium 3.6.1, PostgreSQL 15, tables of 55 types; four settings of the connector).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from freshet.pipeline.config.pipeline_file import PipelineConfig
from freshet.pipeline.decode.decoder import RecordDecoder
from freshet.pipeline.decode.outcomes import old_key_in
from tests.kit.schema_registry import SchemaRegistry
from tests.pipeline.avro_records import AvroTopic, avro_change, avro_pipeline, connect, envelope_of, optional, record_of
from tests.pipeline.records import TOAST, Record, change, decoder_of, flat_with_schema, pipeline_of, run, with_schema
from tests.pipeline.sync.kit import many_plan, schema_of, sync_config
from tests.pipeline.sync.kit import run as run_many

CODED = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
OCTETS = list(TOAST.encode())
UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"

FORMS: list[tuple[dict[str, str], list[tuple[str, Any]]]] = [
    # Settings of the source; the type of a column here, and what comes in place of its value.
    ({}, [
        ("STRING", TOAST),  # text, varchar, json, xml, citext, ltree …
        ("VARCHAR(9)", TOAST),
        ("BYTES", CODED),  # bytea
        ("ARRAY<STRING>", [TOAST]),  # text[], varchar[], char[], json[] …
        ("STRING", [TOAST]),
        ("ARRAY<BYTES>", [CODED]),  # bytea[]
        ("ARRAY<STRING>", [UUID]),  # uuid[]
        ("ARRAY<INT>", OCTETS), ("ARRAY<BIGINT>", OCTETS), ("ARRAY<DATE>", OCTETS),
        ("MAP<STRING, STRING>", {TOAST: TOAST}),  # hstore
        ("STRING", json.dumps({TOAST: TOAST}, separators=(",", ":"))),
    ]),
    ({"decimal_handling_mode": "string", "binary_handling_mode": "hex"}, [
        ("DECIMAL(38,10)", TOAST),  # numeric
        ("BYTES", TOAST),  # bytea
        ("BYTES", TOAST.encode().hex()),  # of other connectors
    ]),
    ({"unavailable_value_placeholder": "gone?>", "binary_handling_mode": "base64-url-safe"}, [
        ("STRING", "gone?>"), ("BYTES", "Z29uZT8-"), ("ARRAY<STRING>", ["3accbbdb-6b89-3057-9192-4c999125c344"]),
    ]),
    ({"unavailable_value_placeholder": "hex:ff00"}, [("BYTES", "/wA=")]),
]  # fmt: skip
MANY = 10


def shapes(config: PipelineConfig, records: list[Any]) -> list[str]:
    """What the records become, by either path; each comes often, so that what it is like is learned."""
    decoder = decoder_of(config)
    careful = _shown(replace(decoder, is_careful=True), records)
    assert _shown(decoder, records * MANY) == careful * MANY
    return careful


def _shown(decoder: RecordDecoder, records: list[Any]) -> list[str]:
    """Whether a key is the first of a batch depends on how often records come."""
    return [text.replace("@!", "@") for text in run(decoder, records).shown]


@pytest.mark.parametrize(("settings", "forms"), FORMS)
def test_every_form_in_json(settings: dict[str, Any], forms: list[tuple[str, Any]]) -> None:
    columns = {"id": "BIGINT", **{f"v{place}": sql for place, (sql, _) in enumerate(forms)}}
    gone = {"id": 1, **{f"v{place}": form for place, (_, form) in enumerate(forms)}}
    nulls, keeps = ", ".join(["None"] * len(forms)), ",".join(str(place + 1) for place in range(len(forms)))
    whole = pipeline_of(columns, **settings)
    records = [change("u", None, gone), change("c", None, gone), change("r", None, gone), change("d", gone)]
    assert shapes(whole, records) == [
        f"+U(1, {nulls}) keep {keeps}", f"+I(1, {nulls}) keep {keeps}", f"+I(1, {nulls}) keep {keeps}",
        f"-D(1, {nulls})",
    ]  # fmt: skip
    flat = pipeline_of(columns, format="debezium-unwrapped", **settings)
    assert shapes(flat, [gone, {**gone, "__op": "u"}, {**gone, "__deleted": "true"}]) == [
        f"+I(1, {nulls}) keep {keeps}", f"+U(1, {nulls}) keep {keeps}", f"-D(1, {nulls})",
    ]  # fmt: skip
    images = pipeline_of(columns, options={"changelog-producer": "input"}, **settings)
    assert shapes(images, [change("u", gone, {"id": 1, **dict.fromkeys(gone.keys() - {"id"})})]) == [f"+U(1, {nulls})"]
    append = pipeline_of(columns, primary_key=(), **settings)
    (dead,) = shapes(append, [change("u", None, gone)])
    assert dead.startswith("dead v0: an unchanged value") and dead.endswith("the table has no primary key")


def test_every_form_in_avro() -> None:
    kinds: list[tuple[str, Any, Any]] = [
        ("STRING", "string", TOAST), ("DECIMAL(38,10)", "string", TOAST), ("BYTES", "bytes", TOAST.encode()),
        ("ARRAY<STRING>", {"type": "array", "items": "string"}, [TOAST]),
        ("ARRAY<STRING>", {"type": "array", "items": optional("string")}, [UUID]),
        ("ARRAY<BYTES>", {"type": "array", "items": optional("bytes")}, [TOAST.encode()]),
        ("ARRAY<INT>", {"type": "array", "items": optional("int")}, OCTETS),
        ("ARRAY<BIGINT>", {"type": "array", "items": optional("long")}, OCTETS),
        ("MAP<STRING, STRING>", {"type": "map", "values": "string"}, {TOAST: TOAST}),
        ("STRING", "string", json.dumps({TOAST: TOAST}, separators=(",", ":"))),
    ]  # fmt: skip
    columns = {f"v{place}": sql for place, (sql, _, _) in enumerate(kinds)}
    row = {"id": "long", **{f"v{place}": optional(kind) for place, (_, kind, _) in enumerate(kinds)}}
    gone = {"id": 1, **{f"v{place}": value for place, (_, _, value) in enumerate(kinds)}}
    nulls, keeps = ", ".join(["None"] * len(kinds)), ",".join(str(place + 1) for place in range(len(kinds)))
    with SchemaRegistry() as registry:
        topic = AvroTopic(registry, envelope_of(row))
        records = [avro_change("u", None, gone), avro_change("c", None, gone), avro_change("d", gone, None)]
        config = avro_pipeline(registry, {"id": "BIGINT", **columns})
        assert shapes(config, [topic.value(each) for each in records]) == [
            f"+U(1, {nulls}) keep {keeps}", f"+I(1, {nulls}) keep {keeps}", f"-D(1, {nulls})",
        ]  # fmt: skip


COLUMNS = {"id": "BIGINT", "day": "DATE", "doc": "STRING"}
KAFKA = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
KEYED: dict[str, Any] = {"primary_key": ("id", "day")}
FIELDS = [
    {"type": "int64", "field": "id"}, {"type": "int32", "name": "io.debezium.time.Date", "field": "day"},
    {"type": "string", "optional": True, "field": "doc"},
]  # fmt: skip
OLD, NEW = {"id": 1, "day": 18321}, {"id": 2, "day": 18322, "doc": TOAST}
MOVED = "+I(2, 2020-03-01, None) keep 2 of (1, 2020-02-29)"


def moved(config: PipelineConfig, *records: Any) -> list[str]:
    """What the records become, with the key that a row had before."""
    return [_with_key(text) for text in shapes(config, list(records))]


def alone(config: PipelineConfig, *records: Any) -> list[str]:
    """The same of a batch that has these records alone."""
    return [_with_key(text) for text in run(decoder_of(config), records).shown]


def _with_key(text: str) -> str:
    kept, mark, key = text.partition(",@")
    found = old_key_in([f"@{key}"]) if mark else None
    if found is None:
        return text
    return f"{kept} of {'the first ' if found.is_first else ''}({', '.join(map(str, found.values.values()))})"


@pytest.mark.parametrize("wraps", [False, True])
def test_the_key_before_comes_from_the_header_or_the_deletion_in_front_of_it(wraps: bool) -> None:
    def made(op: str, *images: Any, old_key: Any = None, key: Any = None, **source: Any) -> Record:
        record = change(op, *images, **source)
        return Record(with_schema(record, FIELDS) if wraps else record, key, old_key=old_key)

    config = pipeline_of(COLUMNS, **KEYED)
    key = flat_with_schema(OLD, FIELDS[:2]) if wraps else OLD
    assert moved(config, made("c", None, NEW, old_key=key)) == [MOVED]
    before, tombstone = made("d", OLD, key=1), Record(None, 1)
    first = MOVED.replace("of (", "of the first (")
    assert alone(config, before, tombstone, made("c", None, NEW))[2] == first
    assert alone(config, before, tombstone, made("c", None, NEW, old_key=key))[2] == first
    assert alone(config, made("u", None, {**OLD, "doc": "x"}, key=1), before, made("c", None, NEW))[2] == MOVED
    assert alone(config, made("d", OLD), made("c", None, NEW))[1] == MOVED
    split = pipeline_of(COLUMNS, kafka={**KAFKA, "minPartitions": "9"}, **KEYED)
    assert alone(split, before, tombstone, made("c", None, NEW))[2] == MOVED
    assert moved(config, before, tombstone, made("c", None, NEW))[2] == MOVED
    assert moved(config, before, made("c", None, NEW))[1] == MOVED
    unknown = "+I(2, 2020-03-01, None) keep 2"
    assert moved(config, before, tombstone, made("c", None, NEW, lsn=5))[2] == unknown
    assert moved(config, made("u", None, OLD), made("c", None, NEW))[1] == unknown
    assert moved(config, made("c", None, NEW, old_key={"id": 1})) == [unknown]
    assert moved(config, made("c", None, NEW, old_key=b"{")) == [unknown]
    both = moved(config, made("u", OLD, NEW))
    assert both == [f"-D(1, 2020-02-29, None); {MOVED}"]


def test_the_key_before_of_unwrapped_rows() -> None:
    config = pipeline_of(COLUMNS, format="debezium-unwrapped", **KEYED)
    rows = [Record(NEW, old_key=OLD), Record(NEW), Record({**NEW, "doc": "there"}, old_key=OLD)]
    assert moved(config, *rows) == [MOVED, "+I(2, 2020-03-01, None) keep 2", "+I(2, 2020-03-01, there)"]


def test_the_key_before_in_avro() -> None:
    row = {"id": "long", "day": connect("int", "io.debezium.time.Date"), "doc": optional("string")}
    with SchemaRegistry() as registry:
        value = AvroTopic(registry, envelope_of(row)).value(avro_change("c", None, NEW))
        key = AvroTopic(registry, record_of({name: row[name] for name in OLD}, "Key"), "k-key").value(OLD)
        config = avro_pipeline(registry, COLUMNS, **KEYED)
        records = [Record(value, old_key=OLD), Record(value, old_key=key), Record(value)]
        assert moved(config, *records) == [MOVED, MOVED, "+I(2, 2020-03-01, None) keep 2"]


def test_partial_updates_look_only_for_the_row_of_the_key_before() -> None:
    config = pipeline_of(COLUMNS, options={"merge-engine": "partial-update"}, **KEYED)
    assert moved(config, Record(change("c", None, NEW), old_key=OLD)) == [MOVED]
    assert moved(config, change("u", None, NEW)) == ["+U(2, 2020-03-01, None)"]
    flat = pipeline_of(COLUMNS, options={"merge-engine": "partial-update"}, format="debezium-unwrapped", **KEYED)
    assert moved(flat, NEW, Record(NEW, old_key=OLD)) == ["+I(2, 2020-03-01, None)", MOVED]


def test_in_sync() -> None:
    tables = {"shop.public.orders": schema_of(COLUMNS, ("id", "day"))}
    records = [Record(change("c", None, NEW), OLD, old_key=OLD), Record(change("u", None, NEW), OLD)]
    found = run_many(many_plan(sync_config(), tables), records * MANY)
    assert [_with_key(text) for text in found.texts(1)] == [MOVED, "+U(2, 2020-03-01, None) keep 2"] * MANY
