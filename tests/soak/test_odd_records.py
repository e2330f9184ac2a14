"""Records with values that are hard to convert: no record stops a pipeline, keeps it busy or takes its memory.

Each batch goes by the fast and by the careful path, which give the same, and its rows into a table.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog, Table
from freshet.pipeline.decode.carriers import restore_array
from freshet.pipeline.decode.convert.decimals import CONNECT_DECIMAL
from freshet.pipeline.decode.decoder import RecordDecoder
from freshet.pipeline.decode.outcomes import TAG, TAG_DATA
from freshet.pipeline.sync.table_decoding import ManyPlan
from freshet.storage.model.sql_type import parse_sql_type
from tests.kit.schema_registry import SchemaRegistry
from tests.pipeline.avro_records import AvroTopic, avro_change, avro_pipeline, connect, envelope_of, record_of
from tests.pipeline.odd_records import COLUMNS, MESSAGES, TEXTS, odd_pipeline, random_record
from tests.pipeline.records import Record, decoder_of, raw_batch, run
from tests.pipeline.sync.kit import many_plan, schema_of, sync_config
from tests.pipeline.sync.kit import run as run_many
from tests.soak.counts import ODD_RECORDS, chance_of

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

BATCH = 200
SECONDS_PER_RECORD = 0.02
"""Of the CPU, in all of its ways, on a slow machine; most records take a hundredth of it."""
MEMORY_KB_MAX = 600_000
WRITTEN = 10
"""Of so many batches one is written."""


class Bounds:
    """What a batch may take; the record that takes more is found by trying each alone."""

    def __init__(self) -> None:
        self._memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def check(self, records: Sequence[bytes], decode: Callable[[Sequence[bytes]], Any]) -> Any:
        try:
            found, seconds = _timed(decode, records)
        except Exception:
            for each in records:
                try:
                    decode([each])
                except Exception as error:
                    raise AssertionError(f"stopped by {each[:2000]!r}: {error}") from error
            raise
        if seconds > SECONDS_PER_RECORD * len(records):
            slowest = max(records, key=lambda each: _timed(decode, [each])[1])
            raise AssertionError(f"{seconds:.1f} s of CPU for {len(records)} records, slowest {slowest[:2000]!r}")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self._memory
        assert grown < MEMORY_KB_MAX, f"memory grew by {grown} KB"
        return found


def _timed(decode: Callable[[Sequence[bytes]], Any], records: Sequence[bytes]) -> tuple[Any, float]:
    started = time.process_time()
    found = decode(records)
    return found, time.process_time() - started


def _table(folder: Path) -> Table:
    return Catalog(folder).create_table("a.b", schema=COLUMNS, primary_keys=["id"], options={"bucket": "1"})


def _write(table: Table, decoder: RecordDecoder, records: Sequence[bytes]) -> None:
    """The rows go the way of a batch into the table, and come back."""
    batches = list(decoder(iter([raw_batch(records)])))
    rows = pa.Table.from_batches(batches).filter(pa.compute.field(TAG) == TAG_DATA).combine_chunks()
    columns = {
        name: restore_array(rows.column(f"_d{index}").combine_chunks(), parse_sql_type(kind))
        for index, (name, kind) in enumerate(COLUMNS.items())
    }
    writable = pa.table(columns).filter(pa.compute.field("id").is_valid())
    table.append(writable)
    assert table.scan().to_arrow().num_rows <= writable.num_rows + table.scan().count()


@pytest.mark.parametrize("form", MESSAGES)
def test_records_of_json(form: str, tmp_path: Path) -> None:
    truncates = form.startswith("debezium") or form == "canal-json"
    decoder = decoder_of(odd_pipeline(form, **({"on_truncate": "skip"} if truncates else {})))
    careful = replace(decoder, is_careful=True)
    table, bounds = _table(tmp_path), Bounds()
    plans = [_many_plan(form, is_known) for is_known in (True, False)]

    def decode(records: Sequence[bytes]) -> None:
        fast, slow = (run(each, records, in_both_forms=False) for each in (decoder, careful))
        assert fast.shown == slow.shown

    def decode_many(records: Sequence[bytes]) -> None:
        for plan in plans:
            assert run_many(plan, [Record(each, topic="t") for each in records]).tally.error is None

    for number in range(max(1, ODD_RECORDS.now() // BATCH)):
        chance = chance_of("odd records", form, number)
        records = [random_record(form, chance) for _ in range(BATCH)]
        bounds.check(records, decode)
        if number % WRITTEN == 0:
            bounds.check(records, decode_many)
            _write(table, decoder, records)


def _many_plan(form: str, is_known: bool) -> ManyPlan:
    """Of a source whose table is known, or not."""
    section: dict[str, Any] = {"options": {"rowkind.field": "kind"}} if form == "row-kind" else {}
    if form.startswith("debezium") or form == "canal-json":
        section["source"] = {"on_truncate": "skip"}
    config = sync_config([{"from": ".*", "to": "lake.t"}], of=form, schema="infer", **section)
    name = "d..t" if form in ("canal-json", "maxwell-json") else "..t"
    return many_plan(config, {name: schema_of(COLUMNS)} if is_known else {})


def _odd_node(chance: Random) -> tuple[Any, Callable[[], Any]]:
    """A type of Avro with what makes values of it."""
    longs = [0, 1, -1, 2**31, 2**63 - 1, -(2**63), 86_400_000_000, 253_402_300_800_000_000]
    octets = [b"", b"\0", b"\xff" * 9, b"\x7f" * 400, b"\x80" + b"\0" * 1023, b"x" * 1025]
    names = ["io.debezium.time.Date", "io.debezium.time.NanoTime", "io.debezium.time.MicroTimestamp", "no.such.Name"]
    variable = record_of({"scale": "int", "value": "bytes"}, f"V{chance.getrandbits(32)}")
    variable["connect.name"] = "io.debezium.data.VariableScaleDecimal"
    scale = str(chance.choice([0, 2, -2, 38, 9999, 10_000, 10**9]))
    scales = [0, 1, -1, 38, 9999, -9999, 2**31 - 1, -(2**31)]
    kinds: list[tuple[Any, Callable[[], Any]]] = [
        ("string", lambda: chance.choice(TEXTS).encode(errors="replace").decode()),
        ("long", lambda: chance.choice(longs)),
        (connect("long", chance.choice(names)), lambda: chance.choice(longs)),
        ("double", lambda: chance.choice([0.0, -0.0, 1e308, 5e-324, float("nan"), float("inf"), 1.5])),
        ("bytes", lambda: chance.choice(octets)),
        (connect("bytes", CONNECT_DECIMAL, **{"connect.parameters": {"scale": scale}}), lambda: chance.choice(octets)),
        (variable, lambda: {"scale": chance.choice(scales), "value": chance.choice(octets)}),
        ({"type": "array", "items": ["null", "string"]}, lambda: [None, *chance.sample(["1", "x", "1e99999999"], 2)]),
        ({"type": "map", "values": "double"}, lambda: {"1": 1.0, chance.choice(["01", "x", "9" * 5000]): 2.0}),
    ]
    return chance.choice(kinds)


def test_records_of_avro(tmp_path: Path) -> None:
    table, bounds = _table(tmp_path), Bounds()
    with SchemaRegistry() as registry:
        decoder = decoder_of(avro_pipeline(registry, COLUMNS, on_truncate="skip"))
        careful = replace(decoder, is_careful=True)

        def decode(records: Sequence[bytes]) -> None:
            fast, slow = (run(each, records, in_both_forms=False) for each in (decoder, careful))
            assert fast.shown == slow.shown

        for number in range(max(1, ODD_RECORDS.now() // BATCH)):
            chance = chance_of("odd records", "debezium-avro", number)
            nodes = {name: _odd_node(chance) for name in chance.sample(list(COLUMNS)[1:], 4)}
            row = {"id": "long", **{name: ["null", kind] for name, (kind, _) in nodes.items()}}
            topic = AvroTopic(registry, envelope_of(row), f"t{number}-value")
            records = [
                topic.value(avro_change("c", None, {"id": at, **{name: value() for name, (_, value) in nodes.items()}}))
                for at in range(BATCH)
            ]
            records[0] = records[0][: chance.randrange(len(records[0]))]
            records[1] = records[1][:5] + chance.randbytes(40)
            bounds.check(records, decode)
            if number % WRITTEN == 0:
                _write(table, decoder, records)
