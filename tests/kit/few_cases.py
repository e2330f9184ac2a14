"""A pytest plugin: of the cases of a test that takes long, `few(n)` says that n are quick, and the others slow.

Which those are the seed of the run decides. It is new each time, and printed (`tests/soak/counts.py`).
"""

from __future__ import annotations

import os
from collections import defaultdict

import pytest

from tests.soak import counts


def chosen_few(names: list[str], count: int) -> set[str]:
    """Those of the cases of a test that are quick in this run."""
    return set(sorted(names, key=lambda name: counts.chance_of("few", name).random())[:count])


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault(counts.SEED, str(counts.new_seed()))


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [f"chosen tests: {counts.SEED}={counts.seed()}"]


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at them
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    families: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("few") is not None and item.get_closest_marker("slow") is None:
            families[item.nodeid.split("[")[0]].append(item)
    for cases in families.values():
        marker = cases[0].get_closest_marker("few")
        assert marker is not None
        quick = chosen_few([item.nodeid for item in cases], *marker.args)
        for item in cases:
            if item.nodeid not in quick:
                item.add_marker("slow")
