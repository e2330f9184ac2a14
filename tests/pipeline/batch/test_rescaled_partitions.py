"""Batches of Spark into tables of which Apache Paimon has rescaled some partitions."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from freshet import Catalog
from freshet.pipeline.batch.table_sink import table_sink
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.rescaled import counts, expected, held, rescaled, rows
from tests.kit.spark import inside_query

pytestmark = [pytest.mark.spark, pytest.mark.judge]


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
