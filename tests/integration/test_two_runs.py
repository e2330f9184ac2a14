"""Two runs of one pipeline file at once, on either engine: one is refused, the other one goes on with each row once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog
from freshet.jobs.demo.child_process import start_child, tail
from freshet.pipeline.errors.known_causes import SECOND_RUN
from freshet.storage.model.snapshot import CommitKind

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WAIT_S = 300
EVERY_S = 0.1
ROWS = 20
"""Of a file, which is a batch."""
REFUSED = 65
PIPELINE = """
name: twice
sources: [{{files: {{path: "{folder}/in", maxFilesPerTrigger: 1}}, format: json}}]
table: {{warehouse: "{folder}/w", name: s.t, columns: {{id: BIGINT}}, options: {{bucket: -1}}}}
trigger: {{processing_time: 50 ms}}
checkpoint: "{folder}/c"
"""


class Runs:
    """A folder that fills, and the runs that read it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._files = folder, 0
        (folder / "in").mkdir()
        self._pipeline = folder / "twice.yaml"
        self._pipeline.write_text(PIPELINE.format(folder=folder))
        self._logs: dict[int, Path] = {}

    def start(self, engine: str) -> subprocess.Popen[Any]:
        log = self._folder / f"run-{len(self._logs)}.txt"
        command = [sys.executable, "-m", "freshet", "run", str(self._pipeline), "--on", engine, "--restart", "0"]
        with log.open("wb") as output:
            child = start_child(command, log=output)
        self._logs[child.pid] = log
        return child

    def said(self, child: subprocess.Popen[Any]) -> str:
        return tail(self._logs[child.pid])

    def put(self) -> None:
        first = self._files * ROWS
        lines = [json.dumps({"id": number}) for number in range(first, first + ROWS)]
        path = self._folder / "in" / f"{self._files:05}.json"
        hidden = path.with_name(f".{path.name}")
        hidden.write_text("\n".join(lines))
        hidden.rename(path)  # it is there as a whole
        self._files += 1

    def rows(self) -> list[int]:
        catalog = Catalog(str(self._folder / "w"))
        if not catalog.has_table("s.t"):
            return []
        return sorted(catalog.table("s.t").scan().to_arrow()["id"].to_pylist())

    def put_until_all_are_read(self, child: subprocess.Popen[Any]) -> None:
        self.put()
        until = time.monotonic() + WAIT_S
        while self.rows() != list(range(self._files * ROWS)):
            assert child.poll() is None and time.monotonic() < until, self.said(child)
            time.sleep(EVERY_S)

    def check(self) -> None:
        assert self.rows() == list(range(self._files * ROWS))
        snapshots = Catalog(str(self._folder / "w")).table("s.t").snapshots()
        batches = [each.commit_identifier for each in snapshots if each.commit_kind is CommitKind.APPEND]
        assert batches == list(range(batches[0], batches[0] + len(batches)))


@pytest.mark.parametrize(("first", "second"), [("local", "local"), ("local", "spark"), ("spark", "local")])
def test_one_of_two_runs_is_refused(tmp_path: Path, first: str, second: str) -> None:
    runs = Runs(tmp_path)
    children = [runs.start(first)]
    try:
        runs.put_until_all_are_read(children[0])
        children.append(runs.start(second))
        until = time.monotonic() + WAIT_S
        while all(each.poll() is None for each in children):
            assert time.monotonic() < until, "both go on"
            runs.put()
            time.sleep(EVERY_S)
        [refused] = [each for each in children if each.poll() is not None]
        [left] = [each for each in children if each is not refused]
        print(f"refused: run {children.index(refused) + 1}")
        assert refused.returncode == REFUSED and SECOND_RUN in runs.said(refused), runs.said(refused)
        runs.put_until_all_are_read(left)
        left.send_signal(signal.SIGTERM)
        assert left.wait(WAIT_S) == 0, runs.said(left)
    finally:
        for each in children:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
                each.wait()
    runs.check()
