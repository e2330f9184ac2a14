"""The processes of the demo: `freshet run` as the writer, and the readers; what they print comes as JSON lines.

All of them end with the demo, however that ends.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from freshet.jobs.demo.child_process import start_child

STOP_TIMEOUT_S = 300.0


class Line(NamedTuple):
    """What a process has printed, or that it has ended (`facts` is None)."""

    process: str
    facts: Mapping[str, Any] | None


class Child:
    """One process; may be started again. To be used from the main thread: a child dies with the thread that made it."""

    def __init__(self, name: str, command: Sequence[str], lines: queue.Queue[Line], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._command = [sys.executable, "-m", *command]
        self._lines = lines
        self._process: subprocess.Popen[bytes] | None = None
        self._follower: threading.Thread | None = None

    def start(self, env: Mapping[str, str] | None = None) -> None:
        """Starts it; its lines come from now on."""
        with self.log.open("ab") as log:
            self._process = start_child(
                self._command, log=log, stdout=subprocess.PIPE, env={**os.environ, **(env or {})}
            )
        self._follower = threading.Thread(target=self._follow, args=(self._process,), name=self.name)
        self._follower.start()

    def kill(self) -> None:
        """SIGKILL to the process and all that it has started."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._end()

    def stop(self) -> None:
        """SIGTERM, which ends it in good order; waits."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
            self._end()

    def _end(self) -> None:
        assert self._process is not None
        assert self._follower is not None
        self._process.wait()
        self._follower.join()
        self._process = None

    def _follow(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if line.startswith(b"{"):
                    self._lines.put(Line(self.name, json.loads(line)))
        self._lines.put(Line(self.name, None))
