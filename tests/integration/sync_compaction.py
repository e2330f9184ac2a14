"""Many tables by one query that compacts them in the background: one that fails, and a driver killed in a commit.

Run by `test_own_sessions` in a process of its own.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from freshet.pipeline.query.driver.table_rounds import TakenUnit
from freshet.pipeline.running.progress import Progress
from freshet.pipeline.running.progress_report import progress_facts
from freshet.storage.io.env import CrashPoint
from tests.integration.source_world import SyncWorld

pytest_plugins = ["tests.integration.source_fixtures"]
pytestmark = [pytest.mark.spark, pytest.mark.kafka]

BATCHES, ROWS = 12, 10
"""Of a run, and of each of two tables in a batch."""


def write(world: SyncWorld, first: int = 0) -> None:
    """Changes of so many batches."""
    for number in range(first, first + BATCHES):
        for table in world.tables.values():
            more = {name: f"{number}" for name in table.columns if name == "more"}
            world.send(table, table.upsert(*({"id": number * 5 + i, "n": number, **more} for i in range(ROWS))))


def file_of(world: SyncWorld) -> Path:
    """The pipeline, whose batches have as many records as `write` sends for one."""
    world.rules = f"[{{from: '{world.db}.public.(.*)', to: 'lake.$1', options: {{bucket: 1, {KEPT}}}}}]"
    world.more = "compaction: {background: true, batch_budget: 0 s}"
    file = world.file
    count = ROWS * len(world.tables)
    file.write_text(file.read_text().replace("earliest,", f"earliest, maxOffsetsPerTrigger: {count},"))
    return file


KEPT = "changelog-producer: lookup, snapshot.num-retained.min: 1000, snapshot.num-retained.max: 1000"


def background_of(progress: list[Progress]) -> list[dict[str, Any]]:
    return [progress_facts(each, 0)["background"] for each in progress]


def units(world: SyncWorld, name: str) -> int:
    return sum(each.commit_user == "shop-compact" for each in world.target(name).snapshots())


def is_sound(world: SyncWorld, name: str) -> bool:
    """No damage, and no row of level 0, which readers of a changelog would wait for."""
    table = world.target(name)
    return not table.check().damage and 0 not in {entry.file.level for entry in table.files()}


@pytest.fixture
def two(world: SyncWorld) -> SyncWorld:
    for name in ("a", "b"):
        world.table(name, {"id": "int", "n": "int"}, kafka_partitions=1)
    write(world)
    return world


def test_the_tables_of_a_query_are_compacted_in_the_background(two: SyncWorld) -> None:
    progress = two.run(file_of(two))
    assert len(progress) >= BATCHES
    assert [each["failure"] for each in background_of(progress)] == [None] * len(progress)
    two.tables["a"].add_column("more", "text")  # a new column, and a new table
    new = two.table("c", {"id": "int", "n": "int"}, kafka_partitions=1)
    write(two, BATCHES)
    progress += two.run(file_of(two))
    assert {each["failure"] for each in background_of(progress)} == {None}
    two.assert_equal()
    assert new.name in two.tables
    for name in two.tables:
        assert units(two, name), name
        assert is_sound(two, name), name
    assert sum(each["units"] for each in background_of(progress)) >= 2
    assert not [each for each in threading.enumerate() if each.name.startswith("freshet-compaction")]


def test_a_table_whose_compaction_fails_stops_neither_the_query_nor_the_others(
    two: SyncWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = TakenUnit.run

    def failing(self: TakenUnit, *given: Any) -> Any:
        if self.table.location.endswith("/a"):
            raise OSError("No space left on device")
        return run(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(TakenUnit, "run", failing)
        progress = two.run(file_of(two))
    two.assert_equal()
    (told,) = {each["failure"] for each in background_of(progress)} - {None}
    assert told.startswith("table lake.a: ") and "No space left on device" in told
    assert (units(two, "a"), units(two, "b") > 0) == (0, True)
    assert all(is_sound(two, name) for name in "ab")
    write(two, BATCHES)
    progress = two.run(file_of(two))
    assert {each["failure"] for each in background_of(progress)} == {None}
    assert units(two, "a")
    two.assert_equal()


@pytest.mark.parametrize("point", [CrashPoint.COMMIT_MANIFESTS_WRITTEN, CrashPoint.COMMIT_SNAPSHOT_CREATED])
def test_a_driver_that_is_killed_while_a_compaction_commits_loses_nothing(two: SyncWorld, point: CrashPoint) -> None:
    command = [sys.executable, "-m", "tests.integration.killed_compaction_program", str(file_of(two)), point.value]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stdout[-2000:] + killed.stderr[-2000:]
    made = units(two, "a") + units(two, "b")
    assert made == (1 if point is CrashPoint.COMMIT_SNAPSHOT_CREATED else 0)
    write(two, BATCHES)
    two.run(file_of(two))
    two.assert_equal()
    assert units(two, "a") + units(two, "b") > made
    for name in two.tables:
        assert is_sound(two, name), name
        own = [each.commit_identifier for each in two.target(name).snapshots() if each.commit_user == "shop"]
        assert own == sorted(own)
        emitted: dict[int, Any] = {}
        for row in two.target(name).changelog().to_arrow().to_pylist():
            assert row["_ROW_KIND"] != "+I" or row["id"] not in emitted, "emitted twice"
            if row["_ROW_KIND"] in ("+I", "+U"):
                emitted[row["id"]] = row["n"]
        assert emitted == {key: row["n"] for key, row in two.tables[name].rows.items()}
