"""When the batches of a query begin, and the clock that says so.

With an interval, at most one batch begins in each multiple of it of the wall clock, as Spark has it: after a batch that
took longer the next one begins at once. Where nothing was new at the beginning of a multiple, the batch begins with the
first record in it; Spark waits for the next one.
"""

from __future__ import annotations

import threading
import time

from freshet._frozen import Frozen


class Trigger(Frozen):
    """The interval of a query, 0 for as fast as possible; or everything that is there now, and then the end."""

    interval_ms: int = 0
    available_now: bool = False

    def next_ms(self, begun_ms: int) -> int:
        """When the batch after one may begin."""
        if self.available_now or not self.interval_ms:
            return begun_ms
        return begun_ms // self.interval_ms * self.interval_ms + self.interval_ms


class WallClock:
    """The time, and waiting."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def pause(self, ends: threading.Event, seconds: float) -> None:
        """Waits, unless it ends."""
        ends.wait(seconds)
