"""Scans of real files, against a dict: merging, filters, projection, limit, partitions, buckets, memory."""

from __future__ import annotations

import dataclasses
import datetime
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.exceptions import CorruptDataError, InvalidRequestError, NotFoundError
from freshet.storage.filters.column import col
from freshet.storage.filters.filter_text import to_predicate
from freshet.storage.filters.predicate import Predicate
from freshet.storage.io.env import local_env
from freshet.storage.model.data_type import DataField, parse_data_type
from tests.kit.oracle import DeduplicateOracle, Row
from tests.storage.scan.scan_tables import PlacedTable

COLUMNS = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        ("v", pa.int32()),
        ("s", pa.string()),
        ("ts", pa.timestamp("us")),
        ("l", pa.list_(pa.int32())),
    ]
)


def row(key: int, value: int | None = 0, kind: str = "+I", **more: Any) -> dict[str, Any]:
    return {"k": key, "v": value, "s": f"s{key}", "_ROW_KIND": kind, **more}


@pytest.fixture
def table(tmp_path: Path) -> PlacedTable:
    return PlacedTable(tmp_path, COLUMNS, keys=["k"])


def values(rows: list[dict[str, Any]]) -> dict[int, Any]:
    return {item["k"]: item["v"] for item in rows}


def test_empty_table(table: PlacedTable) -> None:
    scan = table.scan()
    assert scan.snapshot is None
    assert scan.plan() == []
    result = scan.to_arrow()
    assert result.num_rows == 0
    assert result.schema.names == ["k", "v", "s", "ts", "l"]
    assert list(scan.to_batches()) == []


def test_newest_rows_are_read_and_deletes_are_gone(table: PlacedTable) -> None:
    table.place([row(i, 1) for i in range(10)], level=5)
    table.place([row(2, 2, "+U"), row(3, kind="-D"), row(4, kind="-U"), row(50, 5)])
    table.place([row(3, 7), row(5, kind="-D"), row(99, kind="-D")])
    expected = {0: 1, 1: 1, 2: 2, 3: 7, 6: 1, 7: 1, 8: 1, 9: 1, 50: 5}
    assert values(table.rows()) == expected
    assert [item["k"] for item in table.rows()] == sorted(expected)


def test_raw_split_and_lone_delete(table: PlacedTable) -> None:
    table.place([row(1, 1), row(2, 2)], level=5)
    (split,) = table.scan().plan()
    assert split.raw_convertible
    table.place([row(7, kind="-D")])
    assert values(table.rows()) == {1: 1, 2: 2}
    assert not any(item.raw_convertible for item in table.scan().plan())


@pytest.mark.parametrize(
    "predicate",
    [
        col("k") == 3,
        col("k").is_in([3, 4, 1000]),
        col("k") > 6,
        col("v") == 1,
        col("v") == 2,
        col("v").is_null(),
        col("s") == "s4",
        (col("k") < 5) & (col("v") == 2),
        (col("k") < 2) | (col("v") == 2),
        col("s").starts_with("s1"),
        ~(col("v") == 1),
    ],
    ids=str,
)
def test_filters_never_bring_old_rows_back(table: PlacedTable, predicate: Predicate) -> None:
    table.place([row(i, 1) for i in range(20)], level=5)
    table.place([row(i, 2, "+U") for i in range(0, 20, 2)])
    table.place([row(4, None, "+U"), row(6, kind="-D"), row(3, kind="-D")])
    everything = table.scan().to_arrow()
    expected = everything.filter(predicate.bind(everything.schema).to_arrow())
    assert table.scan(filter=predicate).to_arrow().to_pylist() == expected.to_pylist()
    only = table.scan(filter=predicate, columns=["ts", "s"]).to_arrow()
    assert only.to_pylist() == expected.select(["ts", "s"]).to_pylist()


def test_filter_as_a_list(table: PlacedTable) -> None:
    table.place([row(i, i) for i in range(5)])
    assert values(table.rows(filter=[("k", ">", 1), ("v", "<", 4)])) == {2: 2, 3: 3}


def test_projection_order_and_types(table: PlacedTable) -> None:
    table.place([row(1, 1, l=[1, None]), row(2, None, l=None)])
    result = table.scan(columns=["l", "k"]).to_arrow()
    assert result.schema == pa.schema([COLUMNS.field("l"), COLUMNS.field("k")])
    assert result.to_pylist() == [{"l": [1, None], "k": 1}, {"l": None, "k": 2}]


def test_limit_stops_reading(table: PlacedTable) -> None:
    table.place([row(i) for i in range(100)], level=5)
    table.place([row(i, 1) for i in range(50)])
    for limit in (0, 1, 7, 100, 1000):
        assert len(table.rows(limit=limit)) == min(limit, 100)
        assert sum(batch.num_rows for batch in table.scan(limit=limit).to_batches()) == min(limit, 100)
    assert len(table.rows(limit=3, filter=col("v") == 1)) == 3
    reader = table.scan(limit=5).to_reader()
    assert reader.schema == table.scan().schema
    assert reader.read_all().num_rows == 5


def test_an_abandoned_scan_closes_its_files(tmp_path: Path) -> None:
    table = PlacedTable(tmp_path, COLUMNS, keys=["k"], env=local_env())
    for _ in range(4):
        table.place([row(i) for i in range(30_000)])
    batches = table.scan().to_batches()
    assert next(batches).num_rows
    batches.close()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        opened = table.scan().to_batches()
        next(opened)
        opened.close()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_buckets_and_partitions(tmp_path: Path) -> None:
    columns = pa.schema([pa.field("p", pa.date32()), pa.field("k", pa.int32(), nullable=False), ("v", pa.int32())])
    table = PlacedTable(tmp_path, columns, keys=["p", "k"], partitions=["p"], options={"bucket": "3"})
    days = [datetime.date(2026, 1, day) for day in (1, 2, 3)]
    rows = [{"p": p, "k": k, "v": 1} for p in days for k in range(12)]
    table.place(rows)
    table.place([{"p": days[1], "k": 5, "v": 2}])

    def found(**request: Any) -> set[tuple[Any, ...]]:
        return {(item["p"], item["k"], item["v"]) for item in table.rows(**request)}

    expected = {(item["p"], item["k"], item["v"]) for item in rows} - {(days[1], 5, 1)} | {(days[1], 5, 2)}
    assert found() == expected
    assert found(filter=col("p") == days[1]) == {item for item in expected if item[0] == days[1]}
    assert found(filter=col("p") > days[1]) == {item for item in expected if item[0] == days[2]}
    mixed = (col("p") == days[1]) | (col("v") == 2)
    assert found(filter=mixed) == {item for item in expected if item[0] == days[1]}
    assert found(filter=col("k") == 5) == {item for item in expected if item[1] == 5}
    assert len({split.partition for split in table.scan(filter=col("p") == days[0]).plan()}) == 1
    assert len(table.scan(filter=(col("p") == days[0]) & (col("k") == 5)).plan()) == 1
    assert len(table.scan(filter=col("k") == 5).plan()) == len(days)


def test_odd_partition_values(tmp_path: Path) -> None:
    columns = pa.schema([("p", pa.string()), ("v", pa.int32())])
    table = PlacedTable(tmp_path, columns, partitions=["p"])
    names = ["a", None, "", " ", "x/y=z%", "é"]
    for value, name in enumerate(names):
        table.place([{"p": name, "v": value}])
    assert {item["p"]: item["v"] for item in table.rows()} == {name: value for value, name in enumerate(names)}
    assert table.rows(filter=col("p").is_null()) == [{"p": None, "v": 1}]
    assert table.rows(filter=col("p") == "", columns=["v"]) == [{"v": 2}]
    assert len(table.scan(filter=col("p") == "x/y=z%").plan()) == 1


def _moment(millis: int) -> datetime.datetime:
    return datetime.datetime(2026, 1, 1) + datetime.timedelta(milliseconds=millis)


@pytest.mark.parametrize("is_keyed", [True, False])
def test_literals_finer_than_the_column_at_every_level_of_pruning(tmp_path: Path, is_keyed: bool) -> None:
    """Partitions, buckets, files and row groups; the oracle is Python on all rows."""
    columns = pa.schema(
        [
            pa.field("p", pa.int8(), nullable=False),
            pa.field("at", pa.timestamp("ms"), nullable=False),
            ("v", pa.int32()),
        ]
    )
    options = {"bucket": "3", "bucket-key": "at", "file.block-size": "1 kb"}
    table = PlacedTable(tmp_path, columns, keys=["p", "at"] if is_keyed else [], partitions=["p"], options=options)
    rows = [{"p": p, "at": _moment(10 * i), "v": i} for p in (1, 2, 127) for i in range(200)]
    for part in (rows[::2], rows[1::2]):
        table.place(part)
    fine = _moment(1000) + datetime.timedelta(microseconds=1)
    wanted = [
        ("at < TIMESTAMP '2026-01-01 00:00:01.000001'", lambda r: r["at"] < fine),
        ("at >= TIMESTAMP '2026-01-01 00:00:01.000001' AND p = 2.0", lambda r: r["at"] >= fine and r["p"] == 2),
        (col("at") == fine, lambda r: False),
        (col("at") != fine, lambda r: True),
        (col("at").is_in([fine, _moment(20)]), lambda r: r["at"] == _moment(20)),
        (col("at") == datetime.date(2026, 1, 1), lambda r: r["at"] == _moment(0)),
        (col("p") < 1.5, lambda r: r["p"] == 1),
        (col("p") < 300, lambda r: True),
        ("p > 126.5 AND v = 3", lambda r: r["p"] == 127 and r["v"] == 3),
        ("p = 1.5 OR v = 3.0", lambda r: r["v"] == 3),
        ("NOT (v <= 197.5)", lambda r: r["v"] > 197),
    ]
    for condition, holds in wanted:
        found = table.rows(filter=to_predicate(condition))
        assert sorted((r["p"], r["v"]) for r in found) == [(r["p"], r["v"]) for r in rows if holds(r)], condition

    def splits(condition: str) -> int:
        return len(table.scan(filter=to_predicate(condition)).plan())

    assert splits("at IS NOT NULL") == 9
    assert splits("p = 1.5") == splits("p > 300") == splits("at = TIMESTAMP '2026-01-01 00:00:01.000001'") == 0
    assert splits("p < 1.5") == 3
    assert splits("at = TIMESTAMP '2026-01-01 00:00:01.0000' AND p <= 2.5") == 2
    assert splits("v > 199.5") == 0


def test_append_table(tmp_path: Path) -> None:
    columns = pa.schema([("a", pa.int32()), ("b", pa.string())])
    table = PlacedTable(tmp_path, columns)
    table.place([{"a": 1, "b": "x"}, {"a": 1, "b": "x"}])
    table.place([{"a": 2, "b": None}])
    assert table.rows() == [{"a": 1, "b": "x"}, {"a": 1, "b": "x"}, {"a": 2, "b": None}]
    assert table.rows(columns=["b"], filter=col("a") == 2) == [{"b": None}]
    (split,) = table.scan(filter=col("a") == 2).plan()
    assert len(split.files) == 1
    assert table.rows(limit=2) == table.rows()[:2]


def test_time_travel_reads_old_rows(table: PlacedTable) -> None:
    snapshots = [table.place([row(1, number)]) for number in range(3)]
    for number, snapshot in enumerate(snapshots):
        assert values(table.rows(snapshot_id=snapshot.id)) == {1: number}
    assert values(table.rows(timestamp_ms=snapshots[-1].time_ms + 10_000)) == {1: 2}
    assert table.scan(snapshot_id=1).snapshot == snapshots[0]
    assert values(table.rows(snapshot=snapshots[1])) == {1: 1}
    with pytest.raises(InvalidRequestError, match="not both"):
        table.scan(snapshot=snapshots[1], snapshot_id=1)
    with pytest.raises(NotFoundError, match="snapshot 9 does not exist"):
        table.scan(snapshot_id=9)


def test_travelling_shows_the_columns_of_that_time(table: PlacedTable) -> None:
    first = table.place([row(1, 1), row(2, 2)])
    evolved = dataclasses.replace(
        table.store.schema,
        id=1,
        highest_field_id=99,
        fields=(
            *(f for f in table.store.schema.fields if f.name not in ("s", "v")),
            dataclasses.replace(table.store.schema.by_name["v"], name="value", type=parse_data_type("BIGINT")),
            DataField(99, "s", parse_data_type("INT")),
        ),
    )
    assert table.store.claims.claim_schema(evolved)
    table.place([{"k": 2, "value": 2**40, "s": 7}])
    assert table.rows(columns=["k", "value", "s"]) == [
        {"k": 1, "value": 1, "s": None},
        {"k": 2, "value": 2**40, "s": 7},
    ]
    assert [item["k"] for item in table.rows(filter=col("value") > 1)] == [2]
    assert [item["k"] for item in table.rows(filter=col("s").is_null())] == [1]
    assert table.rows(snapshot_id=first.id, columns=["s", "v"]) == [{"s": "s1", "v": 1}, {"s": "s2", "v": 2}]
    assert table.rows(snapshot=first, columns=["s", "value"]) == [{"s": None, "value": 1}, {"s": None, "value": 2}]


def test_missing_file_is_named(table: PlacedTable) -> None:
    table.place([row(1)])
    (file,) = table.env.file_io.entries(f"{table.location}/bucket-0")
    table.env.file_io.delete(file.path)
    with pytest.raises(CorruptDataError, match=file.name):
        table.rows()


def test_batches_are_the_same_with_any_number_of_threads(tmp_path: Path) -> None:
    table = PlacedTable(tmp_path, COLUMNS, keys=["k"], options={"bucket": "2"})
    for commit in range(4):
        table.place([row(i, commit) for i in range(commit, 20_000, commit + 1)])
    results = [pa.Table.from_batches(table.scan(threads=threads).to_batches()).to_pylist() for threads in (1, 2, 3)]
    assert results[0] == results[1] == results[2] == table.rows()


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(6))
def test_random_histories(tmp_path: Path, seed: int) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    options = {"bucket": str(rng.choice([1, 3]))}
    descending = rng.random() < 0.5
    has_sequence = rng.random() < 0.6
    if has_sequence:
        options |= {"sequence.field": "v", "sequence.field.sort-order": "descending" if descending else "ascending"}
    table = PlacedTable(tmp_path, COLUMNS, keys=["k"], options=options)
    oracle = DeduplicateOracle(descending=descending)
    for commit in range(rng.randint(2, 7)):
        changes = [
            row(
                rng.randrange(40),
                rng.choice([None, 1, 2, 3]),
                rng.choice(["+I", "+I", "+U", "-D", "-U"]),
                s=str(commit),
            )
            for _ in range(rng.randint(1, 60))
        ]
        table.place(changes, level=5 if commit == 0 else 0)
        for item in changes:
            kind = ["+I", "-U", "+U", "-D"].index(item["_ROW_KIND"])
            oracle.write(Row(item["k"], kind, item, (item["v"],) if has_sequence else ()))
    expected = {visible.key: (visible.values["v"], visible.values["s"]) for visible in oracle.visible().values()}
    found = table.rows()
    assert {item["k"]: (item["v"], item["s"]) for item in found} == expected
    assert len(found) == len(expected)
    for predicate in (col("k") < 10, col("v") == 2, col("v").is_null() | (col("k") == 7)):
        whole = table.scan().to_arrow()
        wanted = whole.filter(predicate.bind(whole.schema).to_arrow()).to_pylist()
        assert table.rows(filter=predicate) == wanted
