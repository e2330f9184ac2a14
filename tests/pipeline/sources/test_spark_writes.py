"""`df.write`, INSERT and changes between two points, by Spark itself; what a view shows; tables of Spark's catalog."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from freshet import Catalog, Table, register, write
from freshet.storage.model.snapshot import CommitKind
from tests.kit.paimon_judge import PaimonJudge

pytestmark = pytest.mark.spark

COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING", "n": "INT"}


def _make(folder: Path, **options: str) -> Table:
    return Catalog(str(folder)).create_table("db.t", schema=COLUMNS, primary_keys=["id"], options=options)


def _save(frame: DataFrame, folder: Path, mode: str = "append", **options: str) -> None:
    frame.write.format("freshet").mode(mode).options(warehouse=str(folder), table="db.t", **options).save()


def _load(spark: SparkSession, folder: Path, **options: str) -> DataFrame:
    return spark.read.format("freshet").options(warehouse=str(folder), table="db.t", **options).load()


def _held(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


@pytest.mark.slow
@pytest.mark.always("crossing: table_sink")
@pytest.mark.parametrize("options", [{"bucket": "2"}, {}], ids=["by tasks", "by the process that commits"])
def test_save_and_insert(spark: SparkSession, tmp_path: Path, options: dict[str, str]) -> None:
    register(spark)
    table = _make(tmp_path, **options)
    _save(spark.range(0, 4, 1, 2).selectExpr("'a' AS NAME", "id"), tmp_path)
    assert _held(table) == [(key, "a", None) for key in range(4)]
    place = f"warehouse '{tmp_path}', table 'db.t'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders USING freshet OPTIONS ({place})")
    assert spark.table("orders").count() == 4
    spark.sql("INSERT INTO orders VALUES (3, 'b', 1), (9, 'c', 2)")
    spark.sql("INSERT INTO orders (n, id) SELECT 7, 10")
    assert _held(table)[3:] == [(3, "b", 1), (9, "c", 2), (10, None, 7)]
    # Spark keeps what a relation has read: the view stays with the snapshot of its first use.
    assert spark.table("orders").count() == 4
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders USING freshet OPTIONS ({place})")
    assert spark.table("orders").count() == 6
    spark.sql("INSERT OVERWRITE orders SELECT id, 'last', n FROM orders WHERE id > 8")
    assert _held(table) == [(9, "last", 2), (10, "last", 7)]
    assert table.snapshots()[-1].commit_kind is CommitKind.OVERWRITE
    _save(spark.range(0), tmp_path, "overwrite")
    assert _held(table) == []


@pytest.mark.slow
@pytest.mark.always("judges")  # Paimon beside Spark: its JVM is started for these alone
@pytest.mark.judge
@pytest.mark.parametrize(("file_format", "quote"), [("parquet", "`"), ("orc", "'")])
def test_apache_paimon_reads_columns_of_odd_names(
    paimon: PaimonJudge, spark: SparkSession, tmp_path: Path, file_format: str, quote: str
) -> None:
    register(spark)
    names = ["i.d", "a b", f"x{quote}y", 'q"', "Größe $1", "1st"]
    types = ["BIGINT NOT NULL", "STRING", "TIMESTAMP(3)", "DECIMAL(20, 3)", "ROW<`a.b` INT, c STRING>", "ARRAY<DATE>"]
    columns = dict(zip(names, types, strict=True))
    options = {"bucket": "2", "file.format": file_format}
    table = Catalog(str(tmp_path)).create_table("db.t", schema=columns, primary_keys=names[:1], options=options)
    values = [
        "id",
        "concat('v', id)",
        "CAST(timestamp_millis(id) AS TIMESTAMP_NTZ)",
        "CAST(1.5 AS DECIMAL(20, 3))",
        "named_struct('a.b', 1, 'c', 'd')",
        "array(DATE '1969-12-31', NULL)",
    ]
    frame = spark.range(20).selectExpr(*values).toDF(*names)
    _save(frame, tmp_path)
    _save(frame.limit(3), tmp_path)
    assert {entry.file.file_name.rpartition(".")[2] for entry in table.files()} == {file_format}
    assert sorted(map(repr, paimon.table(table.location).read_rows())) == sorted(map(repr, _held(table)))


def test_what_is_refused_when_the_write_is_planned(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    table = _make(tmp_path)
    frame = spark.range(1)
    for broken, options, message in [
        (frame.selectExpr("id", "1 AS more"), {}, "has more, which the table does not"),
        (frame.selectExpr("'x' AS id"), {}, "column 'id' of the frame is string"),
        (frame, {"scan.snapshot-id": "1"}, "is one of reads"),
        (frame, {"dynamic-partition-overwrite": "maybe"}, "true or false"),
        (frame, {"table": "db.t$files"}, "is a system table and is not written"),
    ]:
        with pytest.raises(AnalysisException, match=message):
            broken.write.format("freshet").mode("append").options(
                **{"warehouse": str(tmp_path), "table": "db.t", **options}
            ).save()
    assert not table.snapshots()


def test_a_table_of_sparks_own_catalog(spark: SparkSession, tmp_path: Path) -> None:
    """It cannot work: refused at once, or at its first use where it names its columns."""
    register(spark)
    _make(tmp_path)
    using = f"USING freshet OPTIONS (warehouse '{tmp_path}', table 'db.t')"
    remedy = r"(?s)CREATE TEMPORARY VIEW orders USING.*freshet\.sql"
    with pytest.raises(AnalysisException, match=remedy):
        spark.sql(f"CREATE TABLE of_spark {using}")
    spark.sql(f"CREATE TABLE of_spark (id BIGINT) {using}")
    try:
        for statement in ("SELECT * FROM of_spark", "INSERT INTO of_spark VALUES (1)"):
            with pytest.raises(PySparkException, match=remedy):
                spark.sql(statement).collect()
    finally:
        spark.sql("DROP TABLE of_spark")


def test_changes_between_two_points(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    table = _make(tmp_path, bucket="2", **{"changelog-producer": "input"})
    for number, rows in enumerate(([(1, "a"), (2, "a")], [(2, "b")], [(3, "c")]), 1):
        table.append([{"id": key, "name": name} for key, name in rows])
        table.tags.create(f"t{number}")
    table.delete("id = 1")

    def changes(**options: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in _load(spark, tmp_path, columns="id,name", **options).collect())

    between = "incremental-between"
    assert changes(**{between: "1,3"}) == [(2, "b", "+I"), (3, "c", "+I")]
    assert changes(**{between: "1,3", "filter": "id = 3", "with-snapshot-id": "true"}) == [(3, "c", "+I", 3)]
    assert changes(**{between: "t1,t2"}) == [(2, "a", "-U"), (2, "b", "+U")]
    assert changes(**{between: "3,4", "incremental-between-scan-mode": "diff"}) == [(1, "a", "-D")]
    assert changes(**{between: "3,3"}) == []
    times = f"{table.snapshots()[1].time_ms},{table.snapshots()[3].time_ms}"
    assert [row[-1] for row in changes(**{"incremental-between-timestamp": times})] == ["-D", "+I"]
    assert changes(**{"scan.version": "t1"}) == changes(**{"scan.version": "1"}) == [(1, "a"), (2, "a")]
    frame = _load(spark, tmp_path, **{between: "1,3"})
    assert frame.schema.simpleString() == "struct<id:bigint,name:string,n:int,_ROW_KIND:string>"
    for options, message in [
        ({between: "1,3", "scan.tag-name": "t1"}, "at most one"),
        ({between: "1,3", "scan.mode": "latest"}, "one of streams"),
        ({between: "t1,9"}, "two snapshot ids"),
        ({between: "1,99"}, "99"),
        ({between: "1,3", "incremental-between-scan-mode": "all"}, "mode is one of"),
    ]:
        with pytest.raises(PySparkException, match=message):
            changes(**options)


def test_a_stream_is_not_written_by_the_format(spark: SparkSession, tmp_path: Path) -> None:
    """It is refused at its first batch, naming what writes streams; it was an unknown option `checkpointlocation`."""
    register(spark)
    table = _make(tmp_path / "w")
    out = spark.readStream.format("rate").load().selectExpr("value AS id").writeStream.format("freshet")
    out.option("warehouse", str(tmp_path / "w")).option("table", "db.t")
    with pytest.raises(PySparkException, match=r"table_sink"):
        out.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination(60)
    assert not table.snapshots()


@pytest.mark.slow
def test_an_overwrite_while_a_stream_reads(spark: SparkSession, tmp_path: Path) -> None:
    """The stream passes over it, as `streaming-read-overwrite` says, and goes on with what is appended."""
    register(spark)
    table = _make(tmp_path / "w", bucket="1", **{"changelog-producer": "input"})
    table.append([{"id": 1, "name": "a"}])

    def read_on() -> set[tuple[Any, ...]]:
        stream = spark.readStream.format("freshet").option("warehouse", str(tmp_path / "w")).option("table", "db.t")
        frame = stream.option("scan.mode", "latest-full").option("columns", "id,name").load()
        out = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        out.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
        return {tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).collect()}

    assert read_on() == {(1, "a", "+I")}
    write(spark.range(5, 7).selectExpr("id", "'over' AS name"), table, "overwrite")
    write(spark.range(7, 8).selectExpr("id", "'more' AS name"), table)
    assert read_on() == {(1, "a", "+I"), (7, "more", "+I")}
    assert [row[0] for row in _held(table)] == [5, 6, 7]


_PROGRAM = """
import os, sys
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from freshet import Catalog, register, write
from freshet.pipeline.spark.column_way import ColumnWay

spark = SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)

def die_once():
    context = TaskContext.get()
    if context.partitionId() == 0 and context.attemptNumber() == 0:
        os._exit(1)

def name_of(key):
    if key == 1300:
        die_once()
    return "b"

planned = ColumnWay._task

class Dying:
    def __init__(self, task):
        self.task = task

    def run(self, batches, place):
        done = list(self.task.run(batches, place))
        die_once()
        yield from done

ColumnWay._task = lambda *arguments: Dying(planned(*arguments))
table = Catalog(sys.argv[1]).table("db.t")
frame = spark.range(0, 1000, 1, 3).selectExpr("id", "'a' AS name")
print("written", write(frame, table, commit_user="nightly", identifier=1))
ColumnWay._task = planned
saved = spark.range(1000, 2000, 1, 3).select("id", udf(name_of, "string")("id").alias("name"))
saved.write.format("freshet").mode("append").option("warehouse", sys.argv[1]).option("table", "db.t").save()
"""


@pytest.mark.slow
def test_tasks_that_die_once_in_a_users_own_session(tmp_path: Path) -> None:
    """They are run again, and nothing is there twice; what the dead ones wrote are orphans."""
    table = _make(tmp_path, bucket="2")
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src"), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert "written WriteResult(rows=1000, snapshot_ids=(1,)" in ran.stdout, ran.stderr[-5000:]
    assert ran.returncode == 0, ran.stderr[-5000:]
    assert [(row[0], row[1]) for row in _held(table)] == [(key, "ab"[key // 1000]) for key in range(2000)]
    assert len(table.snapshots()) == 2
    assert table.check().damage == []
    orphans = table.remove_orphan_files(older_than_ms=0, dry_run=True)
    assert any("data-" in file.path for file in orphans.files), "of the attempt that died after it had written"
