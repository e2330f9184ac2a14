"""The Spark source over a table with a log: its rows, then its changes from a real broker, once, over restarts."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from freshet import Catalog, Table, register
from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.storage.logs.log_systems import TaskLog
from tests.logstore.logged_tables import SCHEMA, folded, held, rows, write

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ISOLATIONS = ("speculative", "committed", "none")
_NUMBERS = itertools.count()


@pytest.fixture
def table(kafka_broker: ForeignBroker, tmp_path: Path) -> Table:
    """Its address is not among the options of the table: each reader brings it."""
    options = {
        "bucket": "2",
        "changelog-producer": "lookup",
        "log.system": "kafka",
        "kafka.topic": f"hybrid-{os.getpid()}-{next(_NUMBERS)}",
    }
    made = Catalog(str(tmp_path)).create_table("db.t", schema=SCHEMA, primary_keys=["k"], options=options)
    return made.with_options({"kafka.bootstrap.servers": kafka_broker.bootstrap_servers})


def frame(spark: SparkSession, table: Table, **options: str) -> DataFrame:
    register(spark)
    reader = spark.readStream.format("freshet").option("warehouse", str(Path(table.location).parent.parent))
    servers = table.options.given["kafka.bootstrap.servers"]
    given = {"table": "db.t", "scan.mode": "latest-full", "kafka.bootstrap.servers": servers, **options}
    for name, text in given.items():
        reader = reader.option(name, text)
    return reader.load()


class Kept:
    """What a query has handed to its sink, batch by batch."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.before: Callable[[], None] = lambda: None

    def __call__(self, batch: DataFrame, _: int) -> None:
        found = batch.collect()
        self.before()
        self.batches.append(found)

    @property
    def text(self) -> str:
        return " | ".join(f"{row['_ROW_KIND']} {row['k']} {row['v']}" for batch in self.batches for row in batch)


def started(spark: SparkSession, source: DataFrame, kept: Kept, checkpoint: Path) -> StreamingQuery:
    writer = source.writeStream.foreachBatch(kept).option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime="0 seconds").start()


def run(source: DataFrame, kept: Kept, checkpoint: Path) -> None:
    writer = source.writeStream.foreachBatch(kept).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.slow
@pytest.mark.parametrize(
    "isolation", [pytest.param(ISOLATIONS[0], marks=pytest.mark.always("crossing: log")), *ISOLATIONS[1:]]
)
def test_rows_then_changes_over_restarts_and_limits(
    spark: SparkSession, table: Table, tmp_path: Path, isolation: str
) -> None:
    write(table, " | ".join(f"+I {key} a{key}" for key in range(20)))
    options = {
        "log.read.isolation": isolation,
        "maxFilesPerTrigger": "1",
        "maxOffsetsPerTrigger": "1",
        "consumer-id": "audit",
    }
    kept, checkpoint = Kept(), tmp_path / "checkpoint"
    run(frame(spark, table, **options), kept, checkpoint)
    assert len(kept.batches) == 2  # one of each bucket
    write(table, "+I 3 b | -D 4 x | +I 30 c", "+I 3 d")
    run(frame(spark, table, **options), kept, checkpoint)
    count = len(kept.batches)
    run(frame(spark, table, **options), kept, checkpoint)
    assert len(kept.batches) == count > 3
    assert folded(kept.text) == held(table)
    latest = table.latest_snapshot()
    assert latest is not None and 1 < table.consumers()["audit"] <= latest.id + 1


@pytest.mark.slow
def test_a_batch_that_failed_comes_again_as_it_was(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    """The sink fails after it has read; meanwhile what was shown is overtaken by another attempt."""
    write(table, "+I 1 a")
    options = {"log.read.isolation": "speculative"}
    kept, checkpoint = Kept(), tmp_path / "checkpoint"
    run(frame(spark, table, **options), kept, checkpoint)
    _begun(table, "+I 1 b | +I 2 x")

    def fail() -> None:
        raise RuntimeError("the sink is full")

    failing = Kept()
    failing.before = fail
    with pytest.raises(PySparkException, match="the sink is full"):
        run(frame(spark, table, **options), failing, checkpoint)
    write(table, "+I 1 c")
    run(frame(spark, table, **options), kept, checkpoint)
    assert {(row["_ROW_KIND"], row["k"], row["v"]) for row in kept.batches[1]} == {
        ("-U", 1, "a"), ("+U", 1, "b"), ("+I", 2, "x")
    }  # fmt: skip
    assert folded(kept.text) == held(table) == {1: "c"}


def _begun(table: Table, text: str) -> Callable[[], Any]:
    driver = table.engine.log.open("u")
    base = table.latest_snapshot()
    assert base is not None
    task = table.engine.task_writer(base_snapshot_id=base.id, log=TaskLog(driver.identity, driver.epoch, 1))
    task.write(rows(text))
    messages = task.prepare_commit(1)
    return lambda: table.engine.committer("u", log=driver.identity).commit(1, messages)


@pytest.mark.slow
def test_a_running_query_shows_rows_before_their_commit(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    write(table, "+I 1 a")
    fast, safe = Kept(), Kept()
    queries = [
        started(spark, frame(spark, table, **{"log.read.isolation": isolation}), kept, tmp_path / isolation)
        for isolation, kept in (("speculative", fast), ("committed", safe))
    ]
    try:
        _until(queries, lambda: fast.text == safe.text == "+I 1 a")
        commit = _begun(table, "+I 1 b")
        _until(queries, lambda: fast.text == "+I 1 a | -U 1 a | +U 1 b")
        assert safe.text == "+I 1 a"
        commit()
        _until(queries, lambda: safe.text == fast.text)
    finally:
        for query in queries:
            query.stop()


def _until(queries: list[StreamingQuery], is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        if is_so():
            return
        for query in queries:
            query.awaitTermination(timeout=0.05)  # raises what the query has failed with
    pytest.fail("the queries have not come so far")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"log.read.isolation": "serializable"}, "is one of committed, speculative, none"),
        ({"log.system": "none"}, "unknown option"),
        ({"maxOffsetsPerTrigger": "0"}, "must be greater than 0"),
    ],
)
def test_what_makes_no_sense_is_refused(
    spark: SparkSession, table: Table, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        frame(spark, table, **options)
