"""System tables in Spark: read as batches, refused as streams."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from freshet.pipeline.sources.batch_source import register
from freshet.storage.catalog import Catalog
from freshet.storage.table import Table

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Rows of two partitions, one of them deleted."""
    table = Catalog(str(tmp_path_factory.mktemp("warehouse"))).create_table(
        "shop.orders",
        schema={"id": "INT", "p": "STRING"},
        primary_keys=["id", "p"],
        partition_keys=["p"],
        options={"bucket": "1", "write-only": "true"},
    )
    with table.writer("writer") as writer:
        writer.write([{"id": number, "p": "ab"[number % 2]} for number in range(6)])
        writer.commit()
        writer.write([{"id": 2, "p": "a", "_ROW_KIND": "-D"}])
        writer.commit()
    return table


def loaded(spark: SparkSession, table: Table, noun: str, **options: str) -> DataFrame:
    register(spark)
    reader = spark.read.format("freshet").option("warehouse", str(Path(table.location).parents[1]))
    return reader.option("table", f"shop.orders${noun}").options(**options).load()


def rows(frame: DataFrame) -> list[str]:
    return sorted(str(row.asDict()) for row in frame.collect())


@pytest.mark.parametrize(
    "noun",
    ["snapshots", "schemas", "options", "files", "partitions", "buckets", "tags", "branches", "consumers", "manifests"],
)
def test_the_rows_are_those_of_python(spark: SparkSession, table: Table, noun: str) -> None:
    frame, expected = loaded(spark, table, noun), table.system(noun).scan().to_arrow()
    assert frame.columns == expected.column_names
    assert rows(frame) == sorted(str(row) for row in expected.to_pylist())


def test_rows_with_kinds_come_in_a_partition_for_each_split(spark: SparkSession, table: Table) -> None:
    frame = loaded(spark, table, "audit_log")
    assert frame.rdd.getNumPartitions() == 2
    assert rows(frame.where("rowkind = '-D'")) == ["{'rowkind': '-D', 'id': 2, 'p': 'a'}"]
    assert frame.count() == 6
    assert loaded(spark, table, "ro").count() == 0
    assert loaded(spark, table, "audit_log", columns="id", filter="rowkind = '-D'").collect()[0].id == 2


def test_snapshots_columns_and_views(spark: SparkSession, table: Table) -> None:
    assert loaded(spark, table, "files", **{"scan.snapshot-id": "1"}).count() == 2
    assert loaded(spark, table, "files", columns="level,bucket", filter="record_count > 1").columns == [
        "level",
        "bucket",
    ]
    warehouse = str(Path(table.location).parents[1])
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW parts USING freshet "
        f"OPTIONS (warehouse '{warehouse}', table 'shop.orders$partitions')"
    )
    assert spark.sql("SELECT sum(record_count) FROM parts").collect()[0][0] == 7


@pytest.mark.parametrize("mode", [{}, {"scan.mode": "latest-full"}])
def test_streams_are_refused(spark: SparkSession, table: Table, mode: dict[str, str]) -> None:
    register(spark)
    reader = spark.readStream.format("freshet").option("warehouse", str(Path(table.location).parents[1]))
    refused = r"shop\.orders\$files is a system table and is not streamed.*stream shop\.orders"
    reader = reader.option("table", "shop.orders$files").options(**mode)
    with pytest.raises((AnalysisException, StreamingQueryException), match=refused):
        reader.load().writeStream.format("noop").start().awaitTermination()


def test_errors_name_the_table(spark: SparkSession, table: Table) -> None:
    with pytest.raises(AnalysisException, match=r"shop\.orders\$tags .* leave snapshot_id out"):
        loaded(spark, table, "tags", **{"scan.snapshot-id": "1"})
    with pytest.raises(AnalysisException, match=r"shop\.orders\$fils"):
        loaded(spark, table, "fils")
