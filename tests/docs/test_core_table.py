"""The table per core of the benchmarks and its plots are those of the committed results."""

from __future__ import annotations

import json

import pytest

from bench import core_table

RESULTS = {
    "machine": "2 cores, x86_64",
    "revision": "abc",
    "figures": {
        "CDC": {"Freshet": "250 K records/s, 160 MB/s", "Paimon on Flink": "80 K records/s, 50 MB/s"},
        "lookups": {"Freshet": "1,200 K keys/s"},
    },
}


def test_the_table_has_a_column_for_each_peer_that_took_part() -> None:
    assert core_table.table(RESULTS) == (
        "| per core | Freshet | Paimon on Flink |\n|---|---|---|\n"
        "| CDC from Kafka, whole runs (Flink: later queries) | 250 K records/s, 160 MB/s | 80 K records/s, 50 MB/s |\n"
        "| lookups | 1,200 K keys/s |  |\n\nMeasured on 2 cores, x86_64; revision abc.\n"
    )


def test_bars_are_as_long_as_their_rates() -> None:
    svg = core_table.plot(RESULTS, "CDC", "K records")
    assert 'class="o" x="140" y="30" width="330"' in svg
    assert 'class="b" x="140" y="56" width="106"' in svg  # 330 * 80 / 250


@pytest.fixture(scope="module")
def published() -> dict[str, object]:
    found: dict[str, object] = json.loads(core_table.PUBLISHED.read_text())
    return found


def test_the_page_has_the_published_table(published: dict[str, object]) -> None:
    page = core_table.PAGE.read_text()
    assert core_table.table(published) in page
    assert core_table.page_with(page, published) == page


def test_the_plots_are_those_of_the_published_results(published: dict[str, object]) -> None:
    for name, svg in core_table.plots(published).items():
        assert (core_table.PLOTS / name).read_text() == svg, f"{name}: python -m bench.core_table --publish"
        assert f"pictures/{name}" in core_table.PAGE.read_text()
