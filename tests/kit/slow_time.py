"""A pytest plugin: slow tests, or those of a soak, run until their time is over, in an order that the seed draws.

`FRESHET_SLOW_MINUTES=12` is the time of a run, `FRESHET_SOAK_MINUTES=3` that of one with `-m soak`; `python -m tests`
divides it among its processes. The order has four rounds, each with a quarter of the tests of every file. What is left
out is counted and printed, and `python -m tests` fails where a run has drawn less than a quarter of what a quiet
machine reaches. Tests with the marker `always` come first, and run however long they take.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.kit.soak_runs import is_soak
from tests.soak import counts

MINUTES = "FRESHET_SLOW_MINUTES"
SOAK_MINUTES = "FRESHET_SOAK_MINUTES"
PACES = {MINUTES: 24.0, SOAK_MINUTES: 2.0}
"""Tests that two quiet cores draw in a minute, at least."""
FLOOR = 0.25
"""Of those."""
ROUNDS = 4
MARKERS = ("slow", "hypothesis", "soak")
CROSSINGS = ("Kafka", "files", "table source", "table_sink", "sync", "replay", "kill", "log", "spark-submit")
ALWAYS = {"judges", "upgrade archives", "a kill for each producer", "two writers", "reports in a browser"} | {
    f"crossing: {each}" for each in CROSSINGS
}
"""What every run of CI has, of the quick tests or beside them; each crossing is tested on real Spark."""


def is_timed(item: pytest.Item) -> bool:
    """Whether a test may be left out. Files whose names do not begin with `test_` are those that a slow test runs."""
    if item.get_closest_marker("always") is not None:
        return False
    is_run_by_another = not item.path.name.startswith("test_")
    return is_run_by_another or any(item.get_closest_marker(marker) is not None for marker in MARKERS)


def _place(item: pytest.Item) -> tuple[bool, int, float]:
    number = int(counts.chance_of("round", item.nodeid).random() * ROUNDS)
    return is_timed(item), number if is_timed(item) else 0, counts.chance_of("order", str(item.path.name)).random()


class SlowTime:
    """Of one run: the time that it has, and what it has drawn and left out."""

    def __init__(self, variable: str, text: str) -> None:
        self.variable = variable
        try:
            self.minutes = float(text)
        except ValueError:
            self.minutes = 0.0
        if not self.minutes > 0:
            raise ValueError(f"{variable} is {text!r}: give a number of minutes above 0")
        self.until: float | None = None
        self.drawn = self.left_out = 0

    def ends(self, count: int, side_by_side: int) -> list[float]:
        """The end of each of some processes, the first of which begins now: those that start at once have half of the
        time, those that come after them all of it."""
        begin, whole = time.time(), self.minutes * 60
        return [begin + (whole / 2 if number < side_by_side < count else whole) for number in range(count)]

    def floor(self) -> int:
        """How many tests a run draws at least, unless there are no more."""
        return int(self.minutes * PACES[self.variable] * FLOOR)

    def is_below_its_floor(self) -> bool:
        return self.left_out > 0 and self.drawn < self.floor()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=_place)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if self.until is None:
            [self.until] = self.ends(1, 1)
        if not is_timed(item):
            return None
        if time.time() < self.until:
            self.drawn += 1
            return None
        self.left_out += 1
        item.session._setupstate.teardown_exact(nextitem)  # as the test would have done at its end
        return True

    def remark(self) -> str:
        return f"slow tests: {self.drawn} drawn, {self.left_out} left out for want of time ({self.variable})"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(self.remark())


def pytest_configure(config: pytest.Config) -> None:
    variable = SOAK_MINUTES if is_soak(config) else MINUTES
    if variable in os.environ:
        config.pluginmanager.register(SlowTime(variable, os.environ[variable]), "slow time")
