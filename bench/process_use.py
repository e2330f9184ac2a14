"""What processes take: processor time and memory, with all that they have started."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_SAMPLE_S: Final = 0.25


@dataclass(slots=True)
class Use:
    """Processor seconds, and the most megabytes at one time, each shared page once (PSS)."""

    processor_s: float = 0.0
    megabytes: float = 0.0


@contextmanager
def used_by(roots: Iterable[int]) -> Iterator[Use]:
    """What these processes and their descendants take in the block; they live on."""
    pids, use, ended = list(roots), Use(), threading.Event()

    def sample() -> None:
        while not ended.wait(_SAMPLE_S):
            use.megabytes = max(use.megabytes, sum(map(_megabytes, _trees(pids))))

    before = _processor_s(pids)
    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield use
    finally:
        ended.set()
        sampler.join()
        use.processor_s = _processor_s(pids) - before


def _processor_s(roots: list[int]) -> float:
    """With that of descendants that have ended, whose parents have waited for them."""
    return sum(sum(map(int, fields[11:15])) for each in _trees(roots) if (fields := _fields(each))) / _TICKS


def _trees(roots: list[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdecimal() and (fields := _fields(int(each.name))):
            children.setdefault(int(fields[1]), []).append(int(each.name))
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        found.add(pid)
        waiting += children.get(pid, [])
    return found


def _fields(pid: int) -> list[str]:
    """Those of `stat` from the state on; none where the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _megabytes(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0) / 1024
