"""What a record's schema calls a time decides, and not the column: every kind into every column, by every path."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from freshet.pipeline.config.pipeline_file import PipelineConfig
from tests.kit.schema_registry import SchemaRegistry
from tests.pipeline.avro_records import AvroTopic, avro_change, avro_pipeline, connect, envelope_of, optional, record_of
from tests.pipeline.records import Record, change, decoder_of, flat_with_schema, pipeline_of, run, with_schema
from tests.pipeline.sync.kit import many_plan, schema_of, sync_config
from tests.pipeline.sync.kit import run as run_many

TYPES = {"day": "DATE", "time": "TIME(3)", "at": "TIMESTAMP(6)", "ns": "TIMESTAMP(9)",
         "zoned": "TIMESTAMP(3) WITH LOCAL TIME ZONE"}  # fmt: skip
TIMES = 5
"""As often comes each record, so that what it is like is learned."""
DBZ, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
DAY, NIGHT = 18321, 18321 * 86_400
NS = NIGHT * 10**9
MIDNIGHT = {"day": "2020-02-29", "at": "2020-02-29 00:00:00", "ns": str(NS), "zoned": "2020-02-29 00:00:00"}
LATER = {"at": "2020-02-29 00:00:01", "ns": str(NS + 10**9), "zoned": "2020-02-29 00:00:01"}
SECOND = {"time": "1000"}

KINDS: list[tuple[str | None, str, Any, dict[str, str]]] = [
    (DBZ + "Date", "int32", DAY, MIDNIGHT),
    (CONNECT + "Date", "int32", DAY, MIDNIGHT),
    (DBZ + "IsoDate", "string", "2020-02-29Z", MIDNIGHT),
    (DBZ + "Timestamp", "int64", NIGHT * 10**3, MIDNIGHT),
    (DBZ + "MicroTimestamp", "int64", NIGHT * 10**6, MIDNIGHT),
    (DBZ + "NanoTimestamp", "int64", NS, MIDNIGHT),
    (CONNECT + "Timestamp", "int64", NIGHT * 10**3, MIDNIGHT),
    (DBZ + "IsoTimestamp", "string", "2020-02-29T00:00:00Z", MIDNIGHT),
    (DBZ + "ZonedTimestamp", "string", "2020-02-29T00:00:00.000000Z", MIDNIGHT),
    (DBZ + "Timestamp", "int64", (NIGHT + 1) * 10**3, LATER),
    (DBZ + "MicroTimestamp", "int64", (NIGHT + 1) * 10**6, LATER),
    (DBZ + "NanoTimestamp", "int64", NS + 10**9, LATER),
    (DBZ + "IsoTimestamp", "string", "2020-02-29T00:00:01Z", LATER),
    (DBZ + "Time", "int32", 1000, SECOND),
    (DBZ + "MicroTime", "int64", 10**6, SECOND),
    (DBZ + "NanoTime", "int64", 10**9, SECOND),
    (CONNECT + "Time", "int32", 1000, SECOND),
    (DBZ + "IsoTime", "string", "00:00:01Z", SECOND),
    (DBZ + "Year", "int32", 2024, {}),
    (DBZ + "MicroDuration", "int64", 1000, {}),
    (DBZ + "Interval", "string", "P1D", {}),
    ("my.own.Time", "int64", 1000, {}),
    (None, "int32", DAY, {}),
    (None, "int64", NIGHT * 10**6, {}),
]  # fmt: skip


def expected(column: str, name: str | None, good: dict[str, str], is_plain: bool) -> str:
    if column in good:
        return f"+I(1, {good[column]})"
    own = (name or "").rpartition(".")[2].removeprefix("Micro").removeprefix("Nano")
    is_own = own == "Time" if column == "time" else own in ("Date", "Timestamp")
    is_right = is_own and name is not None and name.startswith((DBZ, CONNECT))
    what = "numbers need time_precision_mode" if is_plain else f"its schema calls it {name or 'no time'}"
    hint = "" if is_right else f" ({what})"
    return f"dead v: the value of field v does not fit {TYPES[column]}{hint}"


def assert_as_expected(config: PipelineConfig, column: str, records: list[Any]) -> None:
    decoder = decoder_of(config)
    is_plain = config.sources[0].format == "avro"
    wanted = [expected(column, name, good, is_plain and name is None) for name, _, _, good in KINDS]
    assert dict(enumerate(run(replace(decoder, is_careful=True), records).shown)) == dict(enumerate(wanted))
    assert run(decoder, records * TIMES).shown == wanted * TIMES


@pytest.mark.parametrize("column", TYPES)
@pytest.mark.parametrize("form", ["debezium-json", "debezium-unwrapped"])
def test_in_json(form: str, column: str) -> None:
    records: list[Any] = []
    for name, kind, value, _ in KINDS:
        named = {"type": kind, "optional": True, "field": "v"}
        fields = [{"type": "int64", "field": "id"}, {**named, "name": name, "version": 1} if name else named]
        row = {"id": 1, "v": value}
        is_flat = form == "debezium-unwrapped"
        records.append(flat_with_schema(row, fields) if is_flat else with_schema(change("c", None, row), fields))
    assert_as_expected(pipeline_of({"id": "BIGINT", "v": TYPES[column]}, format=form), column, records)


@pytest.mark.parametrize("form", ["debezium-avro", "avro"])
def test_in_avro(form: str) -> None:
    with SchemaRegistry() as registry:
        records = []
        for number, (name, kind, value, _) in enumerate(KINDS):
            plain = {"int32": "int", "int64": "long"}.get(kind, kind)
            row = {"id": "long", "v": optional(connect(plain, name) if name else plain)}
            datum = {"id": 1, "v": value}
            is_flat = form == "avro"
            topic = AvroTopic(registry, record_of(row) if is_flat else envelope_of(row), f"t{number}-value")
            records.append(topic.value(datum if is_flat else avro_change("c", None, datum)))
        for column in ("day", "time", "at"):
            config = avro_pipeline(registry, {"id": "BIGINT", "v": TYPES[column]}, format=form)
            assert_as_expected(config, column, records)


def test_numbers_without_a_schema_are_what_the_mode_says() -> None:
    row = {"id": 1, "v": NIGHT * 10**3}
    config = pipeline_of({"id": "BIGINT", "v": "TIMESTAMP(6)"}, time_precision_mode="connect")
    assert run(decoder_of(config), [change("c", None, row)]).shown == ["+I(1, 2020-02-29 00:00:00)"]


def test_in_sync_a_column_stays_what_it_is_after_the_source_has_made_it_a_date() -> None:
    fields = [{"type": "int64", "field": "id"}, {"type": "int32", "name": DBZ + "Date", "optional": True, "field": "v"}]
    tables = {"shop.public.orders": schema_of({"id": "BIGINT", "v": "TIMESTAMP(6)"})}
    record = Record(with_schema(change("c", None, {"id": 1, "v": DAY}), fields), {"id": 1})
    found = run_many(many_plan(sync_config(), tables), [record] * TIMES)
    assert found.texts(1) == ["+I(1, 2020-02-29 00:00:00)"] * TIMES
    assert found.seen == {}
