"""An executor is killed amid a batch: Spark computes what was lost again; every row and every change is there once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from freshet.storage.catalog import Catalog
from tests.integration.lost_executor_program import DEAD_EACH, MAP_TASKS, RECORDS
from tests.kit.changelog_files import changelog, folded

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


def _run(folder: Path, kind: str) -> dict[str, object]:
    command = [sys.executable, "-m", "tests.integration.lost_executor_program", str(folder), kind]
    # Executors unpickle functions of the tests by name.
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    assert answer.pop("killed")
    return answer


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


def test_changes_of_a_compaction_that_was_lost_are_emitted_once(tmp_path: Path) -> None:
    assert _run(tmp_path, "compaction") == {"read": RECORDS, "applied": RECORDS, "dead": {}, "skipped": {}}
    table = Catalog(str(tmp_path)).table("db.t")
    found = table.scan().to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": number, "name": f"n{number}"} for number in range(RECORDS)]
    changes = changelog(table)
    assert Counter(change.kind for each in changes.values() for change in each) == dict.fromkeys(
        ("+I", "-U", "+U"), RECORDS
    )
    assert sorted(row["id"] for row in folded(changes.values(), ["id"]).values()) == list(range(RECORDS))
    named = {entry.file.file_name for entry in table.files()}
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**60)
    assert table.remove_orphan_files(older_than_ms=-1_000_000).files, "what the lost compaction had written"
    assert {path.name for path in Path(table.location).rglob("data-*")} == named
