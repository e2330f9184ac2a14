"""The java that Spark's launcher finds, without Spark: which words reach the real one, and its JAVA_HOME."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from freshet.pipeline.spark.java_process import quiet_java

MODULE = "--add-modules=jdk.incubator.vector"
LAUNCHER = "org.apache.spark.launcher.Main"


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    java = tmp_path / "it's a jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nprintf "%s\\n" "${JAVA_HOME-none}" "$@"\n')
    java.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    return java


def said(*words: str) -> list[str]:
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    return subprocess.run([java, *words], capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("by_home", [True, False])
def test_the_launcher_ends_with_it_and_the_real_one_lacks_the_module(
    real: Path, monkeypatch: pytest.MonkeyPatch, by_home: bool
) -> None:
    home = str(real.parents[1])
    if by_home:
        monkeypatch.setenv("JAVA_HOME", home)
    else:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", f"{real.parent}:{os.environ['PATH']}")
    for _ in range(2):
        with quiet_java():
            ours = os.environ["JAVA_HOME"]
            words = ["-Da=b c", "--add-modules=jdk.net", "*", ""]
            assert said(words[0], MODULE, *words[1:]) == [home if by_home else "none", *words]
            assert said("-cp", "x", LAUNCHER, "y") == [ours, "-cp", "x", LAUNCHER, "y"]
        assert os.environ.get("JAVA_HOME") == (home if by_home else None)


def test_without_a_folder_for_it_the_warning_stays(real: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JAVA_HOME", str(real.parents[1]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with quiet_java():
        assert os.environ["JAVA_HOME"] == str(real.parents[1])


def test_a_java_that_runs_is_left_alone(real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(real.parents[1]))
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with quiet_java():
        assert os.environ["JAVA_HOME"] == str(real.parents[1])
