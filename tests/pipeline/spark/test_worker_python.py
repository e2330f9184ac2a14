"""The interpreter of Spark's workers, and the daemon that forks them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from freshet.pipeline.spark.worker_daemon import ending_quietly, is_harmless
from freshet.pipeline.spark.worker_python import other_python_hint, same_environment, use_own_python


def session(worker: str, master: str = "local[2]") -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(pythonExec=worker, master=master))


def test_another_python_is_named_with_the_remedy(tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    assert other_python_hint(session(sys.executable)) == ""
    hint = other_python_hint(session(str(other)))
    assert f"workers run {other}, this program runs {sys.executable}" in hint
    assert f"set PYSPARK_PYTHON={sys.executable}" in hint
    assert other_python_hint(session(str(other), "spark://h:7077")) == ""
    assert not same_environment("no-such-python", sys.executable)


def test_sessions_of_ours_set_the_python_of_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/other")
    use_own_python(None)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    use_own_python("/chosen/python")
    assert os.environ["PYSPARK_PYTHON"] == "/chosen/python"


def test_only_the_message_about_a_closed_socket_is_left_out() -> None:
    start = "PySpark daemon failed to flush the output to the worker process:\nTraceback (most recent call last):\n"
    assert is_harmless(f"{start}BrokenPipeError: [Errno 32] Broken pipe\n")
    assert not is_harmless(f"{start}OSError: [Errno 28] No space left on device\n")
    assert not is_harmless("BrokenPipeError")


def test_a_worker_whose_socket_is_closed_ends_without_a_traceback() -> None:
    def worker(error: Exception | None) -> int:
        if error is not None:
            raise error
        return 0

    assert ending_quietly(worker)(None) == 0
    assert ending_quietly(worker)(BrokenPipeError(32, "Broken pipe")) == 1
    with pytest.raises(OSError, match="No space"):
        ending_quietly(worker)(OSError(28, "No space left on device"))


@pytest.mark.spark
def test_workers_of_our_sessions_run_in_our_python(spark: SparkSession) -> None:
    assert spark.conf.get("spark.python.daemon.module") == "freshet.pipeline.spark.worker_daemon"
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert found == [sys.executable]
