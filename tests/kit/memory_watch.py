"""The memory of a process and all it starts, while it runs: the peak of each, as the kernel keeps it (Linux)."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

EVERY_S = 0.1
_PARENT = 1
"""Of the fields of `stat` behind the command."""


class MemoryWatch:
    """Looks at the processes below `pid`, itself included, until the block ends."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peaks: dict[int, tuple[bool, int]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def jvm_mb(self) -> int:
        """The largest resident size of a JVM."""
        return max((size for is_jvm, size in self._peaks.values() if is_jvm), default=0)

    @property
    def python_mb(self) -> int:
        """The largest resident size of a Python process: the program, or one of Spark's workers."""
        return max((size for is_jvm, size in self._peaks.values() if not is_jvm), default=0)

    @property
    def sum_mb(self) -> int:
        """The largest resident sizes of all of them, what they share counted for each."""
        return sum(size for _, size in self._peaks.values())

    def _watch(self) -> None:
        while not self._ended.wait(EVERY_S):
            for pid in descendants(self._pid):
                with contextlib.suppress(OSError):
                    size = _peak_mb(pid)
                    if size:
                        self._peaks[pid] = (_is_jvm(pid), size)


def descendants(pid: int) -> list[int]:
    """A process and those below it, each before its own children."""
    children = children_of_all()
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def children_of_all() -> dict[int, list[int]]:
    """The children of each process of this machine."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[_PARENT]), []).append(int(folder.name))
    return children


def _peak_mb(pid: int) -> int:
    """Peak resident size; 0 of a process that is ending."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    return 0


def _is_jvm(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(b"java")
