"""A pytest plugin: what a run has of many tests is chosen by its seed.

| what | which tests |
|---|---|
| `FRESHET_SLOW_SHARE=0.5` | a share of the slow tests, and of those that draw all of their examples |
| the marker `few(n)` | of the cases of a test that takes long, n are quick, the others slow |

What one run leaves out others have: the seed is new each time, and printed (`tests/soak/counts.py`). Tests are chosen
one by one, so of the cases of one test some run. A test with the marker `takes_its_share` always runs, and its own
tests are chosen from.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator

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


def chosen_few(names: list[str], count: int) -> set[str]:
    """Those of the cases of a test that are quick in this run."""
    return set(sorted(names, key=lambda name: counts.chance_of("few", name).random())[:count])


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault(counts.SEED, str(counts.new_seed()))
    share()  # a wrong text is reported at once


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [f"chosen tests: {SHARE}={share():g} {counts.SEED}={counts.seed()}"]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    _mark_the_rest_as_slow(items)  # before `-m` looks at them
    yield
    if share() == 1:
        return
    kept = [item for item in items if not is_slow(item) or is_chosen(item.nodeid)]
    names = {item.nodeid for item in kept}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in names])
    items[:] = kept


def _mark_the_rest_as_slow(items: list[pytest.Item]) -> None:
    families: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("few") is not None:
            families[item.nodeid.split("[")[0]].append(item)
    for cases in families.values():
        marker = cases[0].get_closest_marker("few")
        assert marker is not None
        quick = chosen_few([item.nodeid for item in cases], *marker.args)
        for item in cases:
            if item.nodeid not in quick:
                item.add_marker("slow")


def is_slow(item: pytest.Item) -> bool:
    """Files whose names do not begin with `test_` are those that a slow test runs."""
    if item.get_closest_marker("takes_its_share") is not None:
        return False
    is_run_by_another = not item.path.name.startswith("test_")
    return is_run_by_another or any(item.get_closest_marker(marker) is not None for marker in MARKERS)
