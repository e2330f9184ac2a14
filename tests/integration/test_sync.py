"""Runs the tests of sources that change in one process of its own: its session has the jars of Spark's Kafka source.

One of them is in each run, all of them are among the slow ones.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FILES = (
    "sync_tables.py",
    "sync_rows.py",
    "sync_deaths.py",
    "sync_renames.py",
    "sync_truncates.py",
    "source_changes.py",
)
QUICK = "follow_their_sources and python"

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def run(files: tuple[str, ...], *chosen: str) -> None:
    cases = [str(Path(__file__).with_name(name)) for name in files]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *cases, *chosen]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_the_quick_ones() -> None:
    run(FILES[:1], "-k", QUICK)


@pytest.mark.slow
def test_all() -> None:
    run(FILES)
