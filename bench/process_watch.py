"""What the processes of a run use together: memory at most, each shared page once, and processor time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

_SAMPLE_S: Final = 0.25
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class ProcessWatch:
    """Looks four times a second at the processes that `pids` names, in a thread, until it is left.

    Of a process that ends, the last look counts: up to a quarter of a second of its processor time is missed.
    """

    def __init__(self, pids: Callable[[], list[int]]) -> None:
        self._pids, self._ended = pids, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._cpu_s: dict[int, float] = {}
        self.megabytes = 0.0

    @property
    def cpu_seconds(self) -> float:
        """Of all processes that were seen, whether they live or not."""
        return sum(self._cpu_s.values())

    def __enter__(self) -> ProcessWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            self._look()

    def _look(self) -> None:
        kilobytes = 0
        for pid in self._pids():
            kilobytes += _shared_kilobytes(pid)
            if (seconds := cpu_seconds_of(pid)) is not None:
                self._cpu_s[pid] = seconds
        self.megabytes = max(self.megabytes, kilobytes / 1024)


def session_of(leader: int) -> list[int]:
    """The processes of a session, which Spark's JVM and its workers are in as well."""
    return [pid for pid in _all_pids() if (fields := _stat(pid)) and int(fields[3]) == leader]


def cpu_seconds_of(pid: int) -> float | None:
    """What a process has used itself, in user and system mode; None if it is gone."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS if fields else None


def _all_pids() -> list[int]:
    return [int(each) for each in os.listdir("/proc") if each.isdecimal()]


def _stat(pid: int) -> list[str]:
    """The fields of `/proc/PID/stat` behind the name, the state first."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _shared_kilobytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
