"""Driver and Python workers of one Spark session use an object store at once, again and again.

A forked child of a process that has used a store cannot use one (`object_file_io`): Spark's Python daemon, which forks
the workers, must never do so, nor may what it loads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StructField, StructType

from freshet.pipeline.commands.executors import executors
from freshet.pipeline.config.catalogs import prefixed
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.running.spark_pipeline import spark_runner
from freshet.pipeline.sources.batch_source import register
from freshet.pipeline.spark.arrow_bridge import KeptColumns
from freshet.pipeline.spark.table_sink import TableSink, table_sink
from freshet.storage.catalog import Catalog
from freshet.storage.io import object_stores
from freshet.storage.table import Table
from tests.kit.s3_server import S3Place
from tests.kit.spark import inside_query

pytestmark = pytest.mark.spark

ROWS = 300


def _user_of_the_store(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    assert sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"worker": [os.getpid()], "user": pa.array([object_stores._used_in], pa.int64())})


def _workers(spark: SparkSession) -> dict[int, int | None]:
    """Worker processes, and which process each believes to have used a store first."""
    schema = StructType([StructField("worker", LongType()), StructField("user", LongType())])
    frame = KeptColumns([F.col("id")]).map_in_arrow(spark.range(0, ROWS, 1, 4), _user_of_the_store, schema)
    return {row["worker"]: row["user"] for row in frame.collect()}


def _rows(spark: SparkSession, text: str) -> DataFrame:
    return spark.range(0, ROWS, 1, 4).selectExpr("id", f"'{text}' AS v")


def _table(s3: S3Place) -> Table:
    return Catalog(s3.root, options=s3.sent_options).create_table(
        "db.t",
        schema={"id": "BIGINT", "v": "STRING"},
        primary_keys=["id"],
        options={"bucket": "2", "changelog-producer": "lookup"},
    )


@pytest.fixture
def sink(s3: S3Place) -> Iterator[TableSink]:
    _table(s3)
    made = table_sink(s3.root, "db.t", commit_user="stream", catalog_options=s3.sent_options)
    yield made
    made.close()


def test_workers_are_forked_from_a_process_that_has_used_no_store(
    spark: SparkSession, s3: S3Place, sink: TableSink
) -> None:
    register(spark)
    written: set[int] = set()
    for number, text in enumerate(["a", "b"]):
        with inside_query(spark):
            sink(_rows(spark, text), number)
        found = _workers(spark)
        assert all(user in (None, worker) for worker, user in found.items()), found
        written |= {worker for worker, user in found.items() if user is not None}
        frame = spark.read.format("freshet").options(warehouse=s3.root, table="db.t", **prefixed(s3.sent_options))
        assert {row["v"] for row in frame.load().collect()} == {text}
    assert written, "no worker is left of those that wrote"
    table = Catalog(s3.root, options=s3.options).table("db.t")
    assert table.scan().to_arrow().num_rows == ROWS
    with executors("freshet compact") as elsewhere:
        Catalog(s3.root, options=s3.sent_options).table("db.t").compact(full=True, elsewhere=elsewhere)
    assert {entry.file.level for entry in table.files()} == {5}


@pytest.mark.slow
def test_changes_are_followed_from_table_to_table(spark: SparkSession, s3: S3Place, tmp_path: Path) -> None:
    register(spark)
    table = _table(s3)
    copy = Catalog(s3.root, options=s3.sent_options).create_table(
        "db.copy", schema={"id": "BIGINT", "v": "STRING"}, primary_keys=["id"], options={"bucket": "1"}
    )
    for text in ("first", "second"):
        with table.writer("writer") as writer:
            writer.write([{"id": key, "v": text} for key in range(20)])
            writer.commit()
        source = spark.readStream.format("freshet").options(
            warehouse=s3.root, table="db.t", **{"scan.mode": "latest-full"}, **prefixed(s3.sent_options)
        )
        target = table_sink(s3.root, "db.copy", commit_user="copy", catalog_options=s3.sent_options)
        stream = source.load().writeStream.foreachBatch(target).option("checkpointLocation", str(tmp_path / "c"))
        assert stream.trigger(availableNow=True).start().awaitTermination(300)
        target.close()
        assert {row["v"] for row in copy.scan().to_arrow().to_pylist()} == {text}


PIPELINE = """\
name: orders
catalog: {options}
sources:
  - files: {{path: "{folder}/in", maxFilesPerTrigger: 1}}
    format: json
table:
  warehouse: {root}
  name: shop.orders
  columns: {{id: BIGINT, v: STRING}}
  primary_key: [id]
  options: {{bucket: 2, changelog-producer: lookup}}
compaction: {{background: true, batch_budget: 0 s}}
trigger: {{available_now: true}}
checkpoint: "{folder}/c"
"""


@pytest.mark.always("crossing: table_sink")
@pytest.mark.slow
def test_a_pipeline_with_dead_letters_and_background_compaction(
    spark: SparkSession, s3: S3Place, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(6):
        lines = [json.dumps({"id": key, "v": f"{number}"}) for key in range(number * 5, number * 5 + 40)]
        file = tmp_path / "in" / f"{number}.json"
        file.write_text("\n".join([*lines, '{"id": "none"}']))
        os.utime(file, (1_700_000_000 + number,) * 2)
    text = PIPELINE.format(options=json.dumps(s3.sent_options), folder=tmp_path, root=s3.root)
    (tmp_path / "p.yaml").write_text(text)
    reports: list[object] = []
    spark_runner(spark, [load_pipeline(tmp_path / "p.yaml", {})], on_progress=reports.append, say=lambda _: None).run()
    assert len(reports) == 6
    catalog = Catalog(s3.root, options=s3.options)
    held = {row["id"]: row["v"] for row in catalog.table("shop.orders").scan().to_arrow().to_pylist()}
    assert held == {key: f"{min(key // 5, 5)}" for key in range(65)}
    assert catalog.table("shop.orders_dead_letters").scan().to_arrow().num_rows == 6
    assert any(each.commit_user == "orders-compact" for each in catalog.table("shop.orders").snapshots())
