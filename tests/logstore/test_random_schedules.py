"""The protocol under random schedules (`tests.kit.log_model`): whatever dies, comes twice or comes late, readers agree
with the table.

A failing seed is run again alone: FRESHET_LOG_SEED=<seed> pytest tests/logstore/test_random_schedules.py
"""

from __future__ import annotations

import os

import pytest

from tests.kit.log_model import Counts, run_schedule

QUICK = 60
ALL = 5_000
"""Schedules of each kind."""


def run(seeds: range, *, equal_replays: bool) -> Counts:
    given = os.environ.get("FRESHET_LOG_SEED")
    counts = Counts()
    for seed in seeds if given is None else [int(given)]:
        try:
            counts += run_schedule(seed, equal_replays=equal_replays)
        except BaseException as error:
            raise AssertionError(f"seed {seed}, equal_replays={equal_replays}: {error!r}") from error
    print(f"seeds {seeds}: {counts}")
    return counts


def test_equal_replays_are_silent() -> None:
    counts = run(range(QUICK), equal_replays=True)
    assert counts.settled > QUICK and counts.replacements and counts.zombie_steps and counts.lost_compactions


def test_replays_with_other_rows_are_healed() -> None:
    counts = run(range(QUICK), equal_replays=False)
    assert counts.settled > QUICK and counts.retracted and counts.zombie_steps


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("equal_replays", [True, False])
def test_ten_thousand_schedules(equal_replays: bool) -> None:
    counts = run(range(1_000_000, 1_000_000 + ALL), equal_replays=equal_replays)
    assert counts.settled > ALL and counts.zombie_steps > ALL // 10
