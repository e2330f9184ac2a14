"""Runs `source_changes` in a process of its own, with a session that has the jars of Spark's Kafka source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).with_name("source_changes.py")

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]


def test_all() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
