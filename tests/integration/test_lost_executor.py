"""An executor is killed amid a batch: Spark computes what was lost again; every row and every change is there once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.table import Table
from tests.integration.lost_executor_program import (
    DEAD_EACH,
    DYNAMIC_BATCHES,
    MAP_TASKS,
    MOVING_PARTITIONS,
    NEW_KEYS,
    RECORDS,
)
from tests.kit.changelog_files import changelog, folded
from tests.kit.s3_server import S3Place
from tests.pipeline.query.task.test_assigner_task import counts

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Place:
    """Where the tables lie, and the options of the catalog there."""

    folder: Path
    warehouse: str
    options: Mapping[str, str]

    def table(self, name: str) -> Table:
        return Catalog(self.warehouse, options=self.options).table(name)

    def run(self, kind: str) -> dict[str, object]:
        command = [sys.executable, "-m", "tests.integration.lost_executor_program", str(self.folder), self.warehouse]
        # Executors unpickle functions of the tests by name.
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": path, "FRESHET_CATALOG_OPTIONS": json.dumps(self.options)}
        done = subprocess.run([*command, kind], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, f"{done.stderr[:8000]}\n[...]\n{done.stderr[-2000:]}"
        answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        assert answer.pop("killed")
        if kind not in ("dynamic", "moving"):  # nearly always there: on a slow machine no task may have ended yet
            assert "is run again from its start" not in done.stderr, done.stderr
        return answer


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place(tmp_path, str(tmp_path), {})
    s3: S3Place = request.getfixturevalue("versitygw")
    return Place(tmp_path, s3.root, s3.options)


def test_decoded_records_are_counted_once(place: Place) -> None:
    dead, skipped = MAP_TASKS * DEAD_EACH, MAP_TASKS
    assert place.run("outcomes") == {
        "read": RECORDS,
        "applied": RECORDS - dead - skipped,
        "dead": {"no number": dead},
        "skipped": {"tombstone": skipped},
    }
    found = place.table("db.t").scan().to_arrow()["id"].to_pylist()
    assert len(found) == len(set(found)) == RECORDS - dead - skipped
    letters = place.table("db.dead").scan().to_arrow()["log_offset"].to_pylist()
    assert len(letters) == len(set(letters)) == dead


def test_rows_of_any_frame_are_counted_once(tmp_path: Path) -> None:
    place = Place(tmp_path, str(tmp_path), {})
    assert place.run("rows") == {"read": RECORDS, "applied": RECORDS, "dead": {}, "skipped": {}}
    found = place.table("db.t").scan().to_arrow()["id"].to_pylist()
    assert sorted(found) == list(range(RECORDS))


def test_changes_of_a_compaction_that_was_lost_are_emitted_once(place: Place) -> None:
    assert place.run("compaction") == {"read": RECORDS, "applied": RECORDS, "dead": {}, "skipped": {}}
    table = place.table("db.t")
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
    assert not table.remove_orphan_files(older_than_ms=-1_000_000).files
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(RECORDS))
    if not place.options:
        assert {path.name for path in Path(table.location).rglob("data-*")} == named


def test_keys_stay_in_their_dynamic_buckets_where_assigners_move_and_are_lost(tmp_path: Path) -> None:
    """An executor keeps the indexes that it assigned with last: those of an older snapshot when a task comes back."""
    place = Place(tmp_path, str(tmp_path), {})
    assert place.run("dynamic") == {"read": RECORDS, "applied": RECORDS, "dead": {}, "skipped": {}}
    table = place.table("db.t")
    rows = table.scan().to_arrow()
    expected = Counter(
        key for batch in range(DYNAMIC_BATCHES) for key in range(batch * NEW_KEYS, batch * NEW_KEYS + RECORDS)
    )
    assert rows.num_rows == len(expected), "a key is in two buckets"
    assert Counter(dict(zip(rows["id"].to_pylist(), rows["count"].to_pylist(), strict=True))) == expected
    (by_bucket,) = counts(table)
    assert sum(by_bucket.values()) == len(expected)
    assert max(by_bucket.values()) == 100
    assert not table.check().damage
    assert_assigners_moved(tmp_path)


def test_keys_stay_in_their_partitions_where_movers_move_and_are_lost(tmp_path: Path) -> None:
    """Two executors of a machine, of which either has any share of the index from batch to batch; one dies with it."""
    place = Place(tmp_path, str(tmp_path), {})
    assert place.run("moving") == {"read": RECORDS, "applied": RECORDS, "dead": {}, "skipped": {}}
    table = place.table("db.t")
    rows = table.scan().to_arrow().to_pylist()
    expected, first = Counter[int](), dict[int, int]()
    for batch in range(DYNAMIC_BATCHES):
        for key in range(batch * NEW_KEYS, batch * NEW_KEYS + RECORDS):
            expected[key] += 1
            first.setdefault(key, (key + batch) % MOVING_PARTITIONS)
    assert len(rows) == len(expected), "a key is in two partitions"
    assert {row["id"]: row["count"] for row in rows} == expected
    assert {row["id"]: row["part"] for row in rows} == first
    assert not table.check().damage
    assert_assigners_moved(tmp_path)


def assert_assigners_moved(folder: Path) -> None:
    workers: dict[str, set[str]] = {}
    for path in folder.glob("assigner-*"):
        _, _, partition, process = path.name.split("-")
        workers.setdefault(partition, set()).add(process)
    assert len(workers) > 1
    assert any(len(processes) > 1 for processes in workers.values()), "an assigner has moved"
