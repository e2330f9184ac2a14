"""Folders with a space, given as `Path.as_uri` writes them: Spark's files and Freshet's lie together."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from freshet.pipeline.checks.preflight import problems_before_start
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.running.runner import Runner
from freshet.storage.catalog import Catalog
from tests.pipeline.small_pipeline import TEXT

pytestmark = pytest.mark.spark


def test_a_pipeline_goes_on_whichever_way_its_folders_are_written(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    for number, given in enumerate((folder.as_uri(), str(folder), f"file://{folder}", folder.as_uri())):
        (folder / "in").mkdir(parents=True, exist_ok=True)
        (folder / "in" / f"{number}.json").write_text(f'{{"id": {number}}}\n')
        (tmp_path / "p.yaml").write_text(TEXT.replace("FOLDER", given))
        config = load_pipeline(tmp_path / "p.yaml", {})
        assert not problems_before_start(config)
        Runner(spark, [config]).run()
    rows = Catalog(folder / "w").table("s.t").scan().to_arrow().to_pylist()
    assert sorted(row["id"] for row in rows) == [0, 1, 2, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a b", "p.yaml"]
    assert {"commits", "freshet.json", "offsets"} <= {path.name for path in (folder / "c").iterdir()}
