"""Sources: what Spark is asked for, and that lines of files keep the order (modification time, path, row)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from freshet.pipeline.config.pipeline_file import parse_pipeline
from freshet.pipeline.spark.sources import read_stream
from freshet.pipeline.transforms import envelope

pytestmark = pytest.mark.spark

FILE_PIPELINE = """\
name: files
sources:
  - files: {{path: {path}, maxFilesPerTrigger: 10, pathGlobFilter: "*.json"}}
    format: json
table:
  warehouse: /w
  name: shop.orders
  columns: {{id: BIGINT, place: STRING}}
  primary_key: [id]
  options: {{bucket: 1}}
trigger: {{available_now: true}}
checkpoint: /c
"""


def test_lines_of_files_are_read_in_the_order_of_time_path_and_row(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, seconds in (("b.json", 1000), ("a.json", 2000), ("c.json", 1000), ("x.txt", 1)):
        path = folder / name
        path.write_text("".join(f'{{"id": {row}, "place": "{name}"}}\n' for row in range(3)) + "\n")
        os.utime(path, (seconds, seconds))
    config, problems = parse_pipeline(FILE_PIPELINE.format(path=folder), "p.yaml", {})
    assert config is not None, problems
    found = []
    frame = envelope(read_stream(spark, config.sources[0]), config, config.sources[0])
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    assert query.awaitTermination(120)
    ordered = sorted(found, key=lambda row: tuple(-1 if part is None else part for part in row["order"][:6]))
    data = [(row.data.place, row.data.id) for row in ordered if row.tag == 0]
    assert data == [(name, row) for name in ("b.json", "c.json", "a.json") for row in range(3)]
    assert [row.reason for row in found if row.tag == 2] == ["blank line"] * 3
    assert {os.path.basename(row["order"].topic) for row in found} == {"a.json", "b.json", "c.json"}
