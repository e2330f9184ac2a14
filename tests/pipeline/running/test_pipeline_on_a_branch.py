"""A pipeline whose table is a branch, and Spark's readers of it, by the name of the branch."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from freshet import register
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.query.driver.table_setup import check_table
from freshet.pipeline.running.progress import PipelineState
from freshet.pipeline.running.restarts import RestartRule
from freshet.pipeline.running.spark_pipeline import spark_runner
from freshet.pipeline.spark.table_sink import table_sink
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import NotFoundError

pytestmark = pytest.mark.spark

PIPELINE = """
name: branchy
sources:
  - files: {path: "FOLDER/in"}
    format: json
table:
  warehouse: "FOLDER/w"
  name: s.t$branch_b
  columns: {id: BIGINT, v: STRING}
  primary_key: [id]
  options: {bucket: 2}
trigger: {available_now: true}
checkpoint: "FOLDER/c"
"""


@pytest.mark.slow
def test_a_pipeline_into_a_branch_and_streams_of_it(spark: SparkSession, tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "w")
    table = catalog.create_table(
        "s.t", schema={"id": "BIGINT", "v": "STRING"}, primary_keys=["id"], options={"bucket": 2}
    )
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1, "v": "a"}\n{"id": 2, "v": "b"}\n')
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE.replace("FOLDER", str(tmp_path)))
    configs = load_pipelines([file])
    with pytest.raises(NotFoundError, match=r"no branch s\.t\$branch_b"):
        check_table(configs[0])
    table.branches.create("b")
    assert check_table(configs[0]) == []
    failures: list[PipelineState] = []
    spark_runner(spark, configs, say=lambda _: None, restarts=RestartRule(0), on_state=failures.append).run()
    assert not failures
    branch = catalog.table("s.t$branch_b")
    assert sorted(branch.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    assert table.latest_snapshot() is None

    register(spark)
    place = {"warehouse": str(tmp_path / "w"), "table": "s.t$branch_b"}
    assert spark.read.format("freshet").options(**place).load().count() == 2
    table.branches.create("copy")
    sink = table_sink(tmp_path / "w", "s.t$branch_copy", commit_user="copy")
    asked = {"scan.mode": "latest-full", "consumer-id": "c", "upserts": "true"}
    stream = spark.readStream.format("freshet").options(**place, **asked).load().drop("_ROW_KIND")
    query = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "c2"))
    query.trigger(availableNow=True).start().awaitTermination()
    sink.close()
    copied = catalog.table("s.t$branch_copy").scan().to_arrow().to_pylist()
    assert sorted(row["v"] for row in copied) == ["a", "b"]
    assert list(branch.consumers()) == ["c"]
    assert table.consumers() == {}
    assert table.latest_snapshot() is None
