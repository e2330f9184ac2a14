"""Runs `small_batches` in a process of its own: a few of its tests in each run, all of them among the slow ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).with_name("small_batches.py")
QUICK = "shrink or each_kind_of_table[keyed]"

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def run(*chosen: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES), *chosen]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_the_quick_ones() -> None:
    run("-k", QUICK)


@pytest.mark.slow
def test_all() -> None:
    run()
