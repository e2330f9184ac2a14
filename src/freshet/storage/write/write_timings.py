"""Where the time of writing went, summed over threads, in seconds: for benches and progress reports.

Steps: "route" (checks, bucket hash, split), "spill", "sort and merge", "files" (level 0), "compaction" (all of it).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class WriteTimings:
    """Seconds by step; may be shared by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = {}

    def add(self, step: str, started: float) -> None:
        """Adds the time since `started`, a value of `time.perf_counter`."""
        elapsed = time.perf_counter() - started
        with self._lock:
            self._seconds[step] = self._seconds.get(step, 0.0) + elapsed

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """What happens inside counts for the step."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, started)

    def timed(self, step: str, items: Iterable[T]) -> Iterator[T]:
        """The items; the time it takes to make them counts for the step."""
        source = iter(items)
        while True:
            started = time.perf_counter()
            try:
                item = next(source)
            except StopIteration:
                return
            finally:
                self.add(step, started)
            yield item

    def seconds(self) -> dict[str, float]:
        """A copy."""
        with self._lock:
            return dict(self._seconds)
