"""Batches of Spark into tables that are rescaled: by Apache Paimon before, by us while the stream runs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from freshet import Catalog, Table
from freshet.pipeline.spark.table_sink import table_sink
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.rescaled import COLUMNS, counts, expected, held, rescaled, rows
from tests.kit.spark import inside_query

pytestmark = pytest.mark.spark


@pytest.mark.slow
@pytest.mark.always("judges")
@pytest.mark.judge
def test_each_partition_is_written_with_the_count_it_has(
    paimon: PaimonJudge, spark: SparkSession, tmp_path: Path
) -> None:
    judge = rescaled(paimon, tmp_path / "db.db" / "t", ["p", "k"])
    sink = table_sink(str(tmp_path), "db.t", commit_user="stream")
    for number, value in enumerate(("first", "second")):
        everything = pa.concat_tables([rows(partition, value, *range(20)) for partition in "abc"])
        with inside_query(spark):
            sink(spark.createDataFrame(everything), number)
    assert counts(judge.location) == {"a": {4}, "b": {2}, "c": {4}}
    want = expected(a="second", b="second", c="second")
    assert sorted(judge.read_rows()) == want
    assert held(Catalog(str(tmp_path)).table("db.t")) == want


def test_a_stream_goes_on_while_its_table_is_rescaled(spark: SparkSession, tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", schema=COLUMNS, primary_keys=["p", "k"], partition_keys=["p"], options={"bucket": "2"}
    )
    sink = table_sink(str(tmp_path), "db.t", commit_user="stream")

    def batch(number: int, value: str, partitions: str) -> None:
        everything = pa.concat_tables([rows(partition, value, *range(20)) for partition in partitions])
        with inside_query(spark):
            sink(spark.createDataFrame(everything), number)

    batch(0, "first", "ab")
    table.rescale(8, partition={"p": "a"})
    batch(1, "second", "abc")
    assert counts(table.location) == {"a": {8}, "b": {2}, "c": {8}}
    table.rescale(8)
    batch(2, "third", "bc")
    table.rescale(3)
    batch(3, "fourth", "ab")
    assert counts(table.location) == {"a": {3}, "b": {3}, "c": {3}}
    assert held(Table.open(table.location)) == expected(a="fourth", b="fourth", c="third")
