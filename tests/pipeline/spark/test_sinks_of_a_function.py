"""What users do with sinks in a `foreachBatch` function of their own, as real queries."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from freshet import Catalog, Table, table_sink
from freshet.pipeline.spark.table_sink import TableSink

pytestmark = pytest.mark.spark

Function = Callable[[DataFrame, int], None]


class _Dies(Exception):
    """The driver, after what it has done."""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    (tmp_path / "in").mkdir()
    schema, options = {"id": "BIGINT", "n": "BIGINT"}, {"bucket": "1"}
    return Catalog(tmp_path / "w").create_table("db.t", schema=schema, primary_keys=["id"], options=options)


def sink(folder: Path, user: str = "user") -> TableSink:
    return table_sink(str(folder / "w"), "db.t", commit_user=user)


def put(folder: Path, *ids: int) -> None:
    number = len(list((folder / "in").iterdir()))
    path = folder / "in" / f"{number}.json"
    path.write_text("".join(f'{{"id": {each}, "n": {number}}}\n' for each in ids))
    os.utime(path, (number, number))


def started(spark: SparkSession, folder: Path, function: Function, *, mode: str = "append") -> StreamingQuery:
    stream = spark.readStream.schema("id bigint, n bigint").option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    frame = stream if mode == "append" else stream.groupBy("id").agg({"*": "count"}).toDF("id", "n")
    writer = frame.writeStream.outputMode(mode).option("checkpointLocation", str(folder / "c"))
    return writer.trigger(availableNow=True).foreachBatch(function).start()


def run(spark: SparkSession, folder: Path, function: Function, *, mode: str = "append") -> None:
    assert started(spark, folder, function, mode=mode).awaitTermination(600)


def rows(table: Table) -> dict[int, int]:
    return {row["id"]: row["n"] for row in table.scan().to_arrow().to_pylist()}


def test_a_batch_is_given_to_one_sink_of_a_commit_user(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    """The second call found its batch in the table, as a replay does, and wrote nothing."""
    put(tmp_path, 1, 2)
    first, second = sink(tmp_path), sink(tmp_path)
    for other in (first, second):

        def twice(frame: DataFrame, number: int, other: TableSink = other) -> None:
            first(frame.where("id = 1"), number)
            other(frame.where("id = 2"), number)

        for _ in range(2):  # a driver that died between the two finds the same
            with pytest.raises(StreamingQueryException, match=r"batch 0 was given to a sink of .*'user'.*union"):
                run(spark, tmp_path, twice)
    assert rows(table) == {1: 0}

    def by_two_users(frame: DataFrame, number: int) -> None:
        first(frame.where("id = 1"), number)
        sink(tmp_path, "other")(frame.where("id = 2"), number)

    run(spark, tmp_path, by_two_users)
    put(tmp_path, 1, 2)
    run(spark, tmp_path, by_two_users)
    assert rows(table) == {1: 1, 2: 1}


@pytest.mark.slow
def test_a_call_after_an_error_is_a_replay(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    put(tmp_path, 1)
    target = sink(tmp_path)

    def again(frame: DataFrame, number: int) -> None:
        try:
            target(frame.selectExpr("id", "n", "1 AS unknown"), number)
        except Exception:  # noqa: BLE001 - whatever it is, the user tries once more
            target(frame, number)

    run(spark, tmp_path, again)
    assert rows(table) == {1: 0}


@pytest.mark.slow
def test_a_replay_of_a_stateful_query_runs_its_frame(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    """Spark ends a query whose state was not written, with the second format of checkpoints at every restart."""
    put(tmp_path, 1, 2, 2)
    target = sink(tmp_path)

    def dies(frame: DataFrame, number: int) -> None:
        target(frame, number)
        raise _Dies

    spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    try:
        with pytest.raises(StreamingQueryException, match="_Dies"):
            run(spark, tmp_path, dies, mode="update")
        run(spark, tmp_path, target, mode="update")
        put(tmp_path, 2, 3)
        run(spark, tmp_path, target, mode="update")
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.checkpointFormatVersion")
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
    assert rows(table) == {1: 1, 2: 3, 3: 1}


def test_a_query_that_is_stopped_in_a_batch_has_not_failed(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    put(tmp_path, 1)
    target, begun = sink(tmp_path), tmp_path / "begun"

    def slow(frame: DataFrame, number: int) -> None:
        begun.touch()
        nap = "java_method('java.lang.Thread', 'sleep', CAST(120000 AS BIGINT))"
        target(frame.selectExpr("id", f"IF({nap} IS NULL, n, 1) AS n"), number)

    query = started(spark, tmp_path, slow)
    deadline = time.monotonic() + 120
    while not (begun.exists() and spark.sparkContext.statusTracker().getActiveStageIds()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    query.stop()
    assert query.exception() is None
    run(spark, tmp_path, target)
    assert rows(table) == {1: 0}


def test_complete_output_is_refused(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    put(tmp_path, 1)
    with pytest.raises(StreamingQueryException, match=r"outputMode\('complete'\) gives all.*outputMode\('update'"):
        run(spark, tmp_path, sink(tmp_path), mode="complete")
    assert table.snapshots() == []


def test_a_table_that_was_rolled_back_below_the_checkpoint(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    for number in range(3):
        put(tmp_path, number)
    run(spark, tmp_path, sink(tmp_path))
    table.rollback(2)
    put(tmp_path, 3)
    with pytest.raises(StreamingQueryException, match="does not hold batch 2 of commit user 'user'"):
        run(spark, tmp_path, sink(tmp_path))
    assert sorted(rows(table)) == [0, 1]


def test_a_commit_user_that_is_renamed_over_a_checkpoint(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    put(tmp_path, 1)
    target = sink(tmp_path)

    def dies(frame: DataFrame, number: int) -> None:
        target(frame, number)
        raise _Dies

    with pytest.raises(StreamingQueryException, match="_Dies"):
        run(spark, tmp_path, dies)
    with pytest.raises(StreamingQueryException, match="as commit user 'user' up to batch 0"):
        run(spark, tmp_path, sink(tmp_path, "renamed"))
    assert len(table.snapshots()) == 1
