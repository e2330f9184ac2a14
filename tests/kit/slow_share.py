"""A pytest plugin: a run may take a share of the slow tests, chosen by its seed (`FRESHET_SLOW_SHARE=0.5`).

What one run leaves out others have: the seed is new each time, and printed (`tests/soak/counts.py`). Tests are chosen
one by one, so of the cases of one test some run. Asked for are slow tests, and those that draw all of their examples. A
test with the marker `takes_its_share` always runs, and its own tests are chosen from.
"""

from __future__ import annotations

import os

import pytest

from tests.soak import counts

SHARE = "FRESHET_SLOW_SHARE"
MARKERS = ("slow", "hypothesis")


def share() -> float:
    """Of the slow tests; all unless the environment says less."""
    return counts.share(SHARE)


def is_chosen(name: str) -> bool:
    """Whether this run has the test of that name."""
    return counts.chance_of("slow", name).random() < share()


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault(counts.SEED, str(counts.new_seed()))
    share()  # a wrong text is reported at once


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [] if share() == 1 else [f"slow tests: {SHARE}={share():g} {counts.SEED}={counts.seed()}"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if share() == 1:
        return
    kept = [item for item in items if not _is_slow(item) or is_chosen(item.nodeid)]
    names = {item.nodeid for item in kept}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in names])
    items[:] = kept


def _is_slow(item: pytest.Item) -> bool:
    """Files whose names do not begin with `test_` are those that a slow test runs."""
    if item.get_closest_marker("takes_its_share") is not None:
        return False
    is_run_by_another = not item.path.name.startswith("test_")
    return is_run_by_another or any(item.get_closest_marker(marker) is not None for marker in MARKERS)
