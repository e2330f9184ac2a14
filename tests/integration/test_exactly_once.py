"""Killed wherever it hurts, the stream's tables hold every record once: the real query, real signals.

Six files, a batch each. The keyed table must equal a dict, the append-only table and the dead letters hold each record
once, and each batch of Spark's is one APPEND snapshot, wherever a run was killed. A kill between Spark's file log and
its offset log joins two files into one batch, so batches are counted by Spark's commit log, not by files.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.model.snapshot import CommitKind
from tests.integration.stream_program import APPEND, KEYED

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2400)]

FILES = 6
RECORDS_PER_FILE = 40
KEYS = 60
DOOMED_BATCH = 2
ROOT = Path(__file__).resolve().parents[2]


def _records(file: int) -> list[dict[str, object]]:
    numbers = range(file * RECORDS_PER_FILE, (file + 1) * RECORDS_PER_FILE)
    return [{"id": (number * 7) % KEYS, "batch": file, "text": f"record {number}"} for number in numbers]


def _write_input(folder: Path) -> None:
    (folder / "input").mkdir()
    for file in range(FILES):
        lines = [json.dumps(record) for record in _records(file)]
        lines.insert(5, json.dumps({"id": f"broken {file}", "batch": file}))
        path = folder / "input" / f"part-{file}.json"
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (1_700_000_000 + file, 1_700_000_000 + file))


def _start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    log = (folder / "log.txt").open("ab")
    command = [sys.executable, "-m", "tests.integration.stream_program", str(folder), *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)


def _run(folder: Path, *arguments: str) -> int:
    program = _start(folder, *arguments)
    try:
        return program.wait(timeout=600)
    finally:
        _end(program)


def _end(program: subprocess.Popen[bytes]) -> None:
    """Nothing of the group outlives the test; workers have groups of their own and die with the JVM."""
    try:
        os.killpg(program.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    program.wait(30)


def _log(folder: Path) -> str:
    return (folder / "log.txt").read_text(errors="replace")[-4000:]


def _check(folder: Path, *, foreign_ids: range = range(0)) -> None:
    catalog = Catalog(str(folder / "warehouse"))
    every = [record for file in range(FILES) for record in _records(file)]
    expected = {record["id"]: (record["batch"], record["text"]) for record in every}
    keyed = {
        row["id"]: (row["batch"], row["text"]) for row in catalog.table(f"shop.{KEYED}").scan().to_arrow().to_pylist()
    }
    assert {key: value for key, value in keyed.items() if key not in foreign_ids} == expected, _log(folder)
    assert sorted(key for key in keyed if key in foreign_ids) == list(foreign_ids)
    appended = catalog.table(f"shop.{APPEND}").scan().to_arrow()
    assert Counter(appended["text"].to_pylist()) == Counter(record["text"] for record in every)
    for name in (KEYED, APPEND):
        dead = catalog.table(f"shop.{name}_dead").scan().to_arrow()
        letters = [json.loads(raw)["id"] for raw in dead["raw_value"].to_pylist()]
        assert sorted(letters) == [f"broken {file}" for file in range(FILES)], name
        snapshots = catalog.table(f"shop.{name}").snapshots()
        ours = [each for each in snapshots if each.commit_user == name and each.commit_kind is CommitKind.APPEND]
        identifiers = [snapshot.commit_identifier for snapshot in ours]
        assert identifiers == sorted(set(identifiers)), f"{name}: a batch was committed twice: {identifiers}"
        batches = sorted(int(entry.name) for entry in (folder / "checkpoints" / name / "commits").glob("[0-9]*"))
        assert identifiers[-1] == batches[-1], name
        assert set(dead["micro_batch_id"].to_pylist()) == set(batches), name
        ids = [snapshot.id for snapshot in snapshots]
        assert ids == list(range(ids[0], ids[0] + len(ids)))


@pytest.mark.always("crossing: kill")
@pytest.mark.parametrize("points", [["before-commit", "in-task"], ["after-commit", "driver-in-task"]])
def test_killed_and_started_again(tmp_path: Path, points: list[str]) -> None:
    """Killed twice, a batch later the second time."""
    _write_input(tmp_path)
    for batch, point in enumerate(points, DOOMED_BATCH):
        assert _run(tmp_path, point, str(batch)) == -signal.SIGKILL, (point, _log(tmp_path))
    assert _run(tmp_path) == 0, _log(tmp_path)
    _check(tmp_path)


def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    _write_input(tmp_path)
    assert _run(tmp_path, "worker-in-task", str(DOOMED_BATCH)) == 0, _log(tmp_path)
    assert (tmp_path / "died").exists()
    _check(tmp_path)


def test_others_commit_and_expire_before_the_restart(tmp_path: Path) -> None:
    """The proof of the last batch has expired; the map that every commit carries on has not."""
    _write_input(tmp_path)
    assert _run(tmp_path, "after-commit", str(DOOMED_BATCH)) == -signal.SIGKILL, _log(tmp_path)
    table = Catalog(str(tmp_path / "warehouse")).table(f"shop.{KEYED}")
    foreign_ids = range(1000, 1004)
    for key in foreign_ids:
        with table.writer("somebody-else") as writer:
            writer.write(pa.table({"id": [key], "batch": pa.array([0], pa.int32()), "text": ["foreign"]}))
            writer.commit(key)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert {snapshot.commit_user for snapshot in table.snapshots()} == {"somebody-else"}
    assert _run(tmp_path) == 0, _log(tmp_path)
    _check(tmp_path, foreign_ids=foreign_ids)


def test_a_zombie_finishes_after_the_next_run_has_taken_over(tmp_path: Path) -> None:
    _write_input(tmp_path)
    zombie = _start(tmp_path, "zombie", str(DOOMED_BATCH))
    try:
        deadline = time.monotonic() + 600
        while not (tmp_path / "stopped").exists():
            assert zombie.poll() is None, _log(tmp_path)
            assert time.monotonic() < deadline, _log(tmp_path)
            time.sleep(0.2)
        assert _run(tmp_path) == 0, _log(tmp_path)
        os.kill(zombie.pid, signal.SIGCONT)
        # Its commit finds the batch committed; Spark then finds its checkpoint taken, or goes on with nothing left.
        zombie.wait(timeout=600)
    finally:
        _end(zombie)
    _check(tmp_path)


def test_two_drivers_on_one_checkpoint(tmp_path: Path) -> None:
    """A second run of the same pipelines is started during the first. Whichever of them gives up, every record is there
    once, and a third run finds nothing wrong with the checkpoint.
    """
    _write_input(tmp_path)
    runs = [_start(tmp_path), _start(tmp_path)]
    try:
        codes = [run.wait(timeout=600) for run in runs]
    finally:
        for run in runs:
            _end(run)
    assert set(codes) <= {0, 1}, _log(tmp_path)
    assert _run(tmp_path) == 0, _log(tmp_path)
    _check(tmp_path)
