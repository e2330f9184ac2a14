"""Sort compaction: the same rows as before, in files of which a filter reads few."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from freshet import AddColumn, Catalog, InvalidRequestError, Table
from freshet.storage.io.env import CrashPoint
from freshet.storage.maintenance import sort_compaction
from freshet.storage.maintenance.sort_compaction import SortStrategy
from freshet.storage.maintenance.table_compaction import CompactionProgress

SMALL = {"bucket": "-1", "target-file-size": "8 kb", "file.compression": "none", "parquet.enable.dictionary": "false"}


def a_table(
    folder: Path, schema: Mapping[str, str], options: Mapping[str, str] = SMALL, keys: Sequence[str] = ()
) -> Table:
    return Catalog(str(folder)).create_table("db.t", schema=schema, partition_keys=keys, options=options)


def points(folder: Path, rows: int = 40_000, **options: str) -> Table:
    """Points scattered over a plane, in ten commits."""
    table = a_table(folder, {"x": "BIGINT", "y": "BIGINT", "name": "STRING"}, {**SMALL, **options})
    chance = np.random.default_rng(3)
    with table.writer("w") as writer:
        for _ in range(10):
            x, y = chance.integers(0, 1_000_000, (2, rows // 10))
            writer.write(
                pa.table({"x": x, "y": y, "name": [f"{a}/{b}" for a, b in zip(x.tolist(), y.tolist(), strict=True)]})
            )
            writer.commit()
    return table


def held(table: Table) -> Counter[str]:
    return Counter(str(row) for row in table.scan().to_arrow().to_pylist())


def files_read(table: Table, text: str) -> float:
    """Share of the files that a scan with this filter reads."""
    read = sum(len(split.files) for split in table.scan(filter=text).plan())
    return read / len(table.files())


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("strategy", "by_x", "by_y"), [("order", 0.06, 1.0), ("zorder", 0.35, 0.35), ("hilbert", 0.35, 0.35)]
)
def test_filters_read_few_files(tmp_path: Path, strategy: str, by_x: float, by_y: float) -> None:
    table = points(tmp_path)
    before = held(table)
    assert files_read(table, "x BETWEEN 500000 AND 501000") > 0.9
    result = table.sort_compact(["x", "y"], strategy)
    assert held(table) == before
    assert [snapshot.commit_kind for snapshot in result.snapshots] == ["COMPACT"]
    assert len(table.files()) > 30
    assert files_read(table, "x BETWEEN 500000 AND 501000") <= by_x
    assert files_read(table, "y BETWEEN 500000 AND 501000") <= by_y
    found = table.scan(filter="x BETWEEN 500000 AND 501000 AND y < 300000").to_arrow()
    assert found.num_rows == sum(
        500000 <= x <= 501000 and y < 300000
        for x, y in zip(*(table.scan().to_arrow()[name].to_pylist() for name in "xy"), strict=True)
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("strategy", SortStrategy)
def test_rows_that_do_not_fit_into_memory(tmp_path: Path, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort_compaction, "BATCH_ROWS", 1000)
    table = points(tmp_path, **{"write-buffer-size": "256 kb"})
    straight = points(tmp_path / "straight")
    before = held(table)
    table.sort_compact(["x", "y"], strategy)
    straight.sort_compact(["x", "y"], strategy)
    assert held(table) == before
    names = ["x", "y"]
    rows, wanted = (each.scan().to_arrow().select(names) for each in (table, straight))
    if strategy == SortStrategy.ORDER:
        assert rows == wanted.sort_by([("x", "ascending"), ("y", "ascending")]).combine_chunks() or rows.equals(wanted)
    share, as_wanted = (files_read(each, "x < 1000") for each in (table, straight))
    assert share <= as_wanted + 0.02


VALUES: Mapping[str, Sequence[Any]] = {
    "BOOLEAN": [True, False, None],
    "TINYINT": [-3, 0, 5, None],
    "FLOAT": [1.5, float("nan"), float("inf"), -0.0, 0.0, None],
    "DECIMAL(30,2)": [Decimal("12.30"), Decimal("-5.00"), None],
    "STRING": ["", "a", "b" * 100, "é", None],
    "BYTES": [b"", b"\xff", b"\x00", None],
    "DATE": [datetime(2026, 1, 1).date(), datetime(1969, 1, 1).date(), None],
    "TIMESTAMP(6)": [datetime(2026, 1, 1, 3), datetime(1, 1, 1), None],
    "TIME(3)": [datetime(2026, 1, 1, 3).time(), None],
}


@pytest.mark.few(12)
@pytest.mark.parametrize("strategy", SortStrategy)
@pytest.mark.parametrize("sql_type", VALUES)
def test_columns_of_every_type(tmp_path: Path, sql_type: str, strategy: str) -> None:
    table = a_table(tmp_path, {"c": sql_type, "n": "INT"})
    chance = random.Random(sql_type)
    with table.writer("w") as writer:
        for _ in range(3):
            values = [chance.choice(VALUES[sql_type]) for _ in range(50)]
            column = pa.array(values, table.arrow_schema.field("c").type)
            writer.write(pa.table({"c": column, "n": pa.array([chance.randrange(5) for _ in values], pa.int32())}))
            writer.commit()
    before = held(table)
    table.sort_compact(["c", "n"], strategy)
    assert held(table) == before
    if strategy == SortStrategy.ORDER:
        values = table.scan().to_arrow()["c"].to_pylist()
        nulls = values.count(None)
        assert all(value is None for value in values[:nulls]), "NULL comes first"
        kept = [value for value in values[nulls:] if value == value]
        assert kept == sorted(kept)


def test_nothing_but_equal_rows(tmp_path: Path) -> None:
    table = a_table(tmp_path, {"x": "INT", "y": "INT"})
    with table.writer("w") as writer:
        writer.write({"x": [7] * 100, "y": [None] * 100})
        writer.commit()
    for strategy in SortStrategy:
        table.sort_compact(["y", "x"], strategy)
    assert held(table) == Counter({str({"x": 7, "y": None}): 100})


def test_an_empty_table(tmp_path: Path) -> None:
    assert a_table(tmp_path, {"x": "INT"}).sort_compact(["x"]).snapshots == ()


def test_partitions_one_by_one(tmp_path: Path) -> None:
    table = a_table(tmp_path, {"dt": "STRING", "x": "INT"}, keys=["dt"])
    with table.writer("w") as writer:
        for _ in range(2):
            writer.write(pa.table({"dt": ["a", "b"] * 50, "x": pa.array(range(100, 0, -1), pa.int32())}))
            writer.commit()
    before = held(table)
    seen: list[CompactionProgress] = []
    result = table.sort_compact(["x"], partition={"dt": "b"}, progress=seen.append)
    assert (len(result.snapshots), result.buckets_done) == (1, 1)
    assert [step.buckets_done for step in seen] == [0, 1]
    assert seen[-1].bytes_done == seen[-1].bytes_planned > 0
    assert {table.engine.partition_path(entry.partition) for entry in table.files() if entry.file.file_source == 1} == {
        "dt=b"
    }
    assert held(table) == before
    assert len(table.sort_compact(["x"]).snapshots) == 2


def test_rows_appended_meanwhile_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = points(tmp_path, 1000)
    before = held(table)
    other = Table.open(table.location)

    def append(env: object, point: CrashPoint) -> None:
        if point is CrashPoint.COMPACT_OUTPUT_WRITTEN:
            with other.writer("meanwhile") as writer:
                writer.write({"x": [1], "y": [2], "name": ["new"]})
                writer.commit()

    monkeypatch.setattr(type(table.store.env), "reach", append)
    result = table.sort_compact(["x"])
    assert result.aborted_compactions == ()
    assert held(table) - before == Counter({str({"x": 1, "y": 2, "name": "new"}): 1})
    assert before - held(table) == Counter()


def test_a_sort_is_dropped_where_another_writer_rewrote_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = points(tmp_path, 1000)
    before = held(table)
    quicker = [Table.open(table.location)]

    def compact(env: object, point: CrashPoint) -> None:
        if point is CrashPoint.COMPACT_OUTPUT_WRITTEN and quicker:
            quicker.pop().sort_compact(["y"])

    monkeypatch.setattr(type(table.store.env), "reach", compact)
    result = table.sort_compact(["x"])
    assert result.buckets_aborted == 1
    assert held(table) == before
    live = {entry.file.file_name for entry in table.files()}
    named = {entry.file.file_name for snapshot in table.snapshots() for entry in table.files(snapshot_id=snapshot.id)}
    assert {path.name for path in Path(table.location).rglob("data-*")} == named >= live


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"order_by": []}, "name the columns"),
        ({"order_by": ["z"]}, "it has no column 'z'; its columns are x, a"),
        ({"order_by": ["a"]}, "column 'a' is ARRAY<INT>, which has no order"),
        ({"order_by": ["x", "x"]}, "name each column once"),
        ({"order_by": ["x"], "strategy": "z"}, "there are order, zorder, hilbert"),
        ({"order_by": ["x"], "partition": {"dt": "1"}}, "has no partition key 'dt'"),
    ],
)
def test_what_cannot_be_sorted(tmp_path: Path, call: Mapping[str, Any], message: str) -> None:
    table = a_table(tmp_path, {"x": "INT", "a": "ARRAY<INT>"})
    with pytest.raises(InvalidRequestError, match=message):
        table.sort_compact(**call)


@pytest.mark.parametrize("options", [{"bucket": "2", "bucket-key": "x"}, {"bucket": "1", "keyed": "yes"}])
def test_tables_with_an_order_of_their_own(tmp_path: Path, options: dict[str, str]) -> None:
    keys = ["x"] if options.pop("keyed", None) else []
    table = Catalog(str(tmp_path)).create_table("db.t", schema={"x": "INT"}, primary_keys=keys, options=options)
    with pytest.raises(InvalidRequestError, match="only append tables without buckets"):
        table.sort_compact(["x"])


def test_columns_of_a_later_schema_are_kept(tmp_path: Path) -> None:
    """The object that sorts was opened before the table got another column."""
    table = a_table(tmp_path, {"x": "BIGINT"})
    changed = table.alter(AddColumn("y", "BIGINT"))
    with changed.writer("w") as writer:
        writer.write(pa.table({"x": [2, 1], "y": [20, 10]}))
        writer.commit()
    assert table.sort_compact(["x"]).buckets_done == 1
    assert changed.scan().to_arrow().to_pydict() == {"x": [1, 2], "y": [10, 20]}
