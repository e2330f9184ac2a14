"""Tables whose log is read by others too: records as those expect them, and the same rows for our own readers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from freshet.logstore import json_records as json_records_module
from freshet.logstore import rows as rows_module
from freshet.logstore.exceptions import LogConfigError, LogLostError
from freshet.logstore.json_records import decoded, json_records
from freshet.logstore.record import DEBEZIUM_FORMAT, JSON_FORMAT, KIND_FIELD, Attempt, RecordHeader
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.model.row_kind import RowKind
from freshet.storage.table import SetOption
from tests.kit.fake_log import FakeLog
from tests.kit.log_story import table_of
from tests.logstore.logged_tables import SCHEMA, fake_kafka, make_logged, told
from tests.logstore.test_logged_tables import folded, held, write


@pytest.fixture
def log() -> Iterator[FakeLog]:
    with fake_kafka() as found:
        yield found


def texts(log: FakeLog, topic: str = "t") -> list[tuple[str | None, str]]:
    """Keys and values as another consumer sees them; a tombstone is empty."""
    [partition] = log.topics[topic].partitions
    return [(None if each.key is None else each.key.decode(), each.value.decode()) for each in partition.records]


def test_debezium_json_has_whole_updates(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path, log__format="debezium-json")
    write(table, "+I 1 a | +I 2 b", "+U 1 c | -D 2 b")
    assert texts(log) == [
        ('{"k":1}', '{"before":null,"after":{"k":1,"v":"a"},"op":"c"}'),
        ('{"k":2}', '{"before":null,"after":{"k":2,"v":"b"},"op":"c"}'),
        ('{"k":1}', '{"before":{"k":1,"v":"a"},"after":{"k":1,"v":"c"},"op":"u"}'),
        ('{"k":2}', '{"before":{"k":2,"v":"b"},"after":null,"op":"d"}'),
    ]
    for isolation in ("committed", "speculative"):
        found = told(table, isolation, from_snapshot=1)()
        assert found == "+I 1 a | +I 2 b | -U 1 a | +U 1 c | -D 2 b"


def test_json_has_tombstones_and_readers_the_rows_that_they_delete(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path, log__format="json", log__changelog_mode="upsert", log__key__format="json")
    write(table, "+I 1 a | +I 2 b", "+U 1 c | -D 2 b")
    assert texts(log) == [
        ('{"k":1}', '{"k":1,"v":"a"}'),
        ('{"k":2}', '{"k":2,"v":"b"}'),
        ('{"k":1}', '{"k":1,"v":"c"}'),
        ('{"k":2}', ""),
    ]
    assert told(table, from_snapshot=1)() == "+I 1 a | +I 2 b | +U 1 c | -D 2 b"
    assert told(table, from_snapshot=1, filter="v = 'b'")() == "+I 2 b | -D 2 b"


def test_json_without_lookup_has_the_last_row_of_each_key(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path, log__format="json", changelog_producer="none")
    write(table, "+I 1 a | +I 1 b | -D 2 null")
    assert texts(log) == [('{"k":1}', '{"k":1,"v":"b"}'), ('{"k":2}', "")]
    assert told(table, from_snapshot=1)() == "+I 1 b | -D 2 null"


def test_append_tables_have_no_key(log: FakeLog, tmp_path: Path) -> None:  # V35
    for number, (name, value) in enumerate(
        {"json": '{"k":1,"v":"a"}', "debezium-json": '{"before":null,"after":{"k":1,"v":"a"},"op":"c"}'}.items()
    ):
        table = make_logged(tmp_path / name, keyed=False, log__format=name, kafka__topic=f"t{number}")
        write(table, "+I 1 a")
        assert texts(log, f"t{number}") == [(None, value)]
        assert told(table, "speculative", from_snapshot=1)() == "+I 1 a"


@pytest.mark.parametrize("name", ["arrow", "json", "debezium-json"])
def test_deletes_may_be_left_out(log: FakeLog, tmp_path: Path, name: str) -> None:  # V36
    table = make_logged(tmp_path, log__format=name, log__ignore_delete="true")
    stream = told(table)
    stream()
    write(table, "+I 1 a | +I 2 b", "+U 1 c | -D 2 b")
    assert stream() == "+I 1 a | +I 2 b | +I 1 c"
    with pytest.raises(LogConfigError, match=r"log.ignore-delete.*read with isolation='committed'"):
        told(table, "speculative")
    log.truncate("t", 0, 3)
    hopping = told(table.with_options({"log.on-truncated": "hop"}), from_snapshot=1)
    assert hopping() == "+I 1 a | +I 2 b | +I 1 c"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"log__format": "json"}, "does not tell updates and deletes from inserts"),  # V36
        ({"log__key__format": "json"}, "log.key.format needs log.format=json or debezium-json"),
        ({"log__format": "avro"}, "log.format=avro is not supported; it is one of arrow, json, debezium-json"),
        ({"log__format": "json", "log__key__format": "csv"}, "log.key.format=csv is not supported"),
    ],
)
def test_formats_that_are_refused(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises((InvalidRequestError, UnsupportedFeatureError), match=message):
        make_logged(tmp_path, **options)


def test_a_table_may_change_its_format(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a", "+I 1 b")
    table = table.alter(SetOption("log.format", "debezium-json"))
    write(table, "+I 1 c")
    for isolation in ("committed", "speculative"):
        assert told(table, isolation, from_snapshot=1)() == "+I 1 a | -U 1 a | +U 1 b | -U 1 b | +U 1 c"


def test_keys_have_all_their_columns(log: FakeLog, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("day", pa.date32(), nullable=False), *SCHEMA])
    options = {"bucket": "1", "changelog-producer": "input", "log.system": "kafka", "kafka.topic": "t"}
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        schema=schema,
        primary_keys=["day", "k"],
        partition_keys=["day"],
        options={**options, "log.format": "debezium-json", "kafka.bootstrap.servers": "nowhere:9"},
    )
    with table.writer("u") as writer:
        writer.write(pa.table({"day": [dt.date(1970, 1, 2), dt.date(1970, 1, 3)], "k": [7, 7], "v": ["x", None]}))
        writer.commit()
    assert {key for key, _ in texts(log)} == {'{"day":"1970-01-02","k":7}', '{"day":"1970-01-03","k":7}'}
    found = {row for batch in table.stream(isolation="speculative", from_snapshot=1, max_wait_s=0) for row in
             zip(*(column.to_pylist() for column in batch.columns), strict=True)}  # fmt: skip
    assert {(k, v, kind) for _, k, v, kind in found} == {(7, "x", "+I"), (7, None, "+I")}


def test_a_lost_record_is_told(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path, log__format="debezium-json")
    write(table, "+I 1 a | +I 2 b | +I 3 c")
    log.lose("t", 0, 1)
    for isolation in ("committed", "speculative"):
        with pytest.raises(LogLostError, match="topic t partition 0"):
            told(table, isolation, from_snapshot=1)()


@pytest.mark.parametrize("name", ["json", "debezium-json"])
def test_many_changes_are_read_back(log: FakeLog, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.logstore.json_records.SLICE_ROWS", 7)
    monkeypatch.setattr("freshet.logstore.rows.GROUP_RECORDS", 10)
    log.chunk = 13
    mode = {"log__changelog_mode": "upsert"} if name == "json" else {}
    table = make_logged(tmp_path, log__format=name, **mode)
    isolations = ("committed",) if mode else ("committed", "speculative")
    streams = {isolation: told(table, isolation) for isolation in isolations}
    tables: dict[str, dict[int, str]] = {isolation: folded(stream()) for isolation, stream in streams.items()}
    for number in range(4):
        write(table, " | ".join(f"{'-D' if key % 5 == number else '+I'} {key} v{number}" for key in range(50)))
        for isolation, stream in streams.items():
            found = stream()
            if mode:
                for kind, key, value in (part.split() for part in found.split(" | ")):
                    tables[isolation][int(key)] = value
                    if kind == "-D":
                        del tables[isolation][int(key)]
            else:
                tables[isolation] = folded(found, tables[isolation])
            assert tables[isolation] == held(table)


def header_of(rows: int, tail: bytes, value_format: int) -> RecordHeader:
    return RecordHeader(bytes(8), Attempt(0, 0), 0, (b"", 0), 0, rows, 0, bytes(8), value_format, tail)


@pytest.mark.parametrize("value_format", [JSON_FORMAT, DEBEZIUM_FORMAT])
@pytest.mark.parametrize(
    "text",
    [
        "-U 1 a | +U 1 b",
        "-U 1 a | +U 2 b",  # other keys are no pair
        "-U 1 a",
        "+U 1 a | -U 1 a",
        "-U 1 a | -U 1 b | +U 1 c | +U 1 d",
        "-D 1 a | +I 1 null | -U 1 null | +U 1 x",
    ],
)
def test_any_kinds_are_read_back(text: str, value_format: int) -> None:
    rows = table_of(text)
    records = list(json_records(rows, value_format, ["k"], size_bytes_max=1000))
    found = decoded(
        [(header_of(each.row_count, each.tail, value_format), each.value or b"") for each in records], rows.schema
    )
    assert pa.Table.from_batches([found]).equals(rows)


def test_a_pair_is_not_parted_where_rows_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.logstore.json_records.SLICE_ROWS", 1)
    rows = table_of("+I 1 a | -U 2 a | +U 2 b | -D 3 a")
    records = json_records(rows, DEBEZIUM_FORMAT, ["k"], size_bytes_max=1000)
    assert [each.row_count for each in records] == [1, 2, 1]


def test_a_row_that_is_too_large_is_named_by_its_key() -> None:
    with pytest.raises(LogConfigError, match=r"a row with key b'\{\"k\":1\}' takes \d+ bytes.*may have 20"):
        list(json_records(table_of("+I 1 abcdefghijkl"), JSON_FORMAT, ["k"], size_bytes_max=20))


@pytest.mark.parametrize("value", [b"7", b"{}", b'{"before":null,"after":null,"op":"c"}', b"nonsense"])
def test_values_that_others_wrote_are_errors(value: bytes) -> None:
    header = header_of(1, bytes([RowKind.INSERT]), DEBEZIUM_FORMAT)
    with pytest.raises(LogLostError, match="does not hold rows of this table"):
        decoded([(header, value)], pa.schema([KIND_FIELD, *SCHEMA]))


def test_large_rows_are_written_and_read_a_few_at_a_time(
    log: FakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, list[int]] = {"written": [], "read": []}
    texts_of, rows_of = json_records_module.object_texts, rows_module.decoded

    def written(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
        seen["written"].append(len(columns[0]))
        return texts_of(names, columns)

    def read(records: Sequence[tuple[RecordHeader, bytes]], schema: pa.Schema) -> pa.RecordBatch:
        seen["read"].append(len(records))
        return rows_of(records, schema)

    monkeypatch.setattr(json_records_module, "object_texts", written)
    monkeypatch.setattr(json_records_module, "SLICE_BYTES", 10_000)
    monkeypatch.setattr(rows_module, "decoded", read)
    monkeypatch.setattr(rows_module, "GROUP_BYTES", 10_000)
    table = make_logged(tmp_path, log__format="debezium-json")
    write(table, " | ".join(f"+I {key} {'x' * 1000}" for key in range(100)))
    assert folded(told(table, from_snapshot=1)()) == held(table)
    assert max(seen["written"]) <= 10 and max(seen["read"]) <= 11
