"""The interpreter of Spark's workers, and the daemon that forks them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import freshet
from freshet.pipeline.exceptions import InvalidRequestError, brief_reason, worker_exception
from freshet.pipeline.sources.batch_source import FreshetDataSource
from freshet.pipeline.spark.table_sink import TableSink
from freshet.pipeline.spark.worker_daemon import ending_quietly, is_harmless
from freshet.pipeline.spark.worker_python import (
    IMPORT_ROOT,
    is_connect,
    other_python_hint,
    same_environment,
    settle_python,
    use_own_python,
)


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


def local_session(worker: str, conf: dict[str, str] | None = None, master: str = "local[2]") -> Any:
    held = conf or {}
    found = SimpleNamespace(contains=held.__contains__, get=lambda key, default=None: held.get(key, default))
    context = SimpleNamespace(pythonExec=worker, master=master, environment={"PYTHONPATH": "/own"})
    context.getConf = lambda: found
    return SimpleNamespace(sparkContext=context)


def test_workers_of_a_session_run_this_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    given = local_session("python-that-path-has")
    settle_python(given)
    assert given.sparkContext.pythonExec == sys.executable
    assert given.sparkContext.environment["PYTHONPATH"] == f"{IMPORT_ROOT}{os.pathsep}/own"
    same = local_session(sys.executable)
    settle_python(same)
    assert same.sparkContext.environment["PYTHONPATH"] == "/own", "nothing is to be done"


@pytest.mark.parametrize("by_conf", [True, False])
@pytest.mark.parametrize(
    ("script", "conf", "master", "refused"),
    [
        ("exit 3", {}, "local[2]", "it ends with exit status 3"),
        ("echo x >&2; echo \"No module named 'freshet'\" >&2; exit 1", {}, "local", r"\(No module named 'freshet'\)"),
        ("exit 0", {}, "local", None),
        ("exit 3", {}, "spark://h:7077", None),
        ("exit 3", {"spark.submit.pyFiles": "freshet.zip"}, "local", None),
    ],
)
def test_an_interpreter_that_was_chosen_and_lacks_freshet_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    script: str,
    conf: dict[str, str],
    master: str,
    refused: str | None,
    by_conf: bool,
) -> None:
    other = tmp_path / "python3"
    other.write_text(f"#!/bin/sh\n{script}\n")
    other.chmod(0o755)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if by_conf:
        conf = {**conf, "spark.pyspark.python": str(other)}
    else:
        monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    given = local_session(str(other), conf, master)
    if refused is None:
        settle_python(given)
    else:
        with pytest.raises(InvalidRequestError, match=f"{other}.*{refused}.*set PYSPARK_PYTHON={sys.executable}"):
            settle_python(given)
    assert given.sparkContext.pythonExec == str(other)


def test_sessions_of_connect_are_known_by_their_module() -> None:
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    assert is_connect(frame)
    assert not is_connect(local_session("x"))
    sink = TableSink.__new__(TableSink)
    with pytest.raises(InvalidRequestError, match="is of Spark Connect: run the stream in a program"):
        sink(frame, 0)


def test_queries_are_not_computed_by_connect(tmp_path: Path) -> None:
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(freshet.InvalidRequestError, match="session of Spark Connect: leave spark= out"):
        freshet.sql("SELECT 1", tmp_path, spark=session)


def test_workers_that_end_at_once_are_a_sentence() -> None:
    error = RuntimeError(
        "An error occurred while calling o41.load.\n: org.apache.spark.SparkException: EOFException occurred while "
        "reading the port number from pyspark.daemon's stdout and terminated with code: 3..\n\tat org.apache.spark.x"
    )
    assert brief_reason(error).startswith("Spark's Python workers end with exit status 3 before they start: ")


def test_refusals_of_the_data_source_have_no_trace_and_keep_their_kind() -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: "
        "freshet.storage.exceptions.NotFoundError: there is no table a.zz; tables of 'a': t\n SQLSTATE: 38000"
    )
    assert brief_reason(RuntimeError(text)).splitlines()[0] == "there is no table a.zz; tables of 'a': t"
    assert worker_exception("Failed for another reason") is None


def test_the_data_source_hides_traces_of_its_refusals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with pytest.raises(InvalidRequestError, match="unknown option 'foo'"):
        FreshetDataSource({"foo": "1"})
    assert "SPARK_HIDE_TRACEBACK" not in os.environ, "not in the program"
    monkeypatch.setitem(sys.modules, "pyspark.worker_util", sys)
    with pytest.raises(AttributeError):
        FreshetDataSource(None)  # type: ignore[arg-type]
    assert "SPARK_HIDE_TRACEBACK" not in os.environ, "a fault of ours"
    with pytest.raises(InvalidRequestError, match="unknown option 'foo'"):
        FreshetDataSource({"foo": "1"})
    assert os.environ["SPARK_HIDE_TRACEBACK"] == "1"
