"""A pipeline file with background compaction, from the first batch to the end of the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from freshet import Catalog

ROOT = Path(__file__).resolve().parents[3]
BATCHES = 12

PIPELINE = """
name: stream
sources:
  - files: {{path: "{folder}/input", maxFilesPerTrigger: 1}}
    format: json
table:
  warehouse: "{folder}/warehouse"
  name: shop.t
  columns: {{id: BIGINT, v: STRING}}
  primary_key: [id]
  options: {{bucket: 2, changelog-producer: lookup}}
trigger: {{available_now: true}}
compaction: {{background: true, batch_budget: 0 s}}
checkpoint: "{folder}/checkpoint"
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_run_compacts_in_the_background_and_ends_cleanly(tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    for number in range(BATCHES):
        lines = [json.dumps({"id": key, "v": f"{number}"}) for key in range(number * 5, number * 5 + 40)]
        file = tmp_path / "input" / f"{number:02}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (1_700_000_000 + number,) * 2)  # Spark takes files of one millisecond in any order
    (tmp_path / "p.yaml").write_text(PIPELINE.format(folder=tmp_path))
    command = [sys.executable, "-m", "freshet.pipeline.commands.command_line", "run", str(tmp_path / "p.yaml")]
    run = subprocess.run([*command, "--progress", "json"], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    batches = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert len(batches) == BATCHES
    assert [batch["background"]["failure"] for batch in batches] == [None] * BATCHES, run.stderr
    table = Catalog(tmp_path / "warehouse").table("shop.t")
    kinds = [(snapshot.commit_user, str(snapshot.commit_kind)) for snapshot in table.snapshots()]
    assert ("stream-compact", "COMPACT") in kinds
    assert {entry.file.level for entry in table.files()} & {0} == set()
    held = {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
    assert held == {key: f"{min(key // 5, BATCHES - 1)}" for key in range(BATCHES * 5 + 35)}
