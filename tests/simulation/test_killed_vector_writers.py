"""Processes that write and compact one table with deletion vectors, killed amid their work: nothing lost or doubled."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog, Table
from freshet.jobs.demo.child_process import start_child, tail
from tests.kit.changelog_files import changelog, folded
from tests.kit.writer_process import AND_WAIT, expected
from tests.soak.counts import KILLED_VECTOR_WRITERS, chance_of
from tests.storage.write.test_deletion_vector_writes import check_marks

pytestmark = pytest.mark.soak

COMMITS, ROWS = 30, 200
FIRST_KEYS = {"left": 0, "right": 1_000_000}
OPTIONS = {
    "bucket": "2",
    "deletion-vectors.enabled": "true",
    "changelog-producer": "lookup",
    "num-sorted-run.compaction-trigger": "3",
    "target-file-size": "16 kb",
    "commit.max-retries": "1000",
    "snapshot.num-retained.min": "1000",
}


def _start(folder: Path, what: str, *arguments: object) -> tuple[subprocess.Popen[Any], Path]:
    log = folder / f"{what}-{arguments[0]}-{time.monotonic_ns()}.txt"
    command = [sys.executable, "-m", "tests.kit.writer_process", what, str(folder), "db.t", *map(str, arguments)]
    with log.open("wb") as output:
        return start_child(command, log=output), log


def test_killed_writers_lose_nothing_and_emit_every_change_once(tmp_path: Path) -> None:
    chance = chance_of("killed vector writers")
    killed_rounds = KILLED_VECTOR_WRITERS.now()
    table = Catalog(str(tmp_path)).create_table(
        "db.t", schema={"k": "BIGINT", "v": "STRING", "n": "INT"}, primary_keys=["k"], options=OPTIONS
    )
    jobs: list[tuple[object, ...]] = [("write", user, first, COMMITS, ROWS) for user, first in FIRST_KEYS.items()]
    for round_number in range(killed_rounds + 1):
        is_last = round_number == killed_rounds
        compactor = ("compact", "compactor", 3 if is_last else 1000)
        wait = () if is_last else (AND_WAIT,)
        before = table.store.snapshots.latest_id() or 0
        children = [_start(tmp_path, str(what), *arguments, *wait) for what, *arguments in (*jobs, compactor)]
        if is_last:
            for child, log in children:
                assert child.wait(300) == 0, tail(log)
            break
        _wait_for_snapshot(table, before + chance.randint(3, 9), children)
        time.sleep(chance.random() / 20)
        for child, log in children:
            child.kill()
            assert child.wait(300) == -signal.SIGKILL, tail(log)
    table.compact()  # an aborted compaction leaves level 0, which readers do not see, to the next one
    rows = {row["k"]: (row["v"], row["n"]) for row in table.scan().to_arrow().to_pylist()}
    wanted = {}
    for user, first in FIRST_KEYS.items():
        wanted |= expected(user, first, COMMITS, ROWS)
    assert table.scan().to_arrow().num_rows == len(wanted)
    assert rows == wanted
    emitted = folded(changelog(table).values(), is_strict=True)
    assert {key: (row["v"], row["n"]) for (key,), row in emitted.items()} == wanted
    _check_vectors(table)
    files = {entry.file.file_name for entry in table.files()}
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**60)
    table.remove_orphan_files(older_than_ms=-1_000_000)
    left = {path.name for path in Path(table.location).rglob("data-*.parquet")}
    assert left == files, "killed processes left orphans, which are gone"
    assert {row["k"]: (row["v"], row["n"]) for row in table.scan().to_arrow().to_pylist()} == wanted


def _check_vectors(table: Table) -> None:
    """Rows are marked in files that are there only, and the files without marks are what readers see."""
    check_marks(table.store)
    marked = sum(split.marked_row_count or 0 for split in table.scan().plan())
    stored = sum(entry.file.row_count for entry in table.files() if entry.file.level > 0)
    assert stored - marked == table.scan().count()


def _wait_for_snapshot(table: Table, snapshot_id: int, children: list[tuple[subprocess.Popen[Any], Path]]) -> None:
    """Until the table has come so far: kills fall amid work."""
    deadline = time.monotonic() + 300
    while (table.store.snapshots.latest_id() or 0) < snapshot_id and all(c.poll() is None for c, _ in children):
        assert time.monotonic() < deadline, "\n".join(tail(log) for _, log in children)
        time.sleep(0.005)
