"""What `check` and `run` say of a checkpoint that a run without Spark cannot go on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.pipeline.commands.local_running import look_at_checkpoints
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.pipeline_file import load_pipeline

FILE = """
name: orders
run_on: local
sources:
  - files: {path: FOLDER/in}
    format: json
table: {warehouse: FOLDER/lake, name: shop.orders, primary_key: [id], columns: {id: BIGINT}}
checkpoint: "CHECKPOINT"
"""


def _config(folder: Path, checkpoint: str) -> PipelineConfig:
    path = folder / "orders.yaml"
    path.write_text(FILE.replace("FOLDER", str(folder)).replace("CHECKPOINT", checkpoint))
    return load_pipeline(path, {})


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        ('v2\n{"conf":{}}\n0:-', "is of version 2"),
        ('v1\n{"conf":{}}\n-\n-', "is of 2 sources, and the pipeline has 1"),
        ("", "is empty or damaged"),
    ],
)
def test_a_checkpoint_of_another_kind(tmp_path: Path, offsets: str, said: str) -> None:
    config = _config(tmp_path, str(tmp_path / "c"))
    assert look_at_checkpoints([config]) == []
    assert not (tmp_path / "c").exists()
    (tmp_path / "c" / "offsets").mkdir(parents=True)
    (tmp_path / "c" / "offsets" / "0").write_text(offsets)
    (tmp_path / "c" / "metadata").write_text('{"id":"3a"}')
    (problem,) = look_at_checkpoints([config])
    assert problem.key_path == ("checkpoint",) and said in problem.message
    assert problem.path is not None and problem.path.endswith("orders.yaml")


def test_a_checkpoint_where_only_spark_can_keep_one(tmp_path: Path) -> None:
    (problem,) = look_at_checkpoints([_config(tmp_path, "hdfs://name/c")])
    assert problem.key_path == ("checkpoint",) and "not at hdfs://" in problem.message
