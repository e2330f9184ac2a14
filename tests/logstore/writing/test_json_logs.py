"""Tables whose log is read by others: records as those expect them. Readers of ours refuse what earlier versions logged
so before the commit, and say how to go on."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet.logstore.exceptions import LogConfigError, LogLostError
from freshet.logstore.protocol.record import DEBEZIUM_FORMAT, JSON_FORMAT
from freshet.logstore.writing import json_records as json_records_module
from freshet.logstore.writing.json_records import json_records
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.schema.change import SetOption
from freshet.storage.table import Table
from tests.kit.fake_log import FakeLog
from tests.kit.log_story import table_of
from tests.logstore.logged_tables import SCHEMA, Stream, make_logged, write

PUBLISHED = {"log__consistency": "transactional"}


def texts(log: FakeLog, topic: str = "t") -> list[tuple[str | None, str]]:
    """Keys and values as another consumer sees them; a tombstone is empty."""
    [records] = log.seen(topic)
    return [(None if each.key is None else each.key.decode(), each.value.decode()) for each in records]


def logged_as_json(folder: Path, monkeypatch: pytest.MonkeyPatch, *commits: str) -> Table:
    """A table as an earlier version made it, its log in debezium-json and written before the commit."""
    with monkeypatch.context() as patch:
        for module in ("schema.option_validation", "logs.log_systems"):
            patch.setattr(f"freshet.storage.{module}.refuse_uncommitted_json", lambda *_: None)
        table = make_logged(folder, log__format="debezium-json")
        write(table, *commits)
    return table


def test_a_log_of_json_before_the_commit_is_refused_with_the_remedies(
    log: FakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = "log.consistency=eventual.*set log.consistency=transactional and kafka.topic to a new name, or log.format="
    for name in ("json", "debezium-json"):
        with pytest.raises(InvalidRequestError, match=f"log.format={name} is for consumers .*{wanted}"):
            make_logged(tmp_path / name, log__format=name, log__changelog_mode="upsert")
    table = logged_as_json(tmp_path / "1", monkeypatch, "+I 1 a")
    for ask in (lambda: table.writer("u"), table.engine.log.check, lambda: table.stream(isolation="committed")):
        with pytest.raises(InvalidRequestError, match=f"table db.t: log.format=debezium-json .*{wanted}"):
            ask()
    assert len(table.scan().to_arrow()) == 1
    published = table.alter(SetOption("log.consistency", "transactional"), SetOption("kafka.topic", "t2"))
    write(published, "+I 1 b")
    assert [json.loads(text)["op"] for _, text in texts(log, "t2")] == ["u"]


def test_a_log_that_was_json_goes_on_as_arrow(
    log: FakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    """Readers start again from a snapshot: no reader here reads what was logged as JSON."""
    table = logged_as_json(tmp_path, monkeypatch, "+I 1 a | +I 2 b", "+U 1 c")
    table = table.alter(SetOption("log.format", "arrow"))
    stream = Stream(table, isolation, scan_mode="latest-full")
    assert stream() == "+I 1 c | +I 2 b"
    write(table, "+U 1 d | -D 2 b")
    assert stream() == "-U 1 c | +U 1 d | -D 2 b"
    with pytest.raises(LogLostError, match=r"topic t partition 0.*logged as JSON.*scan_mode='latest-full'"):
        Stream(table, isolation, from_snapshot=1)()
    assert Stream(table, isolation, from_snapshot=table.snapshots()[-1].id)() == "-U 1 c | +U 1 d | -D 2 b"


def test_debezium_json_has_whole_updates(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path, log__format="debezium-json", **PUBLISHED)
    write(table, "+I 1 a | +I 2 b", "+U 1 c | -D 2 b")
    assert texts(log) == [
        ('{"k":1}', '{"before":null,"after":{"k":1,"v":"a"},"op":"c"}'),
        ('{"k":2}', '{"before":null,"after":{"k":2,"v":"b"},"op":"c"}'),
        ('{"k":1}', '{"before":{"k":1,"v":"a"},"after":{"k":1,"v":"c"},"op":"u"}'),
        ('{"k":2}', '{"before":{"k":2,"v":"b"},"after":null,"op":"d"}'),
    ]


def test_json_has_tombstones(log: FakeLog, tmp_path: Path) -> None:
    given = {"log__changelog_mode": "upsert", "log__key__format": "json", **PUBLISHED}
    table = make_logged(tmp_path, log__format="json", **given)
    write(table, "+I 1 a | +I 2 b", "+U 1 c | -D 2 b")
    assert texts(log) == [
        ('{"k":1}', '{"k":1,"v":"a"}'),
        ('{"k":2}', '{"k":2,"v":"b"}'),
        ('{"k":1}', '{"k":1,"v":"c"}'),
        ('{"k":2}', ""),
    ]


def test_append_tables_have_no_key(log: FakeLog, tmp_path: Path) -> None:  # V35
    for number, (name, value) in enumerate(
        {"json": '{"k":1,"v":"a"}', "debezium-json": '{"before":null,"after":{"k":1,"v":"a"},"op":"c"}'}.items()
    ):
        table = make_logged(tmp_path / name, keyed=False, log__format=name, kafka__topic=f"t{number}", **PUBLISHED)
        write(table, "+I 1 a")
        assert texts(log, f"t{number}") == [(None, value)]


def test_deletes_may_be_left_out(log: FakeLog, tmp_path: Path) -> None:  # V36
    table = make_logged(tmp_path, log__ignore_delete="true")
    stream = Stream(table)
    stream()
    write(table, "+I 1 a | +I 2 b", "+U 1 c | -D 2 b")
    assert stream() == "+I 1 a | +I 2 b | +I 1 c"
    with pytest.raises(LogConfigError, match=r"log.ignore-delete.*read with isolation='committed'"):
        Stream(table, "speculative")
    log.truncate("t", 0, 3)
    falling_back = Stream(table.with_options({"log.on-truncated": "fall-back"}), from_snapshot=1)
    assert falling_back() == "+I 1 a | +I 2 b | +I 1 c"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"log__format": "json", **PUBLISHED}, "does not distinguish updates and deletes from inserts"),  # V36
        ({"log__key__format": "json"}, "log.key.format needs log.format=json or debezium-json"),
        ({"log__format": "avro"}, "log.format=avro is not supported; it is one of arrow, json, debezium-json"),
        ({"log__format": "json", "log__key__format": "csv", **PUBLISHED}, "log.key.format=csv is not supported"),
    ],
)
def test_formats_that_are_refused(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises((InvalidRequestError, UnsupportedFeatureError), match=message):
        make_logged(tmp_path, **options)


def test_keys_have_all_their_columns(log: FakeLog, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("day", pa.date32(), nullable=False), *SCHEMA])
    options = {"bucket": "1", "changelog-producer": "input", "log.system": "kafka", "kafka.topic": "t"}
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        schema=schema,
        primary_keys=["day", "k"],
        partition_keys=["day"],
        options={
            **options,
            "log.format": "debezium-json",
            "log.consistency": "transactional",
            "kafka.bootstrap.servers": "nowhere:9",
        },
    )
    with table.writer("u") as writer:
        writer.write(pa.table({"day": [dt.date(1970, 1, 2), dt.date(1970, 1, 3)], "k": [7, 7], "v": ["x", None]}))
        writer.commit()
    assert {key for key, _ in texts(log)} == {'{"day":"1970-01-02","k":7}', '{"day":"1970-01-03","k":7}'}


@pytest.mark.parametrize("name", ["json", "debezium-json"])
def test_many_changes_are_cut_into_slices(log: FakeLog, tmp_path: Path, name: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("freshet.logstore.writing.json_records.SLICE_ROWS", 7)
    mode = {"log__changelog_mode": "upsert"} if name == "json" else {}
    table = make_logged(tmp_path, log__format=name, **PUBLISHED, **mode)
    kept: dict[str, object] = {}
    for number in range(4):
        write(table, " | ".join(f"{'-D' if key % 5 == number else '+I'} {key} v{number}" for key in range(50)))
    for key, value in texts(log):
        after = json.loads(value) if value and not mode else {"after": json.loads(value) if value else None}
        assert key is not None
        kept[key] = after["after"]
    assert sorted((row["k"], row["v"]) for row in table.scan().to_arrow().to_pylist()) == sorted(
        (row["k"], row["v"]) for row in kept.values() if isinstance(row, dict)
    )


@pytest.mark.parametrize(
    ("text", "debezium", "plain"),
    [
        ("-U 1 a | +U 1 b", "2u", "- +"),
        ("-U 1 a | +U 2 b", "1d 1c", "- +"),  # other keys are no pair
        ("-U 1 a", "1d", "-"),
        ("+U 1 a | -U 1 a", "1c 1d", "+ -"),
        ("-U 1 a | -U 1 b | +U 1 c | +U 1 d", "1d 2u 1c", "- - + +"),
        ("-D 1 a | +I 1 null | -U 1 null | +U 1 x", "1d 1c 2u", "- + - +"),
    ],
)
def test_any_kinds_are_recorded(text: str, debezium: str, plain: str) -> None:
    pairs = list(json_records(table_of(text), DEBEZIUM_FORMAT, ["k"], size_bytes_max=1000))
    assert " ".join(f"{each.row_count}{json.loads(each.value or b'')['op']}" for each in pairs) == debezium
    single = list(json_records(table_of(text), JSON_FORMAT, ["k"], size_bytes_max=1000))
    assert " ".join("-" if each.value is None else "+" for each in single) == plain


def test_a_pair_is_not_split_where_rows_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.logstore.writing.json_records.SLICE_ROWS", 1)
    rows = table_of("+I 1 a | -U 2 a | +U 2 b | -D 3 a")
    records = json_records(rows, DEBEZIUM_FORMAT, ["k"], size_bytes_max=1000)
    assert [each.row_count for each in records] == [1, 2, 1]


def test_a_row_that_is_too_large_is_named_by_its_key() -> None:
    with pytest.raises(LogConfigError, match=r"a row with key b'\{\"k\":1\}' takes \d+ bytes.*may have 20"):
        list(json_records(table_of("+I 1 abcdefghijkl"), JSON_FORMAT, ["k"], size_bytes_max=20))


def test_the_texts_of_large_rows_are_made_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    texts_of = json_records_module.object_texts

    def written(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
        seen.append(len(columns[0]))
        return texts_of(names, columns)

    monkeypatch.setattr(json_records_module, "object_texts", written)
    monkeypatch.setattr(json_records_module, "SLICE_BYTES", 10_000)
    large = table_of(" | ".join(f"+I {key} {'x' * 1000}" for key in range(100)))
    assert len(list(json_records(large, DEBEZIUM_FORMAT, ["k"], size_bytes_max=100_000))) == 100
    assert max(seen) <= 10
