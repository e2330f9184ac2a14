"""A pytest plugin: slow tests run until their time is over, files in an order that the seed draws.

`FRESHET_SLOW_MINUTES=20` is the time of a run; `python -m tests` gives each of its processes an end. What is left out
then is counted and printed; a quarter of the slow tests of each process runs however long it takes.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.kit.slow_share import is_slow
from tests.soak import counts

MINUTES = "FRESHET_SLOW_MINUTES"
UNTIL = "FRESHET_SLOW_UNTIL"
"""Seconds of the clock (`time.time`)."""
FLOOR = 0.25


def ends(minutes: str | None, side_by_side: int, count: int) -> list[dict[str, str]]:
    """What the environment of each process has, of a run that begins now: those that start at once have half of the
    time, those that come after them all of it. Raises `ValueError` where the text is no number above 0."""
    if minutes is None:
        return [{}] * count
    if not float(minutes) > 0:
        raise ValueError(f"{MINUTES} is a number of minutes above 0, not {minutes}")
    begin, whole = time.time(), float(minutes) * 60
    return [{UNTIL: str(begin + (whole / 2 if number < side_by_side else whole))} for number in range(count)]


class SlowTime:
    """Of one process."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.count = self.run = self.left_out = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: counts.chance_of("order", str(item.path)).random())
        self.count = sum(map(_is_timed, items))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if not _is_timed(item):
            return None
        if time.time() < self.until or self.run < FLOOR * self.count:
            self.run += 1
            return None
        self.left_out += 1
        item.session._setupstate.teardown_exact(nextitem)  # as the test would have done at its end
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        text = f"slow tests: {self.run} run, {self.left_out} left out for want of time ({MINUTES})"
        terminalreporter.write_line(text)


def _is_timed(item: pytest.Item) -> bool:
    return is_slow(item) or any(item.get_closest_marker(name) is not None for name in ("takes_its_share", "soak"))


def pytest_configure(config: pytest.Config) -> None:
    if UNTIL in os.environ:
        config.pluginmanager.register(SlowTime(float(os.environ[UNTIL])))
