"""The first batch of a query does not finish, the table moves on, the query starts again: nothing is lost."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from freshet import Catalog, Table, register
from tests.kit.kafka_broker import ForeignBroker
from tests.kit.quick import some_now
from tests.logstore.logged_tables import SCHEMA, rows
from tests.logstore.test_logged_tables import folded, held

pytestmark = pytest.mark.spark

_NUMBERS = itertools.count()


def make(folder: Path, **options: str) -> Table:
    given = {"bucket": "2", "changelog-producer": "lookup", **options}
    made = Catalog(str(folder)).create_table("db.t", schema=SCHEMA, primary_keys=["k"], options=given)
    write(made, " | ".join(f"+I {key} a" for key in range(20)))
    return made


def make_logged(folder: Path, broker: ForeignBroker) -> Table:
    topic = f"first-{os.getpid()}-{next(_NUMBERS)}"
    servers = {"kafka.topic": topic, "kafka.bootstrap.servers": broker.bootstrap_servers}
    return make(folder, **{"log.system": "kafka", **servers})


def write(table: Table, *texts: str) -> None:
    with table.writer("u") as writer:
        for text in texts:
            writer.write(rows(text))
            writer.commit()


class Query:
    """A query over a table, with one checkpoint."""

    def __init__(self, spark: SparkSession, table: Table, **options: str) -> None:
        self.folder = Path(table.location).parent.parent
        self.given = {"warehouse": str(self.folder), "table": "db.t", "scan.mode": "latest-full", **options}
        self.spark = spark
        self.kept: list[Any] = []

    def __call__(self, before: Callable[[], None] = lambda: None) -> None:
        def keep(batch: DataFrame, _: int) -> None:
            found = batch.collect()
            before()
            self.kept.extend(found)

        register(self.spark)
        frame = self.spark.readStream.format("freshet").options(**self.given).load()
        query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(self.folder / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    def fails(self) -> None:
        def fail() -> None:
            raise RuntimeError("the sink is full")

        with pytest.raises(PySparkException, match="the sink is full"):
            self(fail)

    @property
    def text(self) -> str:
        return " | ".join(f"{row['_ROW_KIND']} {row['k']} {row['v']}" for row in self.kept)


def planned_again(query: Query, table: Table) -> None:
    query.fails()
    write(table, "+I 1 b | +I 30 c")
    query.fails()
    write(table, "-D 2 x")
    query()
    assert folded(query.text) == held(table)


@pytest.mark.parametrize("limit", some_now([{}, {"maxFilesPerTrigger": "1"}]))
def test_without_a_log(spark: SparkSession, tmp_path: Path, limit: dict[str, str]) -> None:
    table = make(tmp_path)
    planned_again(Query(spark, table, **limit), table)


@pytest.mark.kafka
@pytest.mark.parametrize("isolation", some_now(["committed", "speculative", "none"]))
def test_with_a_log(spark: SparkSession, kafka_broker: ForeignBroker, tmp_path: Path, isolation: str) -> None:
    table = make_logged(tmp_path, kafka_broker)
    query = Query(spark, table, **{"log.read.isolation": isolation})
    planned_again(query, table)
