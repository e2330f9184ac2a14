"""Sources: what Spark is asked for, and that lines of files keep the order (modification time, path, row)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from freshet.pipeline.config.pipeline_file import parse_pipeline
from freshet.pipeline.decode.outcomes import ORDER_COLUMNS, TAG_DATA, TAG_TALLY, Tally
from freshet.pipeline.sources.outcome_frame import decoded_frame
from freshet.pipeline.sources.raw_frame import read_stream

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
    frame = decoded_frame(read_stream(spark, config.sources[0]), config, 0)
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    assert query.awaitTermination(600)
    rows = [row for row in found if row["_tag"] == TAG_DATA]
    ordered = sorted(rows, key=lambda row: tuple(-1 if row[name] is None else row[name] for name in ORDER_COLUMNS))
    data = [(row["_d1"], row["_d0"]) for row in ordered]
    assert data == [(name, row) for name in ("b.json", "c.json", "a.json") for row in range(3)]
    tallies = [Tally.decode(bytes(row["_raw_value"])) for row in found if row["_tag"] == TAG_TALLY]
    assert sum(each.skipped["blank line"] for each in tallies) == 3
    assert {os.path.basename(row["_topic"]) for row in rows} == {"a.json", "b.json", "c.json"}
