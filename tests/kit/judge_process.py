"""A judge in a process of its own: request and answer are a line of JSON each, larger data are files in `scratch`."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from freshet.jobs.demo.child_process import start_child, stop_child, tail


@dataclass(frozen=True)
class JudgeProcess:
    """The child; it serves one request at a time. Use `start`."""

    child: subprocess.Popen[bytes]
    scratch: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    @contextmanager
    def start(cls, name: str, command: Sequence[str | Path]) -> Iterator[JudgeProcess]:
        """Starts the command, with a scratch folder as its last argument, and ends it when the block ends."""
        scratch = Path(tempfile.mkdtemp(prefix=f"{name}-judge-"))
        with (scratch / "log").open("wb") as log:
            child = start_child([*command, scratch], log=log, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process = cls(child, scratch)
        try:
            process.answer({"op": "ping"})
            yield process
        finally:
            stop_child(child)
            shutil.rmtree(scratch, ignore_errors=True)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request to the child."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        with self._lock:
            try:
                self.child.stdin.write(orjson.dumps(request) + b"\n")
                self.child.stdin.flush()
                line = self.child.stdout.readline()
            except BrokenPipeError:
                line = b""
        if not line:
            raise RuntimeError(f"the judge is gone (exit code {self.child.wait()}):\n{tail(self.scratch / 'log')}")
        answer: dict[str, Any] = orjson.loads(line)
        return answer
