"""The Java process dies under a running `freshet run`: the message says so and names the setting."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from freshet.storage.catalog import Catalog

ROOT = Path(__file__).resolve().parents[3]
PIPELINE = """
name: p
sources:
  - files: {path: "FOLDER/in"}
    format: json
    select: {id: "SELECT"}
table: {warehouse: "FOLDER/w", name: s.t, columns: {id: BIGINT}, primary_key: [id], options: {bucket: 1}}
trigger: {processing_time: 200 milliseconds}
checkpoint: "FOLDER/c"
spark: {spark.driver.memory: 512m}
"""
HUGE = "length(concat(repeat(cast(id as string), 400000000), repeat(cast(id + 1 as string), 400000000)))"


@contextmanager
def running(folder: Path, select: str) -> Iterator[subprocess.Popen[str]]:
    (folder / "in").mkdir()
    (folder / "in" / "1.json").write_text('{"id": 1}\n')
    (folder / "p.yaml").write_text(PIPELINE.replace("FOLDER", str(folder)).replace("SELECT", select))
    command = [sys.executable, "-m", "freshet", "run", "--progress", "json", str(folder / "p.yaml")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        try:
            yield program
        finally:
            program.kill()


def java_of(process: subprocess.Popen[str]) -> int:
    """The child that is a Java process."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (found,) = [int(each) for each in children if "java" in Path(f"/proc/{each}/comm").read_text()]
    return found


@pytest.mark.spark
@pytest.mark.slow
def test_a_process_that_was_killed_is_worth_another_try(tmp_path: Path) -> None:
    with running(tmp_path, "id") as program:
        assert program.stdout is not None
        assert json.loads(program.stdout.readline())["state"] == "running"
        os.kill(java_of(program), signal.SIGKILL)
        out, err = program.communicate(timeout=300)
    assert program.returncode == 75, err
    assert "freshet: RetryableError: Spark's Java process died (killed by signal 9)" in err
    assert "raise spark.driver.memory" in err
    assert "Traceback" not in err
    assert "Connection refused" not in err
    facts = json.loads(out.splitlines()[-1])
    assert (facts["kind"], facts["retryable"], facts["exit_code"]) == ("RetryableError", True, 75)
    assert Catalog(tmp_path / "w").table("s.t").scan().count() == 1


@pytest.mark.spark
@pytest.mark.slow
def test_a_heap_that_is_too_small_for_the_first_batch_is_no_other_try(tmp_path: Path) -> None:
    with running(tmp_path, HUGE) as program:
        _, err = program.communicate(timeout=300)
    assert program.returncode == 1, err
    assert "java.lang.OutOfMemoryError" in err
    assert "aise spark.driver.memory" in err
    assert "Connection refused" not in err
