"""Child processes that never outlive their parent: where it is Linux, the kernel ends them however the parent dies."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

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
