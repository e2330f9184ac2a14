"""Batches of Spark into tables with dynamic buckets: the assigners are a stage of the one job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from freshet import Catalog
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.spark.routing import with_buckets
from freshet.pipeline.spark.table_sink import table_sink
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import OutdatedAssignmentError
from freshet.storage.table import Table
from tests.kit.spark import inside_query
from tests.pipeline.query.outcome_rows import data, dead, outcome_frame, tally
from tests.storage.write.test_dynamic_buckets import counts

pytestmark = pytest.mark.spark

COLUMNS = {"p": "INT NOT NULL", "k": "BIGINT NOT NULL", "name": "STRING", "v": "BIGINT"}


def create(path: Path, *, partitioned: bool = True, **options: str) -> Table:
    given = {"bucket": "-1", **{key.replace("_", "-"): value for key, value in options.items()}}
    return Catalog(str(path)).create_table(
        "db.t", schema=COLUMNS, primary_keys=["p", "k"], partition_keys=["p"] if partitioned else [], options=given
    )


def frame(spark: SparkSession, start: int, end: int, value: int, partitions: int = 2) -> Any:
    return spark.range(start, end, 1, 3).select(
        F.pmod(F.col("id"), F.lit(partitions)).cast("int").alias("p"),
        F.col("id").alias("k"),
        F.concat(F.lit("a name longer than eight bytes "), F.col("id")).alias("name"),
        F.lit(value).cast("bigint").alias("v"),
    )


def found(table: Table) -> dict[int, int]:
    rows = table.scan(["k", "v"]).to_arrow().to_pylist()
    keyed = {row["k"]: row["v"] for row in rows}
    assert len(keyed) == len(rows), "a key is in two buckets"
    return keyed


@pytest.mark.few(1)
@pytest.mark.parametrize("partitioned", [True, False])
@pytest.mark.parametrize("initial", [None, 1, 2])
def test_new_and_known_keys_in_one_job_each(
    spark: SparkSession, tmp_path: Path, partitioned: bool, initial: int | None
) -> None:
    first = {} if initial is None else {"dynamic-bucket.initial-buckets": str(initial)}
    table = create(tmp_path, partitioned=partitioned, **{"dynamic-bucket.target-row-num": "40", **first})
    sink = table_sink(str(tmp_path), "db.t", commit_user="stream")
    group = f"dynamic {partitioned} {initial}"
    spark.sparkContext.setJobGroup(group, group)
    expected: dict[int, int] = {}
    with inside_query(spark):
        for batch, (start, end) in enumerate([(0, 300), (200, 350), (0, 400)]):
            sink(frame(spark, start, end, batch), batch)
            expected |= dict.fromkeys(range(start, end), batch)
            assert found(table) == expected
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(group)) == 3
    assert sum(sum(each.values()) for each in counts(table)) == 400
    assert max(max(each.values()) for each in counts(table)) == 40
    assert not table.check().damage


@pytest.mark.few(1)
@pytest.mark.parametrize(("partitioned", "largest"), [(True, 1), (True, 3), (False, 1)])
def test_no_assigner_is_without_a_bucket(spark: SparkSession, tmp_path: Path, partitioned: bool, largest: int) -> None:
    """Each partition may have fewer buckets than there are tasks; Apache Paimon 2.0.0 leaves assigners without any."""
    options = {"dynamic-bucket.max-buckets": str(largest), "dynamic-bucket.target-row-num": "5"}
    table = create(tmp_path, partitioned=partitioned, **options)
    sink = table_sink(str(tmp_path), "db.t", commit_user="stream")
    with inside_query(spark):
        for batch in range(2):
            sink(frame(spark, 0, 100 * (batch + 1), batch), batch)
    assert found(table) == dict.fromkeys(range(200), 1)
    assert [each.keys() for each in counts(table)] == [set(range(largest))] * (2 if partitioned else 1)
    assert sum(sum(each.values()) for each in counts(table)) == 200
    assert not table.check().damage


BUCKETS = {"dynamic": {"bucket": "-1"}, "postponed": {"bucket": "-2"}, "moving": {}}


@pytest.mark.parametrize("kind", BUCKETS)
def test_outcomes_with_dead_letters_and_tallies(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "shop.orders",
        schema={"id": "BIGINT", "name": "STRING"},
        primary_keys=["id"],
        partition_keys=["name"] if kind == "moving" else [],
        options=BUCKETS[kind],
    )
    reports: list[BatchReport] = []
    sink = table_sink(
        str(tmp_path), "shop.orders", commit_user="orders", on_report=reports.append, dead_letters="shop.dead"
    )
    for batch in range(2):
        rows = [*(data(number, number, f"{batch}") for number in range(20)), dead(20), tally(21)]
        outcomes = with_buckets(outcome_frame(spark, table.schema, rows), table.schema, table.options)
        with inside_query(spark):
            sink(outcomes, batch)
    assert [(report.result.applied, report.result.dead_count) for report in reports] == [(20, 1)] * 2
    assert table.scan().count() == (0 if kind == "postponed" else 20)
    table.compact()
    assert sorted(table.scan().to_arrow()["name"].to_pylist()) == ["1"] * 20
    if kind == "dynamic":
        assert sum(counts(table)[0].values()) == 20


def test_a_batch_that_was_overtaken_is_refused_and_runs_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path)
    sink = table_sink(str(tmp_path), "db.t", commit_user="stream")
    commit = Committer.commit

    def overtaken(self: Committer, *arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(Committer, "commit", commit)
        with table.writer("other") as writer:
            writer.write([{"p": 0, "k": 4, "v": 100}, {"p": 0, "k": 1000, "v": 100}])
            writer.commit()
        return commit(self, *arguments, **named)

    with inside_query(spark):
        sink(frame(spark, 0, 10, 0), 0)
        monkeypatch.setattr(Committer, "commit", overtaken)
        with pytest.raises(PipelineFailedError, match="ConflictError: .*another writer has added keys"):
            sink(frame(spark, 0, 20, 1), 1)
        assert isinstance(sink.failure, OutdatedAssignmentError)
        assert found(table) == dict.fromkeys(range(10), 0) | {4: 100, 1000: 100}
        sink(frame(spark, 0, 20, 1), 1)
    assert found(table) == dict.fromkeys(range(20), 1) | {1000: 100}
