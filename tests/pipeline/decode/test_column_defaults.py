"""The default of a column: a new row gets it whose record lacks the field, in every format, on both paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from freshet.pipeline.config.model import PipelineConfig
from freshet.storage.model.schema import TableSchema
from tests.kit.schema_registry import SchemaRegistry
from tests.pipeline.avro_records import AvroTopic, avro_change, avro_pipeline, envelope_of, optional, record_of
from tests.pipeline.binlog_records import canal, maxwell
from tests.pipeline.records import Record, change, decoder_of, pipeline_of, run

COLUMNS: Final = {"id": "BIGINT", "a": "INT", "n": "STRING", "at": "DATE"}
DEFAULTS: Final = {"n": "d", "at": "2024-02-29", "a": "7"}
FULL: Final = {"id": 1, "a": 1, "n": None, "at": None}
LACKS: Final = {"id": 2, "a": 2, "at": None}
FULL_ROW, LACKS_ROW = "(1, 1, None, None)", "(2, 2, d, None)"


def with_defaults(config: PipelineConfig, defaults: Mapping[str, str] = DEFAULTS) -> PipelineConfig:
    fields = tuple(replace(each, default_value=defaults.get(each.name)) for each in config.table.fields)
    return config.model_copy(update={"table": config.table.with_defaults(TableSchema(0, fields, 9))})


def shown(config: PipelineConfig, records: list[Any]) -> list[str]:
    """What both paths make of the records; many of each, so that the fast one learns them."""
    decoder = decoder_of(config)
    fast, careful = run(decoder, records * 20), run(replace(decoder, is_careful=True), records)
    assert fast.shown == careful.shown * 20
    return careful.shown


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as server:
        yield server


FORMATS: Final[dict[str, tuple[list[Any], list[str]]]] = {
    "json": ([FULL, LACKS], ["+I" + FULL_ROW, "+I" + LACKS_ROW]),
    "debezium-json": (
        [change("c", None, FULL), change("c", None, LACKS), change("u", None, LACKS), change("d", LACKS, None)],
        ["+I" + FULL_ROW, "+I" + LACKS_ROW, "+U" + LACKS_ROW, "-D(2, 2, None, None)"],
    ),
    "debezium-unwrapped": (
        [{**FULL, "__op": "u"}, {**LACKS, "__op": "c"}, Record(None, {"id": 2})],
        ["+U" + FULL_ROW, "+I" + LACKS_ROW, "-D(2, None, None, None)"],
    ),
    "canal-json": (
        [canal("INSERT", [FULL, LACKS]), canal("UPDATE", [LACKS], [{"a": "1"}]), canal("DELETE", [LACKS])],
        ["+I" + FULL_ROW + "; +I" + LACKS_ROW, "+U" + LACKS_ROW, "-D(2, 2, None, None)"],
    ),
    "maxwell-json": (
        [maxwell("insert", FULL), maxwell("insert", LACKS), maxwell("update", LACKS, {"a": 1})],
        ["+I" + FULL_ROW, "+I" + LACKS_ROW, "+U" + LACKS_ROW],
    ),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("options", [{}, {"merge-engine": "first-row"}])
def test_a_record_that_lacks_the_field(name: str, options: dict[str, str]) -> None:
    records, expected = FORMATS[name]
    if options and name != "json":
        return
    assert shown(with_defaults(pipeline_of(COLUMNS, format=name, options=options)), records) == expected


def test_where_columns_are_merged_nothing_is_filled() -> None:
    config = pipeline_of(COLUMNS, format="json", options={"merge-engine": "partial-update"})
    assert shown(with_defaults(config), [FULL, LACKS]) == ["+I" + FULL_ROW, "+I(2, 2, None, None)"]


def test_rows_before_updates_are_what_they_were() -> None:
    config = with_defaults(pipeline_of(COLUMNS, options={"changelog-producer": "input"}))
    before, after = {"id": 2, "a": 1, "at": None}, {"id": 2, "a": 2, "at": None}
    assert shown(config, [change("u", before, after)]) == ["-U(2, 1, None, None); +U(2, 2, d, None)"]


def test_columns_that_select_leaves_out() -> None:
    config = pipeline_of(COLUMNS, format="json", select={"id": "id", "n": "m"})
    assert shown(with_defaults(config), [{"id": 1, "m": None}, {"id": 2}]) == [
        "+I(1, 7, None, 2024-02-29)",
        "+I(2, 7, d, 2024-02-29)",
    ]


def test_a_key_and_a_column_that_may_not_be_null() -> None:
    columns = {"id": "BIGINT", "a": "INT NOT NULL", "n": "STRING"}
    config = pipeline_of(columns, format="json", primary_key=("id", "n"))
    assert shown(with_defaults(config), [{"id": 1}]) == ["+I(1, 7, d)"]


def test_avro(registry: SchemaRegistry) -> None:
    kinds: dict[str, Any] = {"id": "long", "a": "int", "n": optional("string"), "at": optional("int")}
    lacks = {name: kind for name, kind in kinds.items() if name != "n"}
    plain = with_defaults(avro_pipeline(registry, COLUMNS, format="avro"))
    records = [
        AvroTopic(registry, record_of(kinds), "plain").value(FULL),
        AvroTopic(registry, record_of(lacks), "plain-2").value(LACKS),
    ]
    assert shown(plain, records) == ["+I" + FULL_ROW, "+I" + LACKS_ROW]
    envelopes = AvroTopic(registry, envelope_of(lacks), "envelopes")
    changes = [avro_change("c", None, LACKS), avro_change("u", LACKS, LACKS), avro_change("d", LACKS)]
    assert shown(with_defaults(avro_pipeline(registry, COLUMNS)), list(map(envelopes.value, changes))) == [
        "+I" + LACKS_ROW,
        "+U" + LACKS_ROW,
        "-D(2, 2, None, None)",
    ]
