"""Tables read through Spark: the same rows as without it, pruned columns, pushed filters, time travel, SQL views."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as pushed

from freshet.pipeline.spark.batch_source import register
from freshet.pipeline.spark.pushed_filters import to_predicate
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


@pytest.mark.parametrize(
    "condition",
    [
        "id = 42",
        "id > 290 AND name LIKE 'first%'",
        "id IN (1, 150, 299)",
        "region IS NULL",
        "region <=> NULL AND id < 100",
        "NOT (region = 'r1')",
        "NOT (region IN ('r1', 'r2'))",
        "amount >= 2.50 AND amount < 2.60",
        "day = DATE'2024-02-01'",
        "seen <= TIMESTAMP_NTZ'2024-01-01 00:00:10'",
        "rough = TIMESTAMP'2024-01-01 01:00:00Z'",
        "ratio > 70 OR id = 3",
        "ratio = double('NaN')",
        "time = 5",
        "length(name) = 7",
    ],
)
def test_filters_mean_what_spark_means(spark: SparkSession, table: Table, load: Any, condition: str) -> None:
    """The oracle is Spark itself on rows that were loaded without any filter."""
    everything = load().cache()
    try:
        everything.count()
        expected = sorted(row[0] for row in everything.where(condition).select("id").collect())
    finally:
        everything.unpersist(blocking=True)
    assert sorted(row[0] for row in load().where(condition).select("id").collect()) == expected


def test_filters_prune_splits(table: Table) -> None:
    """What is pushed reaches the plan: a key that lies in one bucket opens one split."""
    predicate = to_predicate(pushed.EqualTo(("id",), 42), table.schema)
    assert predicate is not None
    assert len(table.scan(filter=predicate).plan()) == 1
    assert len(table.scan().plan()) == 3


@pytest.mark.parametrize(
    "left_to_spark",
    [
        pushed.EqualTo(("ratio",), 1.5),
        pushed.GreaterThan(("fine",), 5),
        pushed.EqualTo(("rough",), _START),
        pushed.EqualTo(("tags", "element"), "x"),
        pushed.StringEndsWith(("name",), "x"),
        pushed.Not(pushed.In(("id",), (1, None))),
        pushed.EqualTo(("unknown",), 1),
    ],
)
def test_filters_that_could_differ_are_left_to_spark(table: Table, left_to_spark: pushed.Filter) -> None:
    assert to_predicate(left_to_spark, table.schema) is None


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colums": "id"}, "unknown option 'colums'"),
        ({"columns": "id,nope"}, "has no column nope"),
        ({"scan.snapshot-id": "one"}, "must be a whole number"),
        ({"scan.snapshot-id": "99"}, "99"),
        ({"scan.snapshot-id": "1", "scan.tag-name": "t"}, "at most one of"),
    ],
)
def test_wrong_options(load: Any, options: dict[str, str], message: str) -> None:
    with pytest.raises((PySparkException, AnalysisException), match=message):
        load(**options).count()
