"""Apache Paimon on Flink as a peer: its JVM with the pinned jars; see `FlinkBench.java` for the commands."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from bench.peers import REPOSITORY, Peer
from freshet.pipeline.spark.jars import ensure_jars, java_command, pyspark_jars

FLINK_ENVIRONMENT: Final = REPOSITORY / ".venv-flink"
"""Flink's own jars come as a Python package (`make venv-flink`)."""

_SOURCES: Final = ("FlinkBench", "FlinkIngest", "PaimonBench")
_OPENED: Final = (
    "lang", "net", "io", "nio", "lang.reflect", "text", "time", "util", "util.concurrent", "util.concurrent.atomic",
    "util.concurrent.locks",
)  # fmt: skip
_EXPORTED: Final = ("sun.net.util=ALL-UNNAMED",)


def flink(logs: Path, slots: int = 2) -> Peer:
    """The peer, not yet warm; a job takes two slots."""
    jars = [
        *sorted(FLINK_ENVIRONMENT.glob("lib/python3*/site-packages/pyflink/lib/*.jar")),
        *ensure_jars("paimon"),
        *ensure_jars("flink"),
        *pyspark_jars("hadoop-client-api", "hadoop-client-runtime"),
    ]
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED]
    exported = [f"--add-exports=java.base/{name}" for name in _EXPORTED]
    class_path = os.pathsep.join(map(str, jars))
    command = [
        java_command(),
        "-Xmx6g",
        f"-Dbench.slots={slots}",
        *opened,
        "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
        *exported,
    ]
    classes = _compiled(logs / "flink-classes", class_path)
    class_path = os.pathsep.join([str(classes), class_path])
    return Peer("paimon-flink", [*command, "-cp", class_path, "FlinkBench"], logs / "paimon-flink.log")


def _compiled(folder: Path, class_path: str) -> Path:
    # Flink's tasks find classes on the class path, not those of a source file that is run.
    shutil.rmtree(folder, ignore_errors=True)
    compiler = [java_command(), "--module", "jdk.compiler/com.sun.tools.javac.Main", "-nowarn"]
    sources = [str(Path(__file__).with_name(f"{name}.java")) for name in _SOURCES]
    subprocess.run([*compiler, "-d", str(folder), "-cp", class_path, *sources], check=True)
    return folder
