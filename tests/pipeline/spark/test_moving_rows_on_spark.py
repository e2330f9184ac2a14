"""Streams into tables whose rows move between partitions: the rows beside a dict, counts, replays, two writers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from freshet import Catalog
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.spark.routing import with_buckets
from freshet.pipeline.spark.table_sink import table_sink
from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.place_index.index_database import KeyShare
from tests.kit.spark import inside_query
from tests.pipeline.query.outcome_rows import data, outcome_frame, tally
from tests.storage.write.test_moving_rows import ENGINES, Oracle, Row, create, found, indexed

pytestmark = pytest.mark.spark

FRAME = "k BIGINT, p STRING, v BIGINT, _ROW_KIND STRING"


def frame(spark: SparkSession, rows: list[Row], partitions: int = 3) -> DataFrame:
    """The rows in this order, in several Spark partitions."""
    return (
        spark.createDataFrame(rows, FRAME).coalesce(1)
        if partitions == 1
        else spark.createDataFrame(spark.sparkContext.parallelize(rows, partitions), FRAME)
    )


def changes(chance: random.Random, engine: str, count: int) -> list[Row]:
    kinds = ["+I", "+I", "-D"] if engine == "deduplicate" else ["+I"]
    return [
        (chance.randrange(30), chance.choice("abc"), chance.randrange(9), chance.choice(kinds)) for _ in range(count)
    ]


@pytest.mark.few(1)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("initial", [None, 1])
def test_batches_beside_a_dict(spark: SparkSession, engine: str, initial: int | None, tmp_path: Path) -> None:
    chance, oracle = random.Random(f"{engine} {initial}"), Oracle(engine)
    options = {} if initial is None else {"dynamic-bucket.initial-buckets": str(initial)}
    table = create(tmp_path, **ENGINES[engine], **options)
    reports: list[BatchReport] = []
    sink = table_sink(str(tmp_path / "lake"), "db.t", commit_user="stream", on_report=reports.append)
    with inside_query(spark):
        for batch in range(4):
            rows = changes(chance, engine, 40)
            sink(frame(spark, rows), batch)
            oracle.take(rows)
            assert reports[-1].result.applied == 40
            if engine != "first-row":
                assert found(table) == oracle.rows
        sink(frame(spark, rows), batch)
    table.compact(full=True)
    assert found(table) == oracle.rows
    assert not table.check().damage
    shares = 2 if initial is None else 1
    keys = [len(indexed(table, KeyShare(number, shares), tmp_path)) for number in range(shares)]
    assert sum(keys) == len(oracle.rows)
    assert all(keys)


def test_a_largest_number_of_buckets_leaves_no_share_without_one(spark: SparkSession, tmp_path: Path) -> None:
    """There are two shares of the keys: the limit is for other tables, here as in Apache Paimon."""
    oracle = Oracle("deduplicate")
    table = create(tmp_path, **{"dynamic-bucket.max-buckets": "1", "dynamic-bucket.initial-buckets": "2"})
    sink = table_sink(str(tmp_path / "lake"), "db.t", commit_user="stream")
    with inside_query(spark):
        for batch in range(2):
            rows: list[Row] = [(key, "ab"[(key + batch) % 2], batch, "+I") for key in range(40 * (batch + 1))]
            sink(frame(spark, rows), batch)
            oracle.take(rows)
    assert found(table) == oracle.rows
    assert {entry.bucket % 2 for entry in table.files()} == {0, 1}
    assert not table.check().damage


def test_ignored_deletes_are_counted_and_leave_keys_where_they_are(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path, **{"ignore-delete": "true"}, **ENGINES["aggregation"])
    reports: list[BatchReport] = []
    sink = table_sink(str(tmp_path / "lake"), "db.t", commit_user="stream", on_report=reports.append)
    rows: list[Row] = [(1, "a", 1, "+I"), (1, "b", 2, "-D"), (2, "a", 1, "+I"), (2, "c", 5, "+I")]
    with inside_query(spark):
        sink(frame(spark, rows), 0)
    assert found(table) == {1: ("a", 1), 2: ("a", 6)}
    assert reports[-1].result.applied == 3
    assert sum(reports[-1].result.skipped.values()) == 1


def test_changes_without_their_unchanged_values_are_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """PostgreSQL leaves large values out of a change (TOAST); they are not looked up where the key was."""
    table = create(tmp_path)
    columns = table.schema.column_names
    place = str(columns.index("v"))
    sink = table_sink(str(tmp_path / "lake"), "db.t", commit_user="stream")

    def outcomes(*rows: dict[str, Any]) -> DataFrame:
        return with_buckets(outcome_frame(spark, table.schema, list(rows)), table.schema, table.options)

    with inside_query(spark):
        sink(outcomes(data(0, 1, "a", 7), data(1, 2, "a", 7), tally(2)), 0)
        with pytest.raises(PipelineFailedError, match=r"\(TOAST\).*set REPLICA IDENTITY FULL"):
            sink(outcomes(data(2, 1, "b", None, kind=2, unavailable=place), tally(1)), 1)
        assert isinstance(sink.failure, UnsupportedFeatureError)
        assert found(table) == {1: ("a", 7), 2: ("a", 7)}, "nothing was committed"
        sink(outcomes(data(2, 1, "b", 8, kind=2), tally(1)), 1)
    assert found(table) == {1: ("b", 8), 2: ("a", 7)}


def test_the_same_batch_gives_the_same_rows_whatever_the_order_of_the_shuffle(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The last change of a key in the order of the frame wins, whichever of its Spark partitions comes first."""
    table = create(tmp_path)
    sink = table_sink(str(tmp_path / "lake"), "db.t", commit_user="stream")
    rows: list[Row] = [(key % 7, "abcd"[(key * 5) % 4], key, "+I") for key in range(70)]
    with inside_query(spark):
        sink(frame(spark, rows, 7), 0)
    oracle = Oracle("deduplicate")
    oracle.take(rows)
    assert found(table) == oracle.rows


def test_a_kind_in_a_column_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        schema={"k": "BIGINT NOT NULL", "p": "STRING NOT NULL", "op": "STRING"},
        primary_keys=["k"],
        partition_keys=["p"],
        options={"rowkind.field": "op"},
    )
    sink = table_sink(str(tmp_path), "db.t", commit_user="stream")
    given = spark.createDataFrame([(1, "a", "+I")], "k BIGINT, p STRING, op STRING")
    with inside_query(spark), pytest.raises(PipelineFailedError, match="rowkind.field=op"):
        sink(given, 0)
    assert table.latest_snapshot() is None
