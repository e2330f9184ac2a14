"""Child processes that never outlive their parent: where it is Linux, the kernel ends them however the parent dies. Of
the demos they are `freshet run` as the writer, and readers, whose JSON lines are heard; servers get ports here."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None


def start_child(
    command: Sequence[str | Path],
    *,
    log: IO[bytes],
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.Popen[Any]:
    """Starts a child in a session of its own (a Ctrl-C is for us to handle) that writes its errors to `log`.

    The death signal belongs to the thread that starts the child: start children from threads that last.
    """
    parent = os.getpid()

    def die_with_parent() -> None:
        if _LIBC is not None:
            _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it died before the request reached the kernel
                os.kill(os.getpid(), signal.SIGKILL)

    return subprocess.Popen(
        [str(part) for part in command],
        stdin=stdin,
        stdout=stdout if stdout is not None else log,
        stderr=log,
        env=env,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def stop_child(child: subprocess.Popen[Any], *, timeout_s: float = 10.0) -> None:
    """Asks with SIGTERM, then kills; returns when the child is gone and its pipes are closed."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def tail(path: Path, size_bytes: int = 4000) -> str:
    """The end of a child's log, for an error message."""
    return path.read_bytes()[-size_bytes:].decode(errors="replace") if path.exists() else ""


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


PORTS: Final = (10_000, 16_000)
"""Below those that Linux gives by itself (`ip_local_port_range`)."""


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, none of those that the system gives to outgoing connections: a client that
    tries to reach a broker that is down could be given the broker's own port, and hold it.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(*PORTS)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            found += [port] if port not in found else []
    return found
