"""Whatever comes, a batch is decoded after a few rounds: decoders say what is new, tables follow. No Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet import Catalog
from freshet.pipeline.config.sync import LEDGER_COLUMNS, LEDGER_KEY
from freshet.pipeline.decode.outcome_batches import outcome_schema
from freshet.pipeline.decode.outcomes import TAG, TAG_TALLY, Tally
from freshet.pipeline.query.driver.dead_letters import open_dead_letters
from freshet.pipeline.query.driver.fitting_round import ROUNDS_MAX
from freshet.pipeline.query.wire.packed_rows import unpacked
from freshet.pipeline.sync.many_decoder import ManyDecoder
from freshet.pipeline.sync.sync_tables import SyncTables
from freshet.pipeline.sync.table_decoding import ManyPlan
from freshet.storage.table_engine import CommitCheck
from tests.kit.hypothesis_profile import examples
from tests.pipeline.records import Record, change, flat_with_schema, raw_batch, with_schema
from tests.pipeline.sync.kit import sync_config

LEDGER = "lake._freshet_ledger_shop"
ID = {"type": "int64", "field": "id", "optional": False}
DECIMAL = "org.apache.kafka.connect.data.Decimal"
FIELDS: Mapping[str, tuple[dict[str, Any], Any]] = {
    "int": ({"type": "int32"}, 5),
    "long": ({"type": "int64"}, 1 << 40),
    "text": ({"type": "string"}, "x"),
    "double": ({"type": "double"}, 1.5),
    "date": ({"type": "int32", "name": "io.debezium.time.Date"}, 19_000),
    "time": ({"type": "int64", "name": "io.debezium.time.MicroTime"}, 1),
    "narrow": (
        {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2", "connect.decimal.precision": "5"}},
        "AQ==",
    ),
    "wide": (
        {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2", "connect.decimal.precision": "40"}},
        "AQ==",
    ),
    "list": ({"type": "array", "items": {"type": "int32"}}, [1]),
}
_NAMES = st.sampled_from(
    ["a", "b", "ä ö", "dt", "_op", "_KEY_a", "", "a`b", "created", "x" * 300, "payload", "op", "before"]
)
_ROWS = st.dictionaries(_NAMES, st.sampled_from(sorted(FIELDS)), max_size=4)
_RECORDS = st.lists(
    st.tuples(st.sampled_from(["one", "two"]), _ROWS, st.booleans(), st.sampled_from("cud")), max_size=12
)


def record(number: int, table: str, row: Mapping[str, str], *, wraps: bool, op: str) -> Record:
    values = {"id": number, **{name: FIELDS[kind][1] for name, kind in row.items()}}
    payload = change(op, None if op == "c" else values, None if op == "d" else values, table=table)
    fields = [ID, *({**FIELDS[kind][0], "field": name, "optional": True} for name, kind in row.items())]
    value = with_schema(payload, fields) if wraps else payload
    return Record(
        json.dumps(value, separators=(",", ":")).encode(), flat_with_schema({"id": number}, [ID]), topic=table
    )


def unwrapped(number: int, table: str, row: Mapping[str, str], *, wraps: bool, op: str) -> Record:
    """The same as ExtractNewRecordState gives it; rows of updates name their table, some of them in another topic."""
    key = flat_with_schema({"id": number}, [ID])
    if op == "d" and number % 2:
        return Record(None, key, topic=table)
    values = {"id": number, **{name: FIELDS[kind][1] for name, kind in row.items()}}
    values |= {"__deleted": str(op == "d").lower(), **({"__table": table} if op == "u" else {})}
    fields = [ID, *({**FIELDS[kind][0], "field": name, "optional": True} for name, kind in row.items())]
    value = json.dumps(flat_with_schema(values, fields) if wraps else values, separators=(",", ":"))
    return Record(value.encode(), key, topic="mixed" if op == "u" and number % 2 else table)


def tally_of(plan: ManyPlan, records: list[Record]) -> tuple[Tally, set[int]]:
    """The tally, and the offsets of the outcomes."""
    schemas = {0: outcome_schema(plan.ledger)}
    schemas |= {each.index: outcome_schema(each.plan) for each in plan.tables.values() if hasattr(each, "plan")}
    found, offsets = Tally(), set()
    for _, table, packed in ManyDecoder(plan)([raw_batch(records)]):
        for row in unpacked(packed, schemas[table]).to_pylist():
            if row[TAG] == TAG_TALLY:
                found = Tally.decode(row["_raw_value"])
            else:
                offsets.add(row["_offset"])
    return found, offsets


@settings(max_examples=examples(40))
@given(_RECORDS)
@pytest.mark.parametrize(
    ("of", "guesses"), [("debezium-json", False), ("debezium-json", True), ("debezium-unwrapped", True)]
)
def test_rounds_come_to_an_end(of: str, guesses: bool, records: list[tuple[str, dict[str, str], bool, str]]) -> None:
    section: dict[str, Any] = {"schema": "infer"} if guesses else {}
    rule = {"from": "(shop[.]public[.])?(one|two)", "to": "lake.$2"}
    config = sync_config(
        [rule], of=of, options={"bucket": 1}, metadata_columns={"_op": "op"},
        computed_columns={"dt": "substring(b, 0, 2)"}, **section,
    )  # fmt: skip
    make = record if of == "debezium-json" else unwrapped
    sent = [
        make(number, table, {**row, **({"b": "text"} if "b" in row else {})}, wraps=wraps or not guesses, op=op)
        for number, (table, row, wraps, op) in enumerate(records)
    ]
    with TemporaryDirectory() as name:
        folder = Path(name)
        table = config.table.model_copy(update={"warehouse": str(folder)})
        config = config.model_copy(update={"warehouse": str(folder), "table": table})
        catalog = Catalog(folder)
        ledger = catalog.create_table(LEDGER, schema=LEDGER_COLUMNS, primary_keys=[LEDGER_KEY], options={"bucket": "1"})
        tables = SyncTables(config, ledger, open_dead_letters(catalog, "lake.dead_letters"), 2)
        tables.begin(0, CommitCheck(is_committed=False, last=None, latest=None), {})
        for _ in range(ROUNDS_MAX):
            tables.round(0, {})
            tally, offsets = tally_of(tables.plan(), sent)
            assert tally.error is None
            if not tally.seen:
                break
            tables.follow(tally.seen, 0, {})
        else:
            pytest.fail(f"still new after {ROUNDS_MAX} rounds: {tally.seen}")
        assert tally.read == len(sent) == len(offsets) + sum(tally.skipped.values())
