"""Bitmaps and sketches made, read and united by Paimon's own classes, in a child process (`AggregateBytes.java`)."""

from __future__ import annotations

import base64
import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from freshet.jobs.demo.child_process import start_child, stop_child, tail
from freshet.pipeline.spark.jars import ensure_jars, java_command, pyspark_jars

SOURCE = Path(__file__).with_name("AggregateBytes.java")


class AggregateBytes:
    """The child process. Kinds are rbm32, rbm64, hll and theta."""

    def __init__(self, child: subprocess.Popen[bytes], log: Path) -> None:
        self._child = child
        self._log = log

    @classmethod
    @contextlib.contextmanager
    def start(cls) -> Iterator[AggregateBytes]:
        """Starts the JVM and ends it when the block ends."""
        jars = [*ensure_jars("paimon"), *pyspark_jars("hadoop-client-api", "slf4j-api")]
        with tempfile.TemporaryDirectory(prefix="aggregate-bytes-") as scratch:
            log = Path(scratch, "log")
            with log.open("wb") as errors:
                child = start_child(
                    [java_command(), "-Xmx512m", "-XX:+UseSerialGC", "-cp", ":".join(map(str, jars)), SOURCE],
                    log=errors,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            try:
                yield cls(child, log)
            finally:
                stop_child(child)

    def make(self, kind: str, *arguments: object) -> bytes:
        """A bitmap of these numbers, or a sketch (see the Java source)."""
        return base64.b64decode(self._ask(kind, "make", *arguments))

    def read(self, kind: str, data: bytes) -> str:
        """What is in a bitmap or sketch, as text."""
        return self._ask(kind, "read", base64.b64encode(data).decode())

    def unite(self, kind: str, first: bytes, second: bytes) -> bytes:
        """What Paimon's aggregate function makes of acc and x."""
        return base64.b64decode(
            self._ask(kind, "unite", *(base64.b64encode(data).decode() for data in (first, second)))
        )

    def _ask(self, *words: object) -> str:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self._child.stdin.flush()
        answer = self._child.stdout.readline().decode().strip()
        if not answer and self._child.poll() is not None:
            raise RuntimeError(f"the JVM is gone:\n{tail(self._log)}")
        if answer.startswith("error "):
            raise RuntimeError(answer)
        return answer
