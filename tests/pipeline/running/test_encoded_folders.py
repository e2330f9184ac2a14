"""Odd names of folders and files: folders with a space, given as `Path.as_uri` writes them, so that Spark's files and
Freshet's lie together, and files whose names look like patterns."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.pipeline.checks.preflight import problems_before_start
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.local.workers import WorkerPool
from freshet.pipeline.running.engine_pipeline import PipelineEngine
from freshet.pipeline.running.local_pipeline import LocalPipelines
from freshet.pipeline.running.runner import Runner
from freshet.storage.catalog import Catalog
from tests.pipeline.small_pipeline import TEXT


def test_a_pipeline_goes_on_whichever_way_its_folders_are_written(engine: PipelineEngine, tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    for number, given in enumerate((folder.as_uri(), str(folder), f"file://{folder}", folder.as_uri())):
        (folder / "in").mkdir(parents=True, exist_ok=True)
        (folder / "in" / f"{number}.json").write_text(f'{{"id": {number}}}\n')
        (tmp_path / "p.yaml").write_text(TEXT.replace("FOLDER", given))
        config = load_pipeline(tmp_path / "p.yaml", {})
        assert not problems_before_start(config)
        Runner(engine, [config]).run()
    rows = Catalog(folder / "w").table("s.t").scan().to_arrow().to_pylist()
    assert sorted(row["id"] for row in rows) == [0, 1, 2, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a b", "p.yaml"]
    assert {"commits", "freshet.json", "offsets"} <= {path.name for path in (folder / "c").iterdir()}


@pytest.mark.parametrize("odd", ["a?", "b*", "c[d]", "e{f,g}", "h\\i"])
def test_the_name_of_a_file_is_no_pattern(engine: PipelineEngine, tmp_path: Path, odd: str) -> None:
    """Spark would read every file of the folder once more for each: it is refused there, and read without Spark."""
    (tmp_path / "in").mkdir()
    for number, name in enumerate(("plain", odd, "other")):
        (tmp_path / "in" / f"{name}.json").write_text(f'{{"id": {number}}}\n')
    (tmp_path / "p.yaml").write_text(TEXT.replace("FOLDER", str(tmp_path)))
    config = load_pipeline(tmp_path / "p.yaml", {})
    if not isinstance(engine, LocalPipelines):
        with pytest.raises(PipelineFailedError, match="takes for a pattern") as refused:
            Runner(engine, [config]).run()
        assert refused.value.exit_code == 65 and f"{odd}.json" in str(refused.value)
        engine = LocalPipelines(WorkerPool(0))
    Runner(engine, [config]).run()
    rows = Catalog(tmp_path / "w").table("s.t").scan().to_arrow().to_pylist()
    assert sorted(row["id"] for row in rows) == [0, 1, 2]
