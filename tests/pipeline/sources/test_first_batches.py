"""The first batch of a query does not finish, the table moves on, the query starts again: nothing is lost.

A quick case is in `test_table_chains`.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from freshet import Catalog, Table, register
from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.errors.failure import kind_of
from freshet.pipeline.exceptions import brief_reason
from tests.logstore.logged_tables import SCHEMA, folded, held, write

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


class Query:
    """A query over a table, with one checkpoint."""

    def __init__(self, spark: SparkSession, table: Table, **options: str) -> None:
        self.folder = Path(table.location).parent.parent
        self.frames = [{"scan.mode": "latest-full", **options}]
        """Options of its sources; their rows are united."""
        self.spark = spark
        self.kept: list[Any] = []

    def __call__(self, before: Callable[[], None] = lambda: None, **trigger: Any) -> None:
        def keep(batch: DataFrame, _: int) -> None:
            found = batch.collect()
            before()
            self.kept.extend(found)

        register(self.spark)
        where = {"warehouse": str(self.folder), "table": "db.t"}
        source = self.spark.readStream.format("freshet").options(**where)
        frames = [source.options(**given).load() for given in self.frames]
        query = reduce(DataFrame.unionByName, frames).writeStream.foreachBatch(keep)
        query = query.option("checkpointLocation", str(self.folder / "checkpoint"))
        query.trigger(**(trigger or {"availableNow": True})).start().awaitTermination()

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
    write(table, "+I 1 b | +I 30 c", "-D 2 x")
    query()
    assert folded(query.text) == held(table)


@pytest.mark.slow
def test_without_a_log(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path)
    planned_again(Query(spark, table, maxFilesPerTrigger="1"), table)


@pytest.mark.slow
def test_a_first_batch_that_an_earlier_version_has_begun_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path)
    query = Query(spark, table)
    query.fails()
    offsets = tmp_path / "checkpoint" / "offsets"
    version, settings, offset = (offsets / "0").read_text().splitlines()
    before = {key: value for key, value in json.loads(offset).items() if key != "begin"}
    assert before != json.loads(offset)
    (offsets / "0").write_text("\n".join([version, settings, json.dumps(before)]))
    (offsets / ".0.crc").unlink()
    with pytest.raises(PySparkException) as refused:
        query()
    assert kind_of(refused.value) is ErrorKind.INVALID_REQUEST
    assert "did not finish" in brief_reason(refused.value) and "new checkpoint" in brief_reason(refused.value)


@pytest.mark.slow
def test_two_sources_are_planned_again_each_from_its_beginning(spark: SparkSession, tmp_path: Path) -> None:
    """The same table twice, once with all rows and once from its second write on."""
    table = make(tmp_path)
    write(table, "+I 1 b")
    query = Query(spark, table)
    query.frames.append({"scan.mode": "from-snapshot", "scan.snapshot-id": "3"})
    query.fails()
    write(table, "+I 2 c")
    query()
    emitted = Counter((row["_ROW_KIND"], row["k"], row["v"]) for row in query.kept)
    updates = {("-U", 2, "a"): 2, ("+U", 2, "c"): 2, ("-U", 1, "a"): 1, ("+U", 1, "b"): 1}
    inserts = {("+I", key, "b" if key == 1 else "a"): 1 for key in range(20)}
    assert emitted == Counter({**inserts, **updates})


@pytest.mark.slow
def test_a_table_dropped_under_a_live_query_ends_it(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, make(tmp_path))
    with pytest.raises(PySparkException) as ended:
        query(lambda: Catalog(str(tmp_path)).drop_table("db.t"), processingTime="0 seconds")
    assert kind_of(ended.value) is ErrorKind.INVALID_REQUEST and "was dropped" in brief_reason(ended.value)
    assert not (tmp_path / "db.db" / "t").exists()


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.parametrize("isolation", ["committed", "speculative", "none"])
def test_with_a_log(spark: SparkSession, kafka_broker: ForeignBroker, tmp_path: Path, isolation: str) -> None:
    table = make_logged(tmp_path, kafka_broker)
    query = Query(spark, table, **{"log.read.isolation": isolation})
    planned_again(query, table)
