"""An executor is killed after its map tasks: Spark computes them anew, and every row is there once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from freshet.storage.catalog import Catalog
from tests.integration.lost_executor_program import DEAD_EACH, MAP_TASKS, RECORDS

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]


def _run(folder: Path, kind: str) -> dict[str, object]:
    command = [sys.executable, "-m", "tests.integration.lost_executor_program", str(folder), kind]
    # Executors unpickle functions of the tests by name.
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    told: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    assert told.pop("killed")
    return told


def test_decoded_records_are_counted_once(tmp_path: Path) -> None:
    dead, skipped = MAP_TASKS * DEAD_EACH, MAP_TASKS
    assert _run(tmp_path, "outcomes") == {
        "read": RECORDS,
        "applied": RECORDS - dead - skipped,
        "dead": {"no number": dead},
        "skipped": {"tombstone": skipped},
    }
    catalog = Catalog(str(tmp_path))
    found = catalog.table("db.t").scan().to_arrow()["id"].to_pylist()
    assert len(found) == len(set(found)) == RECORDS - dead - skipped
    letters = catalog.table("db.dead").scan().to_arrow()["log_offset"].to_pylist()
    assert len(letters) == len(set(letters)) == dead


def test_rows_of_any_frame_are_counted_once(tmp_path: Path) -> None:
    assert _run(tmp_path, "rows") == {"read": RECORDS, "applied": RECORDS, "dead": {}, "skipped": {}}
    found = Catalog(str(tmp_path)).table("db.t").scan().to_arrow()["id"].to_pylist()
    assert sorted(found) == list(range(RECORDS))
