"""Scans by the indexes of data files: which files are read, equal rows with and without, damage, changed columns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet import AddColumn, Catalog, ChangeType, DropColumn, RenameColumn, ResetOption, SetOption
from freshet.storage.codec.file_index import INDEX_SUFFIX, decode_file_index
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.filters.column import col
from freshet.storage.lookup.lookup_metrics import LookupMetrics
from freshet.storage.table import Table
from tests.kit.hypothesis_profile import examples

BLOOM = {"file-index.bloom-filter.columns": "k,v", "file-index.bloom-filter.v.items": "200"}


def create(path: Path, options: dict[str, str], *, keyed: bool = False, **more: str) -> Table:
    schema = {"k": "BIGINT NOT NULL", "v": "STRING", "n": "INT"} | more
    keys = ["k"] if keyed else []
    bucket = {"bucket": "1", "write-only": "true"} if keyed else {}
    return Catalog(str(path)).create_table("db.t", schema=schema, primary_keys=keys, options=bucket | options)


def write(table: Table, rows: Sequence[dict[str, Any]]) -> None:
    with table.writer("w") as writer:
        writer.write(list(rows))
        writer.commit()


def files_read(table: Table, predicate: Any) -> int:
    return sum(len(split.files) for split in table.scan(filter=predicate).plan())


def rows(table: Table, predicate: Any) -> list[dict[str, Any]]:
    return sorted(table.scan(filter=predicate).to_arrow().to_pylist(), key=lambda row: (row["k"], str(row)))


@pytest.mark.few(2)
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("threshold", ["0 b", "10 mb"])
def test_a_value_is_looked_for_in_the_files_that_may_have_it(keyed: bool, threshold: str, tmp_path: Path) -> None:
    """Keys of all files overlap; one of 20 has the key, and the value."""
    table = create(tmp_path, {**BLOOM, "file-index.in-manifest-threshold": threshold}, keyed=keyed)
    for number in range(20):
        write(table, [{"k": key * 20 + number, "v": f"value {key * 20 + number}", "n": number} for key in range(50)])
    beside = list(Path(table.location).rglob(f"*{INDEX_SUFFIX}"))
    assert len(beside) == (20 if threshold == "0 b" else 0)
    assert all(bool(entry.file.embedded_index) is not bool(beside) for entry in table.files())
    assert rows(table, col("k") == 407) == [{"k": 407, "v": "value 407", "n": 7}]
    assert files_read(table, col("k") == 407) <= 5
    assert files_read(table, col("k").is_in([407, 408])) <= 8
    assert files_read(table.with_options({"file-index.read.enabled": "false"}), col("k") == 407) == 20
    if not keyed:
        assert files_read(table, col("v") == "value 407") <= 5
        assert files_read(table, (col("v") == "value 407") | (col("n") == 3)) <= 6
    assert rows(table, col("v") == "value 407") == [{"k": 407, "v": "value 407", "n": 7}]
    assert files_read(table, col("v") != "value 407") == 20


def test_a_key_is_looked_up_in_the_files_that_may_have_it(tmp_path: Path) -> None:
    options = {"file-index.bloom-filter.columns": "k", "file-index.bloom-filter.k.fpp": "0.001"}
    table = create(tmp_path, options | {"file-index.bloom-filter.k.items": "100"}, keyed=True)
    for number in range(60):
        write(table, [{"k": key * 60 + number, "v": f"{key}", "n": number} for key in range(20)])
    found = []
    for options in ({}, {"file-index.read.enabled": "false"}):
        asked = table.with_options(options)
        metrics = LookupMetrics()
        rows = asked.lookup(pa.table({"k": [407, 408]}), metrics=metrics).by_key().to_pylist()
        assert [row["n"] for row in rows] == [47, 48]
        found.append(sum(metrics.counts().values()))
    assert found[0] * 10 < found[1], found


def test_bitmaps_know_all_values_and_nulls(tmp_path: Path) -> None:
    table = create(tmp_path, {"file-index.bitmap.columns": "v,n", "metadata.stats-mode": "none"})
    write(table, [{"k": 1, "v": "a", "n": 1}, {"k": 2, "v": "c", "n": 5}])
    write(table, [{"k": 3, "v": "b", "n": None}, {"k": 4, "v": None, "n": 9}])
    for predicate, count in (
        (col("v") == "b", 1),
        (col("v").is_in(["x", "y"]), 0),
        (col("v") > "c", 0),
        (col("v") >= "c", 1),
        (col("v") < "b", 1),
        (col("n") == 3, 0),
        (col("n") > 5, 1),
        (col("n").is_null(), 1),
        (col("v").is_null() | (col("n") == 1), 2),
        ((col("v") == "a") & (col("n") == 5), 0),  # each is in the first file, in different rows
        ((col("v") == "a") & (col("n") == 1), 1),
        ((col("v") == "a") & (col("n") == 9), 0),
    ):
        assert files_read(table, predicate) == count, predicate
    assert rows(table, col("n").is_null()) == [{"k": 3, "v": "b", "n": None}]


def test_a_key_of_an_overlapping_file_is_not_left_out_by_its_value(tmp_path: Path) -> None:
    """The newest row of a key has another value: its file must be read, or the old row would come back."""
    table = create(tmp_path, BLOOM, keyed=True)
    write(table, [{"k": 1, "v": "old", "n": 1}])
    write(table, [{"k": 1, "v": "new", "n": 2}])
    assert rows(table, col("v") == "old") == []
    assert rows(table, col("v") == "new") == [{"k": 1, "v": "new", "n": 2}]
    assert files_read(table, col("v") == "neither") == 0
    assert files_read(table, col("k") == 2) == 0


TYPES: Sequence[tuple[str, st.SearchStrategy[Any]]] = [
    ("SMALLINT", st.integers(-5, 5)),
    ("BIGINT", st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])),
    ("FLOAT", st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")])),
    ("DOUBLE", st.sampled_from([0.0, -0.0, 0.1, float("nan"), -float("inf")])),
    ("STRING", st.sampled_from(["", "a", "ä", "\0", "x" * 40, "😀"])),
    ("BYTES", st.sampled_from([b"", b"\0", b"\xff" * 9])),
    ("DATE", st.sampled_from([dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)])),
    ("TIMESTAMP(3)", st.sampled_from([dt.datetime(1969, 12, 31, 23, 59, 59, 999000), dt.datetime(2026, 1, 1)])),
    ("TIMESTAMP(6)", st.sampled_from([dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2026, 1, 1)])),
    ("TIME(3)", st.sampled_from([dt.time(0), dt.time(23, 59, 59, 999000)])),
]  # fmt: skip


@pytest.mark.few(5)
@pytest.mark.parametrize(("kind", "values"), TYPES, ids=[kind for kind, _ in TYPES])
@settings(max_examples=examples(15))
@given(data=st.data())
def test_rows_are_the_same_with_and_without_indexes(
    kind: str, values: st.SearchStrategy[Any], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    indexes = {"file-index.bloom-filter.columns": "x", "file-index.bloom-filter.x.items": "10"}
    if kind not in ("FLOAT", "DOUBLE", "BYTES"):
        indexes["file-index.bitmap.columns"] = "x"
    table = create(tmp_path_factory.mktemp("types"), indexes | {"metadata.stats-mode": "none"}, x=kind)
    listed = data.draw(st.lists(st.lists(st.none() | values, min_size=1, max_size=4), min_size=1, max_size=3))
    for number, drawn in enumerate(listed):
        write(table, [{"k": number, "v": "", "n": 0, "x": value} for value in drawn])
    plain = table.with_options({"file-index.read.enabled": "false"})
    asked = data.draw(values)
    for predicate in (
        col("x") == asked,
        col("x").is_in([asked]),
        col("x") < asked,
        col("x") >= asked,
        col("x").is_null(),
        ~(col("x") == asked),
    ):
        found, wanted = rows(table, predicate), rows(plain, predicate)
        assert str(found) == str(wanted), predicate


def test_columns_that_were_renamed_and_changed(tmp_path: Path) -> None:
    table = create(tmp_path, {"file-index.bitmap.columns": "n", "file-index.bloom-filter.columns": "n"})
    write(table, [{"k": 1, "v": "a", "n": 1}])
    table = table.alter(RenameColumn("n", "m"), ChangeType("m", "BIGINT"), AddColumn("n", "INT"))
    predicate = col("m") == 2**40
    assert files_read(table, predicate) == 0
    assert files_read(table, col("m") == 1) == 1
    assert table.scan(filter=col("n").is_null()).to_arrow().num_rows == 1


def test_options_follow_a_column_that_is_renamed(tmp_path: Path) -> None:
    options = {"file-index.bloom-filter.columns": "v,n", "file-index.bloom-filter.n.items": "10"}
    table = create(tmp_path, options | {"file-index.range-bitmap.columns": "n"})
    write(table, [{"k": 1, "v": "a", "n": 1}])
    table = table.alter(RenameColumn("n", "m"))
    with table.writer("w") as writer:
        writer.write(pa.table({"k": [2], "v": ["b"], "m": pa.array([2], pa.int32())}))
        writer.commit()
    assert table.options.given["file-index.bloom-filter.columns"] == "v,m"
    assert table.options.given["file-index.bloom-filter.m.items"] == "10"
    assert table.options.given["file-index.range-bitmap.columns"] == "m"
    assert [files_read(table, col("m") == number) for number in (1, 2, 3)] == [1, 1, 0]
    with pytest.raises(InvalidRequestError, match="option 'file-index.bloom-filter.columns' names it"):
        table.alter(DropColumn("m"))


@pytest.mark.parametrize("damage", [b"", b"not an index at all, but long enough to be read", None])
def test_an_index_that_is_missing_or_damaged_is_said_and_rows_are_read(
    damage: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = create(tmp_path, {**BLOOM, "file-index.in-manifest-threshold": "0 b"})
    write(table, [{"k": 1, "v": "a", "n": 1}])
    (index,) = Path(table.location).rglob(f"*{INDEX_SUFFIX}")
    if damage is None:
        index.unlink()
    else:
        index.write_bytes(damage)
    table = Catalog(str(tmp_path)).table("db.t")
    assert files_read(table, col("k") == 3) in (0, 1)
    assert rows(table, col("v") == "a") == [{"k": 1, "v": "a", "n": 1}]
    assert "its rows are read" in caplog.text
    if damage is None:
        (finding,) = table.check().damage
        assert (finding.invariant, finding.where) == ("recorded_files_are_there", str(index))
        assert "no row is missing" in finding.remedy
        assert "freshet compact WAREHOUSE TABLE --full" in finding.remedy
        assert "backup" not in finding.remedy


def test_compactions_write_indexes_and_expiry_takes_them_away(tmp_path: Path) -> None:
    options = {**BLOOM, "file-index.in-manifest-threshold": "0 b", "snapshot.num-retained.min": "1"}
    table = create(tmp_path, options | {"snapshot.num-retained.max": "1"}, keyed=True)
    for number in range(3):
        write(table, [{"k": key, "v": f"{key} {number}", "n": number} for key in range(10)])
    table.compact(full=True)
    write(table, [{"k": 100, "v": "more", "n": 1}])
    table.expire_snapshots()
    named = {name for entry in table.files() for name in entry.file.extra_files}
    there = {path.name for path in Path(table.location).rglob(f"*{INDEX_SUFFIX}")}
    assert there == named
    assert len(named) == 2
    assert not table.check().damage
    assert files_read(table, col("k") == 5) == 1


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "append"])
def test_a_compaction_in_full_writes_a_lost_index_again(keyed: bool, tmp_path: Path) -> None:
    """With the option that `check-table` names: there is one file only, and nothing to merge."""
    table = create(tmp_path, {**BLOOM, "file-index.in-manifest-threshold": "0 b"}, keyed=keyed)
    write(table, [{"k": 1, "v": "a", "n": 1}])
    table.compact(full=True)
    (lost,) = (entry.file.extra_files[0] for entry in table.files())
    next(Path(table.location).rglob(lost)).unlink()
    (finding,) = table.check().damage
    assert finding.where.endswith(lost)
    assert "compaction.force-rewrite-all-files=true" in finding.remedy
    assert not table.compact(full=True).snapshots, "all is compacted already"
    table.with_options({"compaction.force-rewrite-all-files": "true"}).compact(full=True)
    assert not table.check().damage
    assert rows(table, col("v") == "a") == [{"k": 1, "v": "a", "n": 1}]
    assert files_read(table, col("k") == 3) == 0


def test_an_aborted_write_leaves_no_index(tmp_path: Path) -> None:
    table = create(tmp_path, {**BLOOM, "file-index.in-manifest-threshold": "0 b", "write-buffer-size": "256 kb"})
    with table.writer("w") as writer:
        for start in range(0, 60_000, 10_000):
            writer.write(pa.table({"k": range(start, start + 10_000), "v": ["x" * 50] * 10_000, "n": [1] * 10_000}))
        writer.abort()
    assert not list(Path(table.location).rglob(f"*{INDEX_SUFFIX}"))


def test_the_indexes_of_a_file_have_their_columns(tmp_path: Path) -> None:
    table = create(tmp_path, {"file-index.bitmap.columns": "n", "file-index.bloom-filter.columns": "v,n"})
    write(table, [{"k": 1, "v": None, "n": 3}])
    (entry,) = table.files()
    found = Path(table.location).rglob(f"*{INDEX_SUFFIX}")
    indexes = decode_file_index(next(iter(found)).read_bytes())
    assert {name: sorted(kinds) for name, kinds in indexes.items()} == {
        "n": ["bitmap", "bloom-filter"],
        "v": ["bloom-filter"],
    }
    assert indexes["v"]["bloom-filter"] is None, "no value, so no filter"
    assert entry.file.extra_files == (f"{entry.file.file_name}{INDEX_SUFFIX}",)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"file-index.bloom-filter.columns": "gone"}, InvalidRequestError, "'gone', which is not there"),
        ({"file-index.bloom-filter.columns": "d"}, UnsupportedFeatureError, "no such index"),
        ({"file-index.bitmap.columns": "d"}, UnsupportedFeatureError, "no such index"),
        ({"file-index.bloom-filter.columns": "k", "file-index.bloom-filter.k.fpp": "2"}, InvalidRequestError, "fpp"),
        (
            {"file-index.bloom-filter.columns": "k", "file-index.bloom-filter.k.items": "x"},
            InvalidRequestError,
            "items",
        ),
        (
            {"file-index.bloom-filter.columns": "k", "file-index.bloom-filter.n.items": "9"},
            InvalidRequestError,
            "of a column that has no such index",
        ),
        ({"file-index.bitmap.columns": ""}, InvalidRequestError, "has an empty name"),
        ({"file-index.bitmap.columns": "k,,v"}, InvalidRequestError, "has an empty name"),
        ({"file-index.bsi.columns": "k"}, UnsupportedFeatureError, "range-bitmap does what bsi did"),
        ({"file-index.bitmap.columns": "m[a]"}, UnsupportedFeatureError, "a value in a map"),
        (
            {"file-index.bloom-filter.columns": "k", "file-index.bloom-filter.k.fp": "0.1"},
            InvalidRequestError,
            "has items, fpp",
        ),
        (
            {"file-index.bitmap.columns": "k", "file-index.bitmap.k.version": "1"},
            UnsupportedFeatureError,
            "in version 2",
        ),
        (
            {"file-index.range-bitmap.columns": "k", "file-index.range-bitmap.k.chunk-size": "some"},
            InvalidRequestError,
            "a size such as",
        ),
    ],
)
def test_indexes_that_cannot_be_are_refused(
    options: dict[str, str], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        create(tmp_path, options, d="DECIMAL(10, 2)", m="MAP<STRING, INT>")


def test_parameters_go_with_their_indexes(tmp_path: Path) -> None:
    """Apache Paimon does not open a table that has a parameter of a column without an index."""
    columns, items = "file-index.bloom-filter.columns", "file-index.bloom-filter.v.items"
    table = create(tmp_path, {columns: "v", items: "9", "file-index.in-manifest-threshold": "1 kb"})
    for change in (ResetOption(columns), SetOption(columns, "n")):
        with pytest.raises(InvalidRequestError, match=f"reset '{items}'"):
            table.alter(change)
    table = table.alter(ResetOption(columns), ResetOption(items))
    with pytest.raises(InvalidRequestError, match=f"option '{items}' is of a column"):
        table.alter(SetOption(items, "9"))


@pytest.mark.parametrize("threshold", ["0 b", "1 mb"])
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "append"])
def test_changes_are_read_from_the_files_that_may_have_them(
    threshold: str, keyed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"file-index.bitmap.columns": "v", "file-index.in-manifest-threshold": threshold}
    options |= {"metadata.stats-mode": "none"} | ({"changelog-producer": "input"} if keyed else {})
    table = create(tmp_path, options, keyed=keyed)
    for number in range(4):
        write(table, [{"k": number, "v": f"value {number}", "n": number}])
    stream = table.stream(scan_mode="from-snapshot", from_snapshot=1, filter=col("v") == "value 2", max_wait_s=0)
    read: list[str] = []

    def noting(*source: Any, **more: Any) -> Any:
        read.append(source[3].file_name)
        return DataFileRead(*source, **more)

    monkeypatch.setattr("freshet.storage.changes.reader.DataFileRead", noting)
    assert [row["k"] for batch in stream for row in batch.to_pylist()] == [2]
    assert len(read) == (4 if keyed else 1), "changelog files have no indexes"
