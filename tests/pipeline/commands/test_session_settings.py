"""Settings under `spark:` with which no session starts: one message with file and line, exit code 2, no trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from freshet.pipeline.commands.running import placed_in_file
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.spark.session import SessionRefusedError
from tests.kit.folders import unchanged
from tests.pipeline import small_pipeline
from tests.pipeline.commands.kit import fake_java

TEXT = small_pipeline.TEXT + "spark:\n  SETTING\n"


def written(folder: Path, setting: str) -> Path:
    (folder / "in").mkdir()
    path = folder / "p.yaml"
    path.write_text(TEXT.replace("FOLDER", str(folder)).replace("SETTING", setting))
    return path


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        ("Codec [brotli] is not available", ":9: spark.spark.io.compression.codec: 'brotli': Spark does not start: "),
        ("spark.io.compression.codec is wrong", ":9: spark.spark.io.compression.codec: 'brotli': Spark does not start"),
        ("no memory", ":8: spark: Spark does not start: no memory (set here: spark.io.compression.codec)"),
    ],
)  # fmt: skip
def test_the_setting_that_is_named_is_shown_with_its_line(tmp_path: Path, cause: str, expected: str) -> None:
    config = load_pipeline(written(tmp_path, "spark.io.compression.codec: brotli"), {})
    assert expected in str(placed_in_file([config], SessionRefusedError(cause)))


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.spark
@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize("version", [None, "11.0.2"])
def test_a_java_that_spark_does_not_start_with_is_named(tmp_path: Path, command: str, version: str | None) -> None:
    path = written(tmp_path, "spark.sql.shuffle.partitions: 1")
    path.write_text(path.read_text().replace("format: json", "format: json\n    select: {id: hash(id)}"))
    home = tmp_path / "java"
    expected = (
        f"no java in JAVA_HOME={home}; install Java 17" if version is None else "java is Java 11, and Spark needs"
    )
    if version is not None:
        fake_java(home, version)
    done = subprocess.run(
        [sys.executable, "-m", "freshet", command, str(path)],
        env={**os.environ, "JAVA_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert f"Spark does not start: {expected}" in done.stderr.replace(f"{home}/bin/", ""), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("spark.master: banana", "spark.spark.master: wants local[*]"),
        ("spark.sql.ansi.enabled: perhaps", "spark.spark.sql.ansi.enabled: 'perhaps': Spark does not start: "),
        ("spark.driver.memory: 1k", "Spark does not start: its Java process ended at once"),
    ],
)
def test_run_says_which_setting_and_writes_nothing(tmp_path: Path, setting: str, expected: str) -> None:
    path = written(tmp_path, setting)
    with unchanged(tmp_path):
        done = subprocess.run(
            [sys.executable, "-m", "freshet", "run", str(path)],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert done.returncode == 2, done.stderr
    assert f"{path}:9: " in done.stderr or f"{path}:8: " in done.stderr, done.stderr
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert "\tat org.apache" not in done.stderr
