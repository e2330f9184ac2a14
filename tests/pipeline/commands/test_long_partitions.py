"""A record whose partition no folder can be named after does not stop a pipeline, and its replay neither."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from freshet.pipeline.commands import local_running
from freshet.pipeline.local.workers import WorkerPool
from freshet.storage.catalog import Catalog
from tests.pipeline.commands.kit import Freshet

PIPELINE = """\
name: orders
run_on: local
sources:
  - files: {path: "FOLDER/in"}
    format: json
table: {warehouse: "FOLDER/w", name: s.t, columns: {id: BIGINT, p: STRING}, partition_by: [p]}
trigger: {available_now: true}
checkpoint: "FOLDER/c"
"""


def test_a_run_goes_on_and_the_letter_is_one_again(
    freshet: Freshet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_running, "WorkerPool", lambda count, **_: WorkerPool(0))
    (tmp_path / "in").mkdir()
    rows = [{"id": 1, "p": "x" * 300}, {"id": 2, "p": "a"}]
    (tmp_path / "in" / "0.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = tmp_path / "orders.yaml"
    path.write_text(PIPELINE.replace("FOLDER", str(tmp_path)))
    assert "1 applied, 1 dead letter" in freshet.good("run", path).out
    replayed = freshet.good("dead-letters", tmp_path / "w", "s.t", "--replay", path, "--json").facts
    reason = "the name of its partition's folder would have more than 255 bytes"
    assert replayed["dead_letters"] == {reason: 1}
    assert Catalog(tmp_path / "w").table("s.t").scan().to_arrow().to_pylist() == rows[1:]
