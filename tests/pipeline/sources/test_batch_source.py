"""Tables read through Spark: the same rows as without it, columns, filters, time travel, SQL views, any session."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from freshet.pipeline.sources.batch_source import FreshetDataSource, register
from freshet.storage.catalog import Catalog
from freshet.storage.schema.change import AddColumn
from freshet.storage.table import Table

pytestmark = pytest.mark.spark

COLUMNS = {
    "id": "BIGINT",
    "region": "STRING",
    "name": "STRING",
    "amount": "DECIMAL(12,2)",
    "ratio": "DOUBLE",
    "day": "DATE",
    "seen": "TIMESTAMP(6)",
    "rough": "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    "fine": "TIMESTAMP(9)",
    "time": "TIME(3)",
    "tags": "ARRAY<STRING>",
}
_START = datetime.datetime(2024, 1, 1)


def _rows(first: int, count: int, name: str) -> pa.Table:
    numbers = range(first, first + count)
    utc = _START.replace(tzinfo=datetime.UTC)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "region": [None if number % 7 == 0 else f"r{number % 3}" for number in numbers],
            "name": [f"{name} {number}" for number in numbers],
            "amount": pa.array([Decimal(number).scaleb(-2) for number in numbers], pa.decimal128(12, 2)),
            "ratio": [number / 4 for number in numbers],
            "day": [(_START + datetime.timedelta(days=number)).date() for number in numbers],
            "seen": pa.array([_START + datetime.timedelta(seconds=number) for number in numbers], pa.timestamp("us")),
            "rough": pa.array([utc + datetime.timedelta(minutes=n) for n in numbers], pa.timestamp("ms", "UTC")),
            "fine": pa.array(numbers, pa.int64()).cast(pa.timestamp("ns")),
            "time": pa.array(numbers, pa.int32()).cast(pa.time32("ms")),
            "tags": [[f"t{number}", None] for number in numbers],
        }
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Three commits: 300 rows, 100 of them written again, one deleted."""
    folder = tmp_path_factory.mktemp("warehouse")
    table = Catalog(str(folder)).create_table(
        "shop.orders", schema=COLUMNS, primary_keys=["id"], options={"bucket": "3"}
    )
    with table.writer("test") as writer:
        writer.write(_rows(0, 300, "first"))
        writer.commit(1)
        writer.write(_rows(100, 100, "second"))
        writer.commit(2)
        writer.write(_rows(5, 1, "gone").append_column("_ROW_KIND", pa.array(["-D"])))
        writer.commit(3)
    return table


@pytest.fixture
def load(spark: SparkSession, table: Table) -> Any:
    """Loads the table with some options."""
    register(spark)
    warehouse = str(Path(table.location).parents[1])

    def loaded(**options: str) -> DataFrame:
        reader = spark.read.format("freshet").option("warehouse", warehouse).option("table", "shop.orders")
        return reader.options(**options).load()

    return loaded


def test_the_same_rows_as_without_spark(table: Table, load: Any) -> None:
    frame = load()
    assert frame.schema.simpleString() == (
        "struct<id:bigint,region:string,name:string,amount:decimal(12,2),ratio:double,day:date,"
        "seen:timestamp_ntz,rough:timestamp,fine:bigint,time:bigint,tags:array<string>>"
    )
    assert not frame.schema["id"].nullable
    found = frame.toArrow().sort_by("id")
    expected = table.scan().to_arrow().sort_by("id")
    assert found.num_rows == 299
    for name in ("id", "region", "name", "amount", "ratio", "day", "tags"):
        assert found[name].to_pylist() == expected[name].to_pylist(), name
    for name in ("fine", "time"):
        width = pa.int64() if name == "fine" else pa.int32()
        assert found[name].to_pylist() == expected[name].cast(width).to_pylist(), name
    assert found["seen"].to_pylist() == expected["seen"].to_pylist()
    millis = expected["rough"].cast(pa.int64()).to_pylist()
    assert found["rough"].cast(pa.int64()).to_pylist() == [1000 * number for number in millis]


def test_columns_by_option_and_by_schema(spark: SparkSession, table: Table, load: Any) -> None:
    assert load(columns="name, id").columns == ["name", "id"]
    warehouse = str(Path(table.location).parents[1])
    reader = spark.read.format("freshet").schema("amount decimal(12,2), id bigint")
    frame = reader.option("warehouse", warehouse).option("table", "shop.orders").load()
    assert frame.orderBy("id").first().asDict() == {"amount": Decimal("0.00"), "id": 0}


CONDITIONS = [
    "id = 42",
    "id > 290.5 AND name LIKE 'first%'",
    "id IN (1, 150, 299)",
    "region <=> NULL AND id < 100",
    "NOT (region IN ('r1', 'r2'))",
    "amount >= 2.50 AND amount < 2.605",
    "day = DATE'2024-02-01' OR day = TIMESTAMP_NTZ'2024-02-02 00:00:00'",
    "seen <= TIMESTAMP_NTZ'2024-01-01 00:00:10.5'",
    "rough = TIMESTAMP'2024-01-01 01:00:00Z'",
    "rough < TIMESTAMP'2024-01-01 01:00:00.000001Z'",
    "ratio > 70 OR id = 3",
    "ratio = double('NaN')",
]


def test_the_option_and_where_keep_the_same_rows(load: Any) -> None:
    """Both read the same text; Spark's own evaluation of all of them is one query."""
    names = [f"c{number}" for number in range(len(CONDITIONS))]
    columns = [f"{condition} AS {name}" for name, condition in zip(names, CONDITIONS, strict=True)]
    rows = load().selectExpr("id", *columns).collect()
    for name, condition in zip(names, CONDITIONS, strict=True):
        expected = sorted(row["id"] for row in rows if row[name])
        assert sorted(row[0] for row in load(filter=condition).select("id").collect()) == expected, condition
    row = load().where(CONDITIONS[0]).select("id").collect()
    assert [each[0] for each in row] == [42]


def test_types_that_travel_as_numbers_are_filtered_as_what_they_are(load: Any) -> None:
    frame = load(filter="time = TIME '00:00:00.005' OR fine = TIMESTAMP '1970-01-01 00:00:00.000000042'", columns="id")
    assert [row[0] for row in frame.orderBy("id").collect()] == [42]  # row 5 was deleted


def test_the_option_prunes_splits(load: Any, table: Table) -> None:
    """A key lies in one bucket, which is one split here."""
    assert load().rdd.getNumPartitions() == 3
    assert load(filter="id = 42").rdd.getNumPartitions() == 1
    assert load(filter="id = 42.5").count() == 0
    assert len(table.scan(filter="id = 42").plan()) == 1


@pytest.mark.slow
def test_a_filter_stays_with_the_use_that_has_it(spark: SparkSession, load: Any) -> None:
    """A relation that was read with `where` must be whole in its next use, and in other branches of one query."""
    frame = load()
    assert frame.where("id = 42").count() == 1
    assert frame.count() == 299
    assert frame.where("id < 10").count() == 9
    assert frame.where("id >= 290").unionAll(frame.where("id < 10")).count() == 19
    rest = frame.alias("a").join(frame.where("id < 100").alias("b"), "id", "left_anti")
    assert rest.count() == 200
    frame.createOrReplaceTempView("leaky")
    assert spark.sql("SELECT count(*) FROM leaky WHERE region IS NULL").first()[0] == 43
    assert spark.sql("SELECT count(*) FROM leaky").first()[0] == 299
    assert not hasattr(FreshetDataSource({"warehouse": "w", "table": "a.b"}).reader, "pushFilters")


def _small_table(folder: Path, count: int = 1) -> Table:
    table = Catalog(str(folder)).create_table(
        "a.b", schema={"id": "INT", "v": "INT"}, primary_keys=["id"], options={"bucket": "1"}
    )
    for number in range(count):
        _commit(table, number, number)
    return table


def _commit(table: Table, identifier: int, value: int) -> None:
    with table.writer("test") as writer:
        writer.write(pa.table({"id": pa.array([1], pa.int32()), "v": pa.array([value], pa.int32())}))
        writer.commit(identifier)


def _load_small(spark: SparkSession, folder: Path, **options: str) -> DataFrame:
    reader = spark.read.format("freshet").option("warehouse", str(folder)).option("table", "a.b")
    return reader.options(**options).load()


def test_a_frame_and_a_view_stay_with_the_snapshot_of_their_first_use(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    table = _small_table(tmp_path)
    frame = _load_small(spark, tmp_path)
    here = os.path.relpath(tmp_path)  # a relative warehouse is taken against the current folder
    view = f"OR REPLACE TEMPORARY VIEW steady USING freshet OPTIONS (warehouse '{here}', table 'a.b')"
    spark.sql(f"CREATE {view}")
    assert [frame.first()["v"], spark.sql("SELECT v FROM steady").first()[0]] == [0, 0]
    _commit(table, 1, 1)
    assert [frame.first()["v"], spark.sql("SELECT v FROM steady").first()[0]] == [0, 0]
    assert _load_small(spark, tmp_path).first()["v"] == 1
    spark.sql(f"CREATE {view}")
    assert spark.sql("SELECT v FROM steady").first()[0] == 1
    table.compact()
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    with pytest.raises(PySparkException, match="snapshot 1 of .* expired before it was read .* read the table again"):
        frame.collect()
    with pytest.raises(PySparkException, match="snapshot 2 of .* expired"):
        spark.sql("SELECT v FROM steady").collect()


@pytest.mark.slow
def test_a_table_dropped_under_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    _small_table(tmp_path)
    frame = _load_small(spark, tmp_path)
    assert frame.count() == 1
    Catalog(str(tmp_path)).drop_table("a.b")
    with pytest.raises(PySparkException, match="was dropped after this was planned"):
        frame.collect()


_FOREIGN_SESSION = """
import sys
from pyspark.sql import SparkSession
from freshet import register
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
frame = spark.read.format("freshet").option("warehouse", sys.argv[1]).option("table", "a.b").load()
print("rows", frame.where("v = 7").count(), frame.where("v = 2").count(), frame.count())
reader = spark.read.format("freshet").schema("v INT").option("filter", "v = 2").option("warehouse", sys.argv[1])
print("filtered", [row.v for row in reader.option("table", "a.b").load().collect()])
"""


@pytest.mark.slow
def test_a_session_that_freshet_did_not_create(tmp_path: Path) -> None:
    """Spark's defaults and `register` are enough."""
    _small_table(tmp_path, 3)
    ran = subprocess.run(
        [sys.executable, "-c", _FOREIGN_SESSION, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src"), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert "rows 0 1 1" in ran.stdout, ran.stderr[-3000:]
    assert "filtered [2]" in ran.stdout


def test_time_travel(load: Any) -> None:
    assert load(**{"scan.snapshot-id": "1"}).where("name LIKE 'second%'").count() == 0
    assert load(**{"scan.snapshot-id": "1"}).count() == 300
    assert load(**{"scan.timestamp-millis": str(2**42)}).count() == 299


def test_an_old_snapshot_has_the_columns_it_had(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    table = Catalog(str(tmp_path)).create_table(
        "a.b", schema={"id": "INT"}, primary_keys=["id"], options={"bucket": "1"}
    )
    with table.writer("test") as writer:
        writer.write(pa.table({"id": pa.array([1], pa.int32())}))
        writer.commit(1)
    table.alter(AddColumn("more", "INT"))
    reader = spark.read.format("freshet").option("warehouse", str(tmp_path)).option("table", "a.b")
    assert [row.asDict() for row in reader.load().collect()] == [{"id": 1, "more": None}]
    assert [row.asDict() for row in reader.option("scan.snapshot-id", "1").load().collect()] == [{"id": 1}]


def test_sql_view(spark: SparkSession, table: Table) -> None:
    register(spark)
    warehouse = str(Path(table.location).parents[1])
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders USING freshet OPTIONS (warehouse '{warehouse}', table 'shop.orders')"
    )
    assert spark.sql("SELECT count(*), max(id) FROM orders WHERE region = 'r1'").collect()[0][1] == 298


def test_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    Catalog(str(tmp_path)).create_table("a.b", schema={"id": "INT"}, options={"bucket": "-1"})
    assert spark.read.format("freshet").option("warehouse", str(tmp_path)).option("table", "a.b").load().count() == 0


def test_a_secret_is_refused_with_the_remedy(load: Any) -> None:
    """A SQL statement is in Spark's event log with its options, and a secret would be sent to tasks."""
    for key in ("s3.secret-key", "catalog.s3.access-key"):
        with pytest.raises(AnalysisException, match=r"holds a secret.*=env:NAME") as refused:
            load(**{key: "hunter2"})
        assert "hunter2" not in str(refused.value)


def test_an_option_that_the_store_does_not_take_is_refused(load: Any) -> None:
    with pytest.raises(AnalysisException, match=r"option s3\.endpoint: neither the catalog nor the store"):
        load(**{"s3.endpoint": "http://127.0.0.1:1"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colums": "id"}, "unknown option 'colums'"),
        ({"path": "/data/shop.db/orders"}, "takes no path, and '/data/shop.db/orders' is one"),
        ({"columns": "id,nope"}, "no column 'nope'"),
        ({"filter": "nope = 1"}, "no column 'nope'"),
        ({"filter": "length(name) = 1"}, "is not a column"),
        ({"filter": "id = "}, "cannot be read"),
        ({"scan.snapshot-id": "one"}, "must be a whole number"),
        ({"scan.snapshot-id": "99"}, "99"),
        ({"scan.snapshot-id": "1", "scan.tag-name": "t"}, "at most one of"),
    ],
)
def test_wrong_options(load: Any, options: dict[str, str], message: str) -> None:
    with pytest.raises((PySparkException, AnalysisException), match=message):
        load(**options).count()


@pytest.fixture
def named(tmp_path: Path) -> dict[str, str]:
    """The options of a small table."""
    made = Catalog(tmp_path).create_table(
        "db.t", schema={"id": "BIGINT", "n": "INT"}, primary_keys=["id"], options={"bucket": "1"}
    )
    made.upsert([{"id": 1}, {"id": 2}])
    return {"warehouse": str(tmp_path), "table": "db.t"}


def test_new_sessions_of_a_session_know_the_format(spark: SparkSession, named: dict[str, str]) -> None:
    """They have formats of their own; one could not even be told of it once a read had failed."""
    register(spark)
    made = spark.newSession()
    for session in (made, made.newSession()):
        assert session.read.format("freshet").options(**named).load().count() == 2
    register(made)
    assert SparkSession.getActiveSession() == spark


@pytest.mark.parametrize("what", ["read", "write"])
def test_refusals_are_a_sentence(spark: SparkSession, named: dict[str, str], what: str) -> None:
    register(spark)
    wrong = {"colums": "id", **named}
    calls = {
        "read": spark.read.format("freshet").options(**wrong).load,
        "write": spark.range(1).write.format("freshet").options(**wrong).mode("append").save,
    }
    with pytest.raises(AnalysisException, match="InvalidRequestError: unknown option 'colums'") as refused:
        calls[what]()
    assert "Traceback" not in str(refused.value)


def test_a_frame_is_taken_by_a_table(spark: SparkSession, named: dict[str, str]) -> None:
    """Without pandas, which the Arrow stream of Spark's frames asks for."""
    table = Catalog(named["warehouse"]).table(named["table"])
    table.merge(spark.range(1, 2), ["id"]).when("matched then delete").execute()
    assert table.scan(["id"]).to_arrow().to_pylist() == [{"id": 2}]
