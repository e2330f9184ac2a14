"""The demo ends by itself with equal tables, and at once when it is interrupted; nothing is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.judge, pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]


def _start(folder: Path) -> subprocess.Popen[bytes]:
    log = (folder / "log.txt").open("wb")
    command = [sys.executable, "-m", "jobs.demo", str(folder / "output")]
    return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)


def _log(folder: Path) -> str:
    return (folder / "log.txt").read_text(errors="replace")


def _end(program: subprocess.Popen[bytes]) -> None:
    if program.poll() is None:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait(30)


def _left_over(folder: Path) -> list[list[str]]:
    """Command lines that still name this run, after a moment to end in."""
    deadline = time.monotonic() + 10
    while True:
        found = [
            process.info["cmdline"]
            for process in psutil.process_iter(["cmdline", "pid"])
            if process.pid != os.getpid() and any(str(folder) in part for part in process.info["cmdline"] or ())
        ]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def test_to_the_end(tmp_path: Path) -> None:
    program = _start(tmp_path)
    try:
        assert program.wait(300) == 0, _log(tmp_path)
    finally:
        _end(program)
    text = _log(tmp_path)
    assert text.count("equal; as in the shop's database") == 2, text
    assert "DIFFERENT" not in text
    assert _left_over(tmp_path) == []


def test_interrupted(tmp_path: Path) -> None:
    program = _start(tmp_path)
    try:
        deadline = time.monotonic() + 150
        while "running into shop.customers" not in _log(tmp_path):
            assert program.poll() is None, _log(tmp_path)
            assert time.monotonic() < deadline, _log(tmp_path)
            time.sleep(0.2)
        children = psutil.Process(program.pid).children(recursive=True)
        os.killpg(program.pid, signal.SIGINT)
        assert program.wait(120) == 0, _log(tmp_path)
        _, alive = psutil.wait_procs(children, timeout=15)
        assert alive == []
    finally:
        _end(program)
    assert "nothing is left running" in _log(tmp_path)
    assert _left_over(tmp_path) == []
