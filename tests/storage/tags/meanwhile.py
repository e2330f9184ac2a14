"""A program that another one interrupts."""

from __future__ import annotations

from collections.abc import Callable

from freshet.storage.io.env import CrashPoint
from tests.kit.sim_env import SimEnv


class Meanwhile(SimEnv):
    """Does something else when the program reaches a point, once."""

    def do_at(self, point: CrashPoint, work: Callable[[], object]) -> None:
        self.waiting: dict[CrashPoint, Callable[[], object]] = {point: work}

    def reach(self, point: CrashPoint) -> None:
        work = getattr(self, "waiting", {}).pop(point, None)
        if work is not None:
            work()
        super().reach(point)
