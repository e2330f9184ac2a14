"""Batch frames into tables: what is there after each write, by a dict; numbers that are committed once; refusals."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from freshet import Catalog, InvalidRequestError, SetDefault, Table, WriteResult, register, write
from freshet.pipeline.spark.job import SparkJob
from freshet.storage.model.snapshot import CommitKind
from tests.kit.at_once import at_once
from tests.kit.paimon_judge import PaimonJudge

pytestmark = pytest.mark.spark

COLUMNS = {"id": "BIGINT NOT NULL", "day": "STRING", "n": "INT"}
Kind = tuple[dict[str, str], list[str], list[str]]
KINDS: dict[str, Kind] = {
    "fixed, lookup": ({"bucket": "2", "changelog-producer": "lookup"}, ["id", "day"], ["day"]),
    "dynamic": ({"dynamic-bucket.target-row-num": "5"}, ["id", "day"], ["day"]),
    "moving": ({"bucket": "-1"}, ["id"], ["day"]),
    "postponed": ({"bucket": "-2"}, ["id", "day"], ["day"]),
    "vectors": ({"bucket": "2", "deletion-vectors.enabled": "true"}, ["id", "day"], ["day"]),
    "full compaction": (
        {"bucket": "2", "changelog-producer": "full-compaction", "full-compaction.delta-commits": "2"},
        ["id", "day"],
        ["day"],
    ),
    "append with buckets": ({"bucket": "3", "bucket-key": "id"}, [], ["day"]),
    "append": ({"bucket": "-1"}, [], ["day"]),
}
QUICK = {"fixed, lookup", "moving"}
Rows = dict[tuple[int, str], int]


def _make(folder: Path, kind: Kind, name: str = "db.t") -> Table:
    options, keys, partitions = kind
    return Catalog(str(folder)).create_table(
        name, schema=COLUMNS, primary_keys=keys, partition_keys=partitions, options=options
    )


def _frame(spark: SparkSession, rows: Rows, **kinds: str) -> DataFrame:
    if not kinds:
        return spark.createDataFrame([(key, day, n) for (key, day), n in rows.items()], "ID int, day string, n int")
    lines = [(key, day, n, kinds.get(f"of_{key}", "+I")) for (key, day), n in rows.items()]
    return spark.createDataFrame(lines, "id long, day string, n int, _row_kind string")


def _held(table: Table) -> list[tuple[int, str, int]]:
    if table.options.has_postponed_buckets:
        table.compact()
    return sorted((row["id"], row["day"], row["n"]) for row in table.scan().to_arrow().to_pylist())


def _listed(rows: Rows) -> list[tuple[int, str, int]]:
    return sorted((key, day, n) for (key, day), n in rows.items())


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "kind", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in KINDS]
)
def test_what_is_there_after_each_write(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    table = _make(tmp_path, KINDS[kind])
    keyed = table.schema.has_primary_key
    want: Rows = {(key, f"d{key % 3}"): 1 for key in range(30)}
    assert write(_frame(spark, want), table) == WriteResult(30, tuple(s.id for s in table.snapshots()))
    assert _held(table) == _listed(want)
    if keyed:
        changed = {(key, f"d{key % 3}"): 2 for key in range(20, 40)}
        gone = (25, "d1")
        write(_frame(spark, changed | {gone: 0}, of_25="-D"), table, "upsert")
        want |= changed
        del want[gone]
        assert _held(table) == _listed(want)
    if kind == "moving":
        write(_frame(spark, {(0, "d2"): 9}), table, "upsert")
        del want[0, "d0"]
        want[0, "d2"] = 9
        assert _held(table) == _listed(want)
        with pytest.raises(InvalidRequestError, match="rows move between partitions"):
            write(_frame(spark, want), table, "overwrite")
    else:
        part = {(100, "d1"): 3, (101, "d1"): 3}
        result = write(_frame(spark, part), table, "overwrite")
        (made,) = [each for each in table.snapshots() if each.id == result.snapshot_id]
        assert (made.commit_kind, len(result.snapshot_ids)) == (CommitKind.OVERWRITE, 1)
        want = {key: n for key, n in want.items() if key[1] != "d1"} | part
        assert _held(table) == _listed(want)
    whole = {(7, "d0"): 4, (8, "d2"): 4}
    write(_frame(spark, whole), table, "overwrite", dynamic=False)
    assert _held(table) == _listed(whole)
    more = {(7, "d0"): 5, (9, "d1"): 5} if keyed else {(9, "d1"): 5}
    write(_frame(spark, more), table)
    assert _held(table) == _listed(whole | more)
    assert write(_frame(spark, {}), table) == WriteResult(0)
    assert table.check().damage == []


def test_a_number_is_committed_once(spark: SparkSession, tmp_path: Path) -> None:
    """By one job; what is written under a number that nobody can account for any more is refused."""
    table = _make(tmp_path, KINDS["append"])
    tracker = spark.sparkContext.statusTracker()

    def nightly(number: int, rows: int, **arguments: Any) -> tuple[WriteResult, int]:
        group = f"night-{number}-{rows}"
        spark.sparkContext.setJobGroup(group, group)
        try:
            frame = spark.range(rows).selectExpr("id", "'d' AS day", f"{number} AS n")
            result = write(
                frame, "db.t", warehouse=str(tmp_path), commit_user="nightly", identifier=number, **arguments
            )
        finally:
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        return result, len(tracker.getJobIdsForGroup(group))

    first, jobs = nightly(20261126, 3)
    assert (first, jobs) == (WriteResult(3, (1,)), 1)
    again, jobs = nightly(20261126, 5)
    assert (again, jobs) == (WriteResult(0, (1,), already_committed=True), 0)
    assert again.snapshot_id == 1
    assert nightly(20261128, 0)[0] == WriteResult(0, (2,)), "an empty night is committed: it was there"
    assert nightly(20261126, 3)[0].already_committed
    with pytest.raises(InvalidRequestError, match=r"20261127 nothing is known.*above 20261128"):
        nightly(20261127, 3)
    replaced, _ = nightly(20261129, 2, mode="overwrite", dynamic=False)
    assert replaced == WriteResult(2, (3,))
    assert nightly(20261129, 2, mode="overwrite", dynamic=False)[0].already_committed
    assert [row[0] for row in _held(table)] == [0, 1]


@pytest.mark.slow
def test_two_writes_at_the_same_time(spark: SparkSession, tmp_path: Path) -> None:
    """Of new keys in dynamic buckets, which makes one of them run its job again, and under one number."""
    table = _make(tmp_path, KINDS["dynamic"])
    write(_frame(spark, {(key, "d0"): 0 for key in range(5)}), table)
    results: list[WriteResult] = []

    def load(first: int) -> None:
        rows = {(key, "d0"): first for key in range(first, first + 20)}
        results.append(write(_frame(spark, rows), Catalog(str(tmp_path)).table("db.t")))
        results.append(write(_frame(spark, rows), table, commit_user="nightly", identifier=1))

    at_once([partial(load, first) for first in (100, 200)])
    assert sorted(result.rows for result in results) == [0, 20, 20, 20]
    assert [result.already_committed for result in results].count(True) == 1
    assert [row[0] for row in _held(table)] == [*range(5), *range(100, 120), *range(200, 220)]
    assert table.check().damage == []


def test_what_is_refused_before_anything_is_written(spark: SparkSession, tmp_path: Path) -> None:
    keyed = _make(tmp_path, KINDS["fixed, lookup"])
    append = _make(tmp_path, KINDS["append"], "db.a")
    fits = spark.range(3).selectExpr("id", "'d' AS day")
    for frame, message in [
        (spark.range(3), "lacks day"),
        (fits.selectExpr("day"), "lacks id"),
        (fits.selectExpr("*", "1 AS more"), "has more, which the table does not"),
        (fits.selectExpr("CAST(id AS STRING) AS id", "day"), "column 'id' of the frame is string"),
        (fits.selectExpr("id", "day", "1L AS n"), "column 'n' of the frame is bigint"),
        (fits.selectExpr("id", "id AS ID", "day"), "columns 'id' and 'ID', which are both 'id'"),
        (spark.readStream.format("rate").load(), "table_sink"),
        ([{"id": 1}], r"takes a DataFrame .*builtins\.list.*Table\.append"),
    ]:
        with pytest.raises(InvalidRequestError, match=message):
            write(frame, keyed)  # type: ignore[arg-type]
    for arguments, message in [
        ({"mode": "merge"}, "mode is one of append, upsert, overwrite"),
        ({"mode": "upsert"}, "no primary key"),
        ({"dynamic": False}, "mode='overwrite' replaces"),
        ({"mode": "overwrite", "partition": {"n": "1"}}, "n"),
        ({"commit_user": "nightly"}, "together"),
        ({"identifier": 7}, "together"),
        ({"commit_user": "freshet-edit", "identifier": 7}, "a name of your own"),
        ({"commit_user": "nightly", "identifier": -1}, "0 or more"),
        ({"commit_user": "nightly", "identifier": "2026-11-27"}, "whole number"),
        ({"warehouse": str(tmp_path)}, "not with a Table"),
    ]:
        with pytest.raises(InvalidRequestError, match=message):
            write(fits, append, **arguments)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="give warehouse="):
        write(fits, "db.a")
    with pytest.raises(InvalidRequestError, match=r"s3\.secret-key.*env:NAME"):
        write(fits, "db.a", warehouse="s3://b/w", catalog_options={"s3.secret-key": "hunter2"})
    assert not keyed.snapshots() and not append.snapshots()
    assert not list(tmp_path.rglob("*.parquet"))


def test_rows_that_no_table_takes_leave_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = _make(tmp_path, KINDS["fixed, lookup"])
    with pytest.raises(InvalidRequestError, match="part of the primary key"):
        write(spark.range(3).selectExpr("nullif(id, 1) AS id", "'d' AS day"), table)
    with pytest.raises(InvalidRequestError, match="day=d2, which is not replaced"):
        write(_frame(spark, {(1, "d1"): 1, (2, "d2"): 1}), table, "overwrite", partition={"day": "d1"})
    assert not table.snapshots()


def test_a_full_disk_of_sparks_own_is_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark gives no path, and its error is none of `PySparkException`."""
    table = _make(tmp_path, KINDS["fixed, lookup"])

    def full(*_: object) -> None:
        raise Py4JError("Job aborted … java.io.IOException: No space left on device")

    monkeypatch.setattr(SparkJob, "run", full)
    with pytest.raises(Py4JError) as failed:
        write(_frame(spark, {(1, "d1"): 1}), table)
    (note,) = failed.value.__notes__
    assert "db.t: nothing was committed. A disk that Spark itself writes to is full" in note
    assert "spark.local.dir (/" in note
    assert not table.snapshots()


def test_odd_names_and_the_case_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    columns = {"a.b": "BIGINT NOT NULL", "x`y": "STRING", "Größe $1": "INT", 'q"': "INT"}
    table = Catalog(str(tmp_path)).create_table("db.t", schema=columns, primary_keys=["a.b"], options={"bucket": "2"})
    frame = spark.createDataFrame([(1, 2, "v")], "`GRÖSSE $1` int, `A.B` long, `X``Y` string").withColumnRenamed(
        "GRÖSSE $1", "größe $1"
    )
    assert write(frame, table).rows == 1
    assert table.scan().to_arrow().to_pylist() == [{"a.b": 2, "x`y": "v", "Größe $1": 1, 'q"': None}]
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(InvalidRequestError, match=r"lacks a\.b and has A\.B"):
            write(spark.createDataFrame([(1,)], "`A.B` long"), table)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.slow
@pytest.mark.judge
def test_apache_paimon_reads_what_was_written(paimon: PaimonJudge, spark: SparkSession, tmp_path: Path) -> None:
    for kind in ("fixed, lookup", "dynamic", "append with buckets"):
        table = _make(tmp_path, KINDS[kind], f"db.t{len(kind)}")
        write(_frame(spark, {(key, f"d{key % 3}"): 1 for key in range(30)}), table)
        write(_frame(spark, {(100, "d1"): 3}), table, "overwrite")
        write(_frame(spark, {(100, "d1"): 4, (101, "d2"): 4}), table, commit_user="nightly", identifier=7)
        judge = paimon.table(table.location)
        assert sorted(judge.read_rows()) == _held(table), kind
        assert judge.snapshot()["commitUser"] == "nightly"  # type: ignore[index]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["write", pytest.param("df.write", marks=pytest.mark.slow)])
def test_a_default_fills_a_column_that_the_frame_lacks(spark: SparkSession, tmp_path: Path, how: str) -> None:
    """Also one that says where the row goes; NULL in the frame is NULL. It became the default."""
    register(spark)
    table = _make(tmp_path, ({"bucket": "2"}, ["id", "day"], ["day"]))
    table = table.alter(SetDefault("day", "d7"), SetDefault("n", "7"))
    frames = ["1L AS id", "'d1' AS day"], ["2L AS id", "5 AS n"], ["3L AS id", "'d3' AS day", "CAST(NULL AS INT) AS n"]
    for columns in frames:
        frame = spark.range(1).selectExpr(*columns)
        if how == "write":
            write(frame, table)
        else:
            options = {"warehouse": str(tmp_path), "table": "db.t"}
            frame.write.format("freshet").options(**options).mode("append").save()
    rows = table.scan().to_arrow().sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in rows] == [(1, "d1", 7), (2, "d7", 5), (3, "d3", None)]
