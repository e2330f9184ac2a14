"""Processes that write, compact and rescale one table, killed amid their work: nothing lost or emitted twice."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog, Table
from freshet.jobs.demo.child_process import start_child, tail
from tests.kit.changelog_files import changelog, folded
from tests.kit.writer_process import AND_WAIT, expected
from tests.soak.counts import KILLED_RESCALES, chance_of

pytestmark = pytest.mark.soak

COMMITS, ROWS = 30, 200
FIRST_KEYS = {"left": 0, "right": 1_000_000}
OPTIONS = {"bucket": "2", "commit.max-retries": "1000", "snapshot.num-retained.min": "1000"}
KINDS: Mapping[str, Mapping[str, str]] = {
    "none": {},
    "lookup": {"changelog-producer": "lookup"},
    "full-compaction": {"changelog-producer": "full-compaction"},
    "vectors": {"changelog-producer": "lookup", "deletion-vectors.enabled": "true"},
}


def _start(folder: Path, what: str, *arguments: object) -> tuple[subprocess.Popen[Any], Path]:
    log = folder / f"{what}-{arguments[0]}-{time.monotonic_ns()}.txt"
    command = [sys.executable, "-m", "tests.kit.writer_process", what, str(folder), "db.t", *map(str, arguments)]
    with log.open("wb") as output:
        return start_child(command, log=output), log


@pytest.mark.parametrize("kind", KINDS)
def test_killed_rescales_lose_nothing_and_emit_every_change_once(tmp_path: Path, kind: str) -> None:
    chance = chance_of("killed rescales", kind)
    killed_rounds = KILLED_RESCALES.now()
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        schema={"k": "BIGINT", "v": "STRING", "n": "INT"},
        primary_keys=["k"],
        options={**OPTIONS, **KINDS[kind]},
    )
    writers = [("route", user, first, COMMITS, ROWS) for user, first in FIRST_KEYS.items()]
    for round_number in range(killed_rounds + 1):
        is_last = round_number == killed_rounds
        others = [("compact", "compactor", 3), ("rescale", "r" * (round_number + 1), 3 if is_last else 1000)]
        wait = () if is_last else (AND_WAIT,)
        before = table.store.snapshots.latest_id() or 0
        children = [_start(tmp_path, str(what), *arguments, *wait) for what, *arguments in (*writers, *others)]
        if is_last:
            for child, log in children:
                assert child.wait(300) == 0, tail(log)
            break
        _wait_for_snapshot(table, before + chance.randint(3, 15), children)
        time.sleep(chance.random() / 20)
        for child, log in children:
            child.kill()
            assert child.wait(300) == -signal.SIGKILL, tail(log)
    Table.open(table.location).rescale(5)
    table = Table.open(table.location)
    table.compact()
    rows = {row["k"]: (row["v"], row["n"]) for row in table.scan().to_arrow().to_pylist()}
    wanted = {}
    for user, first in FIRST_KEYS.items():
        wanted |= expected(user, first, COMMITS, ROWS)
    assert table.scan().to_arrow().num_rows == len(wanted) and rows == wanted
    assert {entry.total_buckets for entry in table.files()} == {5} and not table.check().damage
    if kind != "none":
        emitted = folded(changelog(table).values(), is_strict=True)
        assert {key: (row["v"], row["n"]) for (key,), row in emitted.items()} == wanted


def _wait_for_snapshot(table: Table, snapshot_id: int, children: list[tuple[subprocess.Popen[Any], Path]]) -> None:
    """Until the table has come so far: kills fall amid work."""
    deadline = time.monotonic() + 300
    while (table.store.snapshots.latest_id() or 0) < snapshot_id and all(c.poll() is None for c, _ in children):
        assert time.monotonic() < deadline, "\n".join(tail(log) for _, log in children)
        time.sleep(0.005)
