"""Records in Avro: types, writer schemas and where they are from, what is no record; values for the fast path come 40
times, and each vector holds for both paths."""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any

import pytest

from freshet.logstore.kafka import schema_registry
from freshet.pipeline.config.pipeline_file import PipelineConfig
from freshet.pipeline.decode.avro.schemas import schemas_of
from freshet.pipeline.decode.careful import CarefulReader
from freshet.pipeline.decode.decoder import block_decoder
from freshet.pipeline.exceptions import StoppedByRecordError
from freshet.storage.exceptions import InvalidRequestError, RetryableError
from tests.kit.schema_registry import SchemaRegistry
from tests.pipeline.avro_records import (
    ORDER_ROW,
    AvroTopic,
    avro_change,
    avro_pipeline,
    connect,
    decimal,
    envelope_of,
    optional,
    record_of,
    wire,
)
from tests.pipeline.records import TOAST, Decoded, Record, decoder_of, pipeline_of, run

MANY = 40


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as server:
        yield server


def both(config: PipelineConfig, records: Sequence[Any]) -> Decoded:
    """What the records are, by either path."""
    decoder = decoder_of(config)
    careful = run(replace(decoder, is_careful=True), list(records))
    fast = run(decoder, [each for each in records for _ in range(MANY)])
    assert fast.shown[::MANY] == careful.shown
    assert {text: count / MANY for text, count in fast.tally.skipped.items()} == careful.tally.skipped
    return careful


@pytest.fixture
def fast_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails where a record takes the careful path."""

    def refuse(self: CarefulReader, record: Any) -> Any:
        raise AssertionError(f"the careful path reads {record}")

    block_decoder.cache_clear()
    monkeypatch.setattr(CarefulReader, "read", refuse)


def order(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "status": "new", "total": Decimal("12.50"), "at": 1700000000123, "doc": None, **more}


AT = "2023-11-14 22:13:20.123000"


# --- types -----------------------------------------------------------------------------------------------------------


def test_logical_types_of_plain_rows(registry: SchemaRegistry) -> None:
    columns = {
        "id": "BIGINT", "small": "TINYINT", "exact": "DECIMAL(12,3)", "fixed": "DECIMAL(12,3)", "as_text": "STRING",
        "day": "DATE", "ms": "TIME(3)", "us": "TIME(3)", "at_ms": "TIMESTAMP(3)", "at_us": "TIMESTAMP(6)",
        "local": "TIMESTAMP_LTZ(6)", "nanos": "TIMESTAMP(9)", "uuid": "STRING", "fixed_uuid": "STRING", "f": "FLOAT",
        "wider": "DOUBLE", "d": "DOUBLE", "flag": "BOOLEAN", "octets": "BYTES", "four": "BYTES", "colour": "STRING",
        "list": "ARRAY<BIGINT>", "map": "MAP<STRING, INT>", "row": "ROW<a INT, b STRING>", "json": "STRING",
        "null": "INT", "missing": "INT", "long_text": "STRING",
    }  # fmt: skip
    exact = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    row = {
        "id": "long", "small": "int", "exact": exact,
        "fixed": {"type": "fixed", "name": "F", "size": 6, "logicalType": "decimal", "precision": 10, "scale": 2},
        "as_text": exact, "day": {"type": "int", "logicalType": "date"},
        "ms": {"type": "int", "logicalType": "time-millis"}, "us": {"type": "long", "logicalType": "time-micros"},
        "at_ms": {"type": "long", "logicalType": "timestamp-millis"},
        "at_us": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
        "local": {"type": "long", "logicalType": "local-timestamp-millis"},
        "nanos": [{"type": "long", "logicalType": "timestamp-nanos"}, "null"],
        "uuid": {"type": "string", "logicalType": "uuid"},
        "fixed_uuid": {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, "f": "float", "wider": "float",
        "d": "double", "flag": "boolean", "octets": "bytes", "four": {"type": "fixed", "name": "Four", "size": 4},
        "colour": {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]},
        "list": {"type": "array", "items": "long"}, "map": {"type": "map", "values": "int"},
        "row": record_of({"a": "int", "b": optional("string")}, "Inner"),
        "json": optional("shop.public.orders.Inner"), "null": "null", "long_text": "long",
    }  # fmt: skip
    number = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
    value = {
        "id": 1, "small": -7, "exact": Decimal("-12.50"), "fixed": Decimal("12.50"), "as_text": Decimal("0.05"),
        "day": datetime.date(2024, 2, 29), "ms": datetime.time(10, 0, 0, 500_000), "us": datetime.time(10, 0),
        "at_ms": 1700000000123, "at_us": 1700000000123456, "local": 1700000000123, "nanos": 1700000000123456789,
        "uuid": number, "fixed_uuid": number.bytes, "f": 0.1, "wider": 0.1, "d": 0.1, "flag": True,
        "octets": b"\xab\x00", "four": b"\0\1\2\3",
        "colour": "GREEN", "list": [1, 2], "map": {"k": 5}, "row": {"a": 1, "b": None},
        "json": {"a": 1, "b": "x"}, "null": None, "long_text": -5,
    }  # fmt: skip
    topic = AvroTopic(registry, record_of(row))
    found = both(avro_pipeline(registry, columns, format="avro"), [topic.value(value)])
    texts = (
        "1, -7, -12.500, 12.500, 0.05, 2024-02-29, 36000500, 36000000, 2023-11-14 22:13:20.123000, "
        "2023-11-14 22:13:20.123456, 2023-11-14 22:13:20.123000, 1700000000123456789, "
        f"{number}, {number}, 0.10000000149011612, 0.1, 0.1, True, b'\\xab\\x00', b'\\x00\\x01\\x02\\x03', GREEN, "
        "[1, 2], [('k', 5)], {'a': 1, 'b': None}, {\"a\":1,\"b\":\"x\"}, None, None, -5"
    )
    assert found.shown == [f"+I({texts})"]


def test_a_logical_type_on_another_type_is_none(registry: SchemaRegistry) -> None:
    row = {
        "id": "long",
        "at": {"type": "string", "logicalType": "timestamp-millis"},
        "n": {"type": "long", "logicalType": "made-up"},
    }
    topic = AvroTopic(registry, json.loads(json.dumps(record_of(row))))
    config = avro_pipeline(registry, {"id": "BIGINT", "at": "TIMESTAMP(3)", "n": "BIGINT"}, format="avro")
    value = b"\0" + topic.schema_id.to_bytes(4, "big") + b"\x02\x26" + b"2023-11-14 22:13:20"[:19] + b"\x0a"
    assert both(config, [value]).shown == ["+I(1, 2023-11-14 22:13:20, 5)"]


def test_a_long_without_a_logical_type_needs_a_unit(registry: SchemaRegistry) -> None:
    topic = AvroTopic(registry, record_of({"id": "long", "at": "long"}))
    value = topic.value({"id": 1, "at": 1700000000})
    columns = {"id": "BIGINT", "at": "TIMESTAMP(3)"}
    (plain,) = both(avro_pipeline(registry, columns, format="avro"), [value]).shown
    assert plain.startswith("dead at: ") and "time_precision_mode" in plain
    unit = avro_pipeline(registry, columns, format="avro", time_precision_mode="connect")
    assert both(unit, [value]).shown == ["+I(1, 1970-01-20 16:13:20)"]


def test_values_that_do_not_fit(registry: SchemaRegistry) -> None:
    columns = {
        "id": "BIGINT",
        "i": "TINYINT",
        "v": "VARCHAR(2)",
        "x": "VARBINARY(1)",
        "total": "DECIMAL(4,1)",
        "day": "DATE",
    }
    row = {
        "id": "long",
        "i": "int",
        "v": "string",
        "x": "bytes",
        "total": decimal(2),
        "day": connect("int", "io.debezium.time.Date"),
    }
    topic = AvroTopic(registry, record_of(row))
    fits = {"id": 1, "i": 1, "v": "ab", "x": b"a", "total": Decimal("1.50"), "day": 3}
    wrong = {"i": 200, "v": "abc", "x": b"ab", "total": Decimal("1.55"), "day": 10**8}
    records = [topic.value({**fits, name: value}) for name, value in wrong.items()]
    found = both(avro_pipeline(registry, columns, format="avro"), [*records, topic.value(fits)])
    assert [each.partition(":")[0] for each in found.shown[:-1]] == [f"dead {name}" for name in wrong]
    assert found.shown[-1] == "+I(1, 1, ab, b'a', 1.5, 1970-01-04)"


def test_decimals_of_any_length(registry: SchemaRegistry) -> None:
    topic = AvroTopic(
        registry,
        record_of({"id": "long", "total": {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 3}}),
    )
    config = avro_pipeline(registry, {"id": "BIGINT", "total": "DECIMAL(38,4)"}, format="avro")
    numbers = ["0.000", "-0.001", "9223372036854775.807", "-9223372036854775.808", "9223372036854775.808", "1e33"]
    values = [
        topic.value({"id": 1, "total": Decimal(text).quantize(Decimal("0.001"), context=_EXACT)}) for text in numbers
    ]
    found = both(config, [*values, topic.value({"id": 1, "total": Decimal(10) ** 40}), _empty(topic)])
    assert [each.split(", ")[-1].rstrip(")") for each in found.shown[:6]] == [
        "0.0000", "-0.0010", "9223372036854775.8070", "-9223372036854775.8080", "9223372036854775.8080",
        "1000000000000000000000000000000000.0000",
    ]  # fmt: skip
    assert all(each.startswith("dead total") for each in found.shown[6:])


_EXACT = Context(prec=80)


def _empty(topic: AvroTopic) -> bytes:
    return b"\0" + topic.schema_id.to_bytes(4, "big") + b"\x02\x00"


def test_unions_of_several_types_and_types_within_themselves(registry: SchemaRegistry) -> None:
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    node = record_of({"n": "int", "next": optional("shop.public.orders.Node")}, "Node")
    row = {
        "id": "long",
        "u": ["null", "string", moment, record_of({"a": "int"}, "A")],
        "tree": optional(node),
        "one": ["string"],
    }
    topic = AvroTopic(registry, record_of(row))
    columns = {"id": "BIGINT", "u": "STRING", "tree": "STRING", "one": "STRING"}
    values: list[Any] = [None, "text", 5, ("shop.public.orders.A", {"a": 1})]
    records = [
        topic.value({"id": 1, "u": each, "tree": {"n": 1, "next": {"n": 2, "next": None}}, "one": "1"})
        for each in values
    ]
    tree = '{"n":1,"next":{"n":2,"next":null}}'
    assert both(avro_pipeline(registry, columns, format="avro"), records).shown == [
        f"+I(1, {text}, {tree}, 1)" for text in ("None", "text", "5", '{"a":1}')
    ]
    timed = avro_pipeline(registry, {**columns, "u": "TIMESTAMP(3)"}, format="avro")
    assert both(timed, records[2:3]).shown == [f"+I(1, 1970-01-01 00:00:00.005000, {tree}, 1)"]


# --- envelopes -------------------------------------------------------------------------------------------------------


def test_changes_take_the_fast_path(registry: SchemaRegistry, fast_only: None) -> None:
    topic = AvroTopic(registry, envelope_of())
    records = [
        topic.value(avro_change("c", None, order(1))), topic.value(avro_change("u", order(1), order(1, status="paid"))),
        topic.value(avro_change("d", order(1), None)), None,
    ]  # fmt: skip
    for options in ({}, {"changelog-producer": "input"}):
        found = run(decoder_of(avro_pipeline(registry, options=options)), records)
        old = f"-U(1, new, 12.5000, {AT}, None); " if options else ""
        assert found.shown == [
            f"+I(1, new, 12.5000, {AT}, None)", f"{old}+U(1, paid, 12.5000, {AT}, None)",
            f"-D(1, new, 12.5000, {AT}, None)", "",
        ]  # fmt: skip
    assert found.tally.skipped == {"tombstone": 1}
    assert [str(each.table) for each in found.tally.tables] == ["shop.public.orders"]


def test_a_deletion_without_before_is_read_through_its_key(registry: SchemaRegistry) -> None:
    topic = AvroTopic(registry, envelope_of())
    keys = AvroTopic(registry, record_of({"id": "long"}, "Key"), "shop.public.orders-key")
    value = topic.value(avro_change("d"))
    records = [Record(value, keys.value({"id": 7})), Record(value, {"id": 8}), Record(value, b"\0x"), Record(value)]
    found = both(avro_pipeline(registry), records).shown
    assert found[:2] == ["-D(7, None, None, None, None)", "-D(8, None, None, None, None)"]
    assert all("a delete without before" in each for each in found[2:])


def test_unavailable_values_in_texts_and_bytes(registry: SchemaRegistry) -> None:
    row = {
        "id": "long",
        "doc": optional("string"),
        "octets": optional("bytes"),
        "list": optional({"type": "array", "items": "string"}),
    }
    topic = AvroTopic(registry, envelope_of(row))
    columns = {"id": "BIGINT", "doc": "STRING", "octets": "BYTES", "list": "ARRAY<STRING>"}
    gone = {"id": 1, "doc": TOAST, "octets": TOAST.encode(), "list": [TOAST]}
    there = {"id": 1, "doc": "x" * 40, "octets": b"y" * 40, "list": ["z" * 40]}
    records = [
        topic.value(avro_change("u", None, gone)),
        topic.value(avro_change("u", there, gone)),
        topic.value(avro_change("c", None, gone)),
    ]
    found = both(avro_pipeline(registry, columns), records).shown
    assert found[0] == "+U(1, None, None, None) keep 1,2,3"
    assert found[1] == f"+U(1, {'x' * 40}, {b'y' * 40}, ['{'z' * 40}'])"
    assert found[2] == "+I(1, None, None, None) keep 1,2,3"
    own = avro_pipeline(registry, columns, unavailable_value_placeholder="gone")
    assert both(own, [topic.value(avro_change("u", None, {**gone, "doc": "gone"}))]).shown[0].endswith("keep 1")


def test_records_that_are_no_changes(registry: SchemaRegistry) -> None:
    topic = AvroTopic(registry, envelope_of())
    heartbeat = AvroTopic(registry, record_of({"ts_ms": "long"}, "Heartbeat", "io.debezium.connector.common"), "h")
    transaction = AvroTopic(
        registry, record_of({"status": "string", "id": "string", "event_count": optional("long")}, "T"), "t"
    )
    ddl = AvroTopic(
        registry, record_of({"ts_ms": "long", "databaseName": optional("string"), "ddl": optional("string")}, "S"), "s"
    )
    text = AvroTopic(registry, {"type": "string"}, "text")
    config = avro_pipeline(registry, on_truncate="skip")
    found = both(config, [
        topic.value(avro_change("m")), topic.value(avro_change("t")), heartbeat.value({"ts_ms": 5}),
        transaction.value({"status": "BEGIN", "id": "7", "event_count": None}),
        ddl.value({"ts_ms": 5, "databaseName": "shop", "ddl": "ALTER"}), None, topic.value(avro_change("c")),
        topic.value(avro_change("x", None, order(1))), text.value("text"),
    ])  # fmt: skip
    assert found.tally.skipped == {
        "message": 1, "truncate": 1, "heartbeat": 1, "transaction": 1, "schema change": 1, "tombstone": 1,
    }  # fmt: skip
    assert found.shown[6:] == [
        "dead None: no after in the record",
        "dead None: unknown op x",
        "dead None: the value is no record of Avro",
    ]
    with pytest.raises(StoppedByRecordError, match="truncate record at"):
        run(decoder_of(avro_pipeline(registry)), [topic.value(avro_change("t"))])


def test_fields_that_nothing_reads(registry: SchemaRegistry) -> None:
    topic = AvroTopic(registry, envelope_of({**ORDER_ROW, "more": "string"}))
    record = topic.value(avro_change("c", None, order(1, more="m")))
    found = run(decoder_of(avro_pipeline(registry)), [record] * 3)
    assert found.tally.notes == {"unknown field more": 3}
    with pytest.raises(StoppedByRecordError, match="unknown field more"):
        run(decoder_of(avro_pipeline(registry, on_unknown_field="fail")), [record] * 3)


# --- writer schemas --------------------------------------------------------------------------------------------------


def test_each_record_is_read_by_the_schema_that_wrote_it(registry: SchemaRegistry, fast_only: None) -> None:
    first = AvroTopic(registry, envelope_of())
    row = {
        "id": "int",
        "status": {"type": "enum", "name": "Status", "symbols": ["new", "paid"]},
        "at": connect("long", "io.debezium.time.MicroTimestamp"),
        "total": optional(decimal(4)),
    }
    second = AvroTopic(registry, envelope_of(row))
    old = first.value(avro_change("c", None, order(1)))
    new = second.value(
        avro_change("u", None, {"id": 1, "status": "paid", "total": Decimal("3.1250"), "at": 1700000000123000})
    )
    found = run(decoder_of(avro_pipeline(registry)), [old, new] * MANY)
    assert found.shown == [f"+I(1, new, 12.5000, {AT}, None)", f"+U(1, paid, 3.1250, {AT}, None)"] * MANY
    assert registry.asked.count(f"/schemas/ids/{first.schema_id}") == 1


def test_schemas_with_references(registry: SchemaRegistry) -> None:
    registry.register("shop.public.orders.Money", record_of({"amount": decimal(2)}, "Money"))
    registry.register(
        "shop.public.orders.Value", record_of({"id": "long", "total": "Money"}),
        references=[("shop.public.orders.Money", "shop.public.orders.Money", 1)],
    )  # fmt: skip
    members = envelope_of()
    members["fields"][0]["type"] = ["null", "shop.public.orders.Value"]
    schema_id = registry.register(
        "orders-value", members, references=[("shop.public.orders.Value", "shop.public.orders.Value", 1)]
    )
    whole = envelope_of({"id": "long", "total": record_of({"amount": decimal(2)}, "Money")})
    value = wire(schema_id, whole, avro_change("c", None, {"id": 1, "total": {"amount": Decimal("1.25")}}))
    config = avro_pipeline(registry, {"id": "BIGINT", "total": "ROW<amount DECIMAL(10,2)>"})
    assert both(config, [value]).shown == ["+I(1, {'amount': Decimal('1.25')})"]


@pytest.mark.parametrize(
    ("schema", "kind", "reason"),
    [
        ('{"type":"object"}', "JSON", "is no Avro schema (JSON)"),
        ("{", "AVRO", "cannot be read"),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"Unknown"}]}',
            "AVRO",
            "the type Unknown is not known",
        ),
    ],
)
def test_schemas_that_cannot_be_read(registry: SchemaRegistry, schema: str, kind: str, reason: str) -> None:
    schema_id = registry.register("s", schema, kind=kind)
    (found,) = both(avro_pipeline(registry), [b"\0" + schema_id.to_bytes(4, "big") + b"\2"]).shown
    assert found.startswith(f"dead None: the schema of id {schema_id} ") and reason in found


def test_values_that_are_no_datums(registry: SchemaRegistry) -> None:
    topic = AvroTopic(registry, envelope_of())
    good = topic.value(avro_change("c", None, order(1)))
    broken = [good[:-1], good + b"\0", good[:5], good[:8], good[:3], b"", b'{"op":"c"}', b"\1" + good[1:]]
    found = both(avro_pipeline(registry), broken).shown
    assert found[:4] == [f"dead None: the value does not decode with the schema of id {topic.schema_id}"] * 4
    assert all("not in the wire format" in each for each in found[4:])


def test_a_broken_datum_leaves_its_neighbours_alone(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = AvroTopic(registry, envelope_of())
    records = [topic.value(avro_change("c", None, order(number))) for number in range(3000)]
    records[1700] = records[1700][:-1]
    records[2900] += b"\0"
    careful: list[Any] = []
    read = CarefulReader.read

    def watched(self: CarefulReader, record: Any) -> Any:
        careful.append(record)
        return read(self, record)

    monkeypatch.setattr(CarefulReader, "read", watched)
    found = run(decoder_of(avro_pipeline(registry)), records, in_both_forms=False).shown
    assert [index for index, each in enumerate(found) if each.startswith("dead")] == [1700, 2900]
    assert found[1699:1702:2] == [f"+I({number}, new, 12.5000, {AT}, None)" for number in (1699, 1701)]
    assert len(careful) == 2


# --- the registry ----------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "WAIT_S", 0.3)


def test_an_id_that_the_registry_does_not_know(registry: SchemaRegistry, impatient: None) -> None:
    with pytest.raises(RetryableError, match=rf"id 99, .*topic shop.public.orders .*{registry.url}.*Schema not found"):
        run(decoder_of(avro_pipeline(registry)), [b"\0\0\0\0\x63\2"])
    assert registry.asked.count("/schemas/ids/99") > 1


@pytest.mark.parametrize("is_down", [True, False])
def test_a_registry_that_is_away(impatient: None, is_down: bool) -> None:
    with SchemaRegistry() as registry:
        topic = AvroTopic(registry, envelope_of())
        value = topic.value(avro_change("c", None, order(1)))
        config = avro_pipeline(registry)
        registry.failure = None if is_down else 503
        if not is_down:
            with pytest.raises(RetryableError, match=f"id {topic.schema_id}, .*the registry is away"):
                run(decoder_of(config), [value])
    if is_down:
        with pytest.raises(RetryableError, match=f"id {topic.schema_id}, .*{registry.url}.* within 0.3 s"):
            run(decoder_of(config), [value])


def test_a_registry_that_comes_back(registry: SchemaRegistry) -> None:
    topic = AvroTopic(registry, envelope_of())
    value = topic.value(avro_change("c", None, order(1)))
    registry.failure = 500
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        registry.failure = None if len(pauses) == 2 else 500

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(schema_registry.time, "sleep", sleep)
        assert run(decoder_of(avro_pipeline(registry)), [value]).shown[0].startswith("+I(1")
    assert pauses == [0.2, 0.5]


def test_access_and_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    with SchemaRegistry(user="reader:sesame") as registry:
        topic = AvroTopic(registry, envelope_of())
        value = topic.value(avro_change("c", None, order(1)))

        def config(user: str) -> PipelineConfig:
            given = {"url": registry.url, "basic.auth.user.info": user}
            return pipeline_of(format="debezium-avro", schema_registry=given)

        assert "sesame" not in repr(config("reader:sesame")) + repr(decoder_of(config("reader:sesame")))
        assert run(decoder_of(config("reader:sesame")), [value]).shown[0].startswith("+I(1")
        monkeypatch.setenv("REGISTRY_USER", "reader:sesame")
        schemas_of.cache_clear()
        assert run(decoder_of(config("env:REGISTRY_USER")), [value]).shown[0].startswith("+I(1")
        with pytest.raises(InvalidRequestError, match="refuses access") as refused:
            run(decoder_of(config("reader:wrong")), [value])
        assert "wrong" not in str(refused.value)
