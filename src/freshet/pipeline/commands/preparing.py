"""The part of `freshet prepare` that needs Spark.

It makes what a machine needs once: the jars of Spark's Kafka source, and the archive of Java's classes.

The archive comes from a training run in a process of its own: a small pipeline from files into a table, whose JVM
writes down at its end which classes it had loaded. It is written under another name and renamed when that JVM is gone,
so an archive under its name is complete; a file lock lets one process make it and the others find it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.exceptions import PipelineError
from freshet.pipeline.running.spark_pipeline import spark_runner
from freshet.pipeline.spark.jars import SPARK_GROUP, ensure_jars, exclusive
from freshet.pipeline.spark.java_process import archive_file
from freshet.pipeline.spark.session import LOGGING_OPTION, SHORT_LIVED, create_session

TRAINING_S: Final = 600
"""A training run takes half a minute; a machine that needs longer has another problem."""


def prepare_machine(say: Callable[[str], None]) -> None:
    """Fetches the jars and makes the archive, where they are missing. Raises `PipelineError` when that fails."""
    ensure_jars(SPARK_GROUP)
    archive = archive_file()
    if archive.is_file():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(archive.parent / ".lock"):
        if archive.is_file():
            return
        say(f"writing down Java's classes in {archive}: about half a minute, once")
        with tempfile.TemporaryDirectory(prefix=".train-", dir=archive.parent) as folder:
            _train_apart(Path(folder), archive)


def _train_apart(folder: Path, archive: Path) -> None:
    made = folder / archive.name
    command = [sys.executable, "-m", __name__, str(folder), str(made)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=TRAINING_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise PipelineError(f"the training run for {archive} did not end within {TRAINING_S} s") from error
    if done.returncode or not made.is_file():
        raise PipelineError(
            f"the training run for {archive} ended with {done.returncode} and no archive; its last words: "
            f"{done.stderr.decode(errors='replace')[-2000:]}"
        )
    made.rename(archive)


def _train(folder: Path, archive: Path) -> None:
    """Runs a small pipeline in a JVM that writes the archive when it ends, and waits for that end."""
    (folder / "in").mkdir()
    records = [json.dumps({"id": number, "name": f"n{number}"}) for number in range(100)]
    (folder / "in" / "part-0.json").write_text("\n".join([*records, "broken", ""]), encoding="utf-8")
    document = {
        "name": "training",
        "sources": [{"files": {"path": f"{folder}/in"}, "format": "json"}],
        "table": {
            "warehouse": f"{folder}/warehouse",
            "name": "training.t",
            "columns": {"id": "BIGINT", "name": "STRING"},
            "primary_key": ["id"],
            "options": {"bucket": 2},
        },
        "trigger": {"available_now": True},
        "checkpoint": f"{folder}/checkpoint",
    }
    file = folder / "training.yaml"
    file.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML
    options = f"{LOGGING_OPTION} -XX:ArchiveClassesAtExit={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"
    settings = {**SHORT_LIVED, "spark.driver.extraJavaOptions": options}
    spark = create_session("training", settings=settings, master="local[2]")
    spark_runner(spark, load_pipelines([file]), say=lambda _: None).run()
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when its standard input does
    gateway.proc.wait(TRAINING_S)


if __name__ == "__main__":
    _train(Path(sys.argv[1]), Path(sys.argv[2]))
