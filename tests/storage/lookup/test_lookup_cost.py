"""Which way a lookup goes: the table of `lookup_cost`, and what it adds up to."""

from __future__ import annotations

import pytest

from freshet.storage.lookup.lookup_cost import ROWS_MIN, FileCosts, LookupWay, choose

SMALL = FileCosts(ROWS_MIN - 1, 10**9)
MEDIUM = FileCosts(400_000, 12_000_000)
PACKED = FileCosts(100_000, 3_000_000, is_packed=True)
LARGE = FileCosts(1_000_000, 30_000_000)
LARGE_PACKED = FileCosts(1_000_000, 30_000_000, is_packed=True)
OFTEN_ASKED = FileCosts(5_000, 170_000)
"""As small micro-batches make them."""


@pytest.mark.parametrize(
    ("costs", "has_store", "read_so_far_s", "way"),
    [
        (SMALL, True, 0.0, LookupWay.STORE),
        (LARGE, True, 0.0, LookupWay.STORE),
        (SMALL, False, 1e9, LookupWay.READ),
        (MEDIUM, False, 0.0, LookupWay.READ),
        (OFTEN_ASKED, False, 0.0, LookupWay.READ),
        (OFTEN_ASKED, False, 2 * OFTEN_ASKED.read_s(10_000), LookupWay.BUILD),
        (MEDIUM, False, MEDIUM.build_s - MEDIUM.read_s(10_000) - 1e-6, LookupWay.READ),
        (MEDIUM, False, MEDIUM.build_s - MEDIUM.read_s(10_000) + 1e-6, LookupWay.BUILD),
        (PACKED, False, PACKED.of_kind(is_packed=False).build_s, LookupWay.READ),
        (PACKED, False, PACKED.build_s - PACKED.read_s(10_000) + 1e-6, LookupWay.BUILD),
        (LARGE, False, 1e9, LookupWay.READ_AND_BUILD_LATER),
        (LARGE_PACKED, False, 0.0, LookupWay.READ),
        (LARGE_PACKED, False, LARGE_PACKED.build_s / 2, LookupWay.READ_AND_BUILD_LATER),
    ],
)
def test_the_table(costs: FileCosts, has_store: bool, read_so_far_s: float, way: LookupWay) -> None:
    assert choose(costs, 10_000, has_store=has_store, read_so_far_s=read_so_far_s) is way


@pytest.mark.parametrize("key_count", [1, 50, 100_000])
def test_no_more_than_twice_the_time_of_the_best_choice_is_spent(key_count: int) -> None:
    """However often the file is asked; what asking a store takes does not count."""
    spent = 0.0
    for lookups in range(1, 1000):
        if choose(MEDIUM, key_count, has_store=False, read_so_far_s=spent) is LookupWay.BUILD:
            spent += MEDIUM.build_s
            break
        spent += MEDIUM.read_s(key_count)
        assert spent <= lookups * MEDIUM.read_s(key_count) < MEDIUM.build_s
    assert spent <= 2 * MEDIUM.build_s


def test_the_first_lookup_of_many_keys_has_the_store_of_a_large_file_made() -> None:
    assert choose(LARGE, 10_000, has_store=False, read_so_far_s=0.0) is LookupWay.READ_AND_BUILD_LATER
    assert choose(LARGE, 1, has_store=False, read_so_far_s=0.0) is LookupWay.READ


def test_keys_of_a_large_file_cost_the_row_groups_they_are_in() -> None:
    assert LARGE.read_s(1) < LARGE.read_s(3) < LARGE.read_s(100) == LARGE.read_s(10_000)
    assert FileCosts(0, 0).read_s(5) > 0
