"""Milliseconds between laps: where the time of a task or of the driver went."""

from __future__ import annotations

import time


class Stopwatch:
    """`lap` adds the time since the last lap to a step; `times_ms` are the steps so far."""

    def __init__(self) -> None:
        self.times_ms: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Ends a lap."""
        now = time.perf_counter()
        self.times_ms[name] = self.times_ms.get(name, 0.0) + (now - self._last) * 1000
        self._last = now
