"""The peers of the benchmarks as long-lived children: one command line in, one JSON line out.

A child stays alive between rounds, so that its first round is cold and the later ones are warm; rounds of different
peers take turns, so that a change of the machine's speed hits all of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from freshet.pipeline.spark.jars import ensure_jars

REPOSITORY: Final = Path(__file__).resolve().parents[1]
PYPAIMON_PYTHON: Final = REPOSITORY / ".venv-pypaimon" / "bin" / "python"
_SPARK_JARS: Final = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "lz4-java", "snappy-java")


class PeerError(Exception):
    """A peer answered with an error or died."""


@dataclass
class Peer:
    """One child process; `ask` sends a command and waits for its answer."""

    name: str
    command: list[str]
    log: Path
    process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("w"),
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])},
        )

    def ask(self, *words: object) -> dict[str, Any]:
        """Sends one command; raises `PeerError` with the child's own words."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise PeerError(f"{self.name} died; its output is in {self.log}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerError(f"{self.name} {words[0]}: {answer['error']} (its output is in {self.log})")
        return answer

    def close(self) -> None:
        """Ends the child."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def freshet(logs: Path) -> Peer:
    """Freshet's storage API."""
    return Peer("freshet", [sys.executable, "-m", "bench.freshet_worker"], logs / "freshet.log")


def paimon_java(logs: Path, *jar_groups: str) -> Peer:
    """Apache Paimon 2.0.0, Java API, no engine; a single source file, compiled as it starts."""
    jars = [jar for group in ("paimon", *jar_groups) for jar in ensure_jars(group)]
    class_path = os.pathsep.join(str(jar) for jar in [*jars, *_pyspark_jars()])
    source = str(Path(__file__).with_name("PaimonBench.java"))
    return Peer("paimon-java", ["java", "-Xmx6g", "-cp", class_path, source], logs / "paimon-java.log")


def pypaimon(logs: Path) -> Peer:
    """pypaimon in its own environment."""
    script = str(Path(__file__).with_name("pypaimon_worker.py"))
    return Peer("pypaimon", [str(PYPAIMON_PYTHON), script], logs / "pypaimon.log")


def _pyspark_jars() -> list[Path]:
    import_root = next(Path(entry) for entry in sys.path if (Path(entry) / "pyspark" / "jars").is_dir())
    return [jar for jar in sorted((import_root / "pyspark" / "jars").iterdir()) if jar.name.startswith(_SPARK_JARS)]
