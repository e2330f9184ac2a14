"""Ranged reads: the plan of requests, and the bytes that come of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.storage.io.ranges import ByteRange, ReadCosts, plan_reads, read_ranges

COSTS = ReadCosts(whole_bytes=100, gap_bytes=10, request_bytes=1000)


def plan(*wanted: tuple[int, int], size: int | None = 10_000) -> list[tuple[int, int]]:
    requests = plan_reads([ByteRange(*each) for each in wanted], COSTS, size)
    return [(request.offset, request.length) for request in requests]


@pytest.mark.parametrize(
    ("wanted", "requests"),
    [
        ([], []),
        ([(5, 0)], []),
        ([(0, 5)], [(0, 5)]),
        ([(0, 5), (15, 5)], [(0, 20)]),
        ([(0, 5), (16, 5)], [(0, 5), (16, 5)]),
        ([(16, 5), (0, 5)], [(0, 5), (16, 5)]),
        ([(0, 50), (10, 5), (30, 40)], [(0, 70)]),
        ([(0, 1000)], [(0, 1000)]),
        ([(7, 2500)], [(7, 833), (840, 833), (1673, 834)]),
        ([(0, 600), (605, 600)], [(0, 602), (602, 603)]),
        ([(9_990, 100)], [(9_990, 10)]),
        ([(10_000, 1), (20_000, 1)], []),
    ],
)
def test_near_ranges_are_one_request_and_long_ones_several(
    wanted: list[tuple[int, int]], requests: list[tuple[int, int]]
) -> None:
    assert plan(*wanted) == requests


def test_a_small_file_is_read_whole() -> None:
    assert plan((0, 1), (90, 5), size=100) == [(0, 100)]
    assert plan((0, 1), (90, 5), size=101) == [(0, 1), (90, 5)]
    assert plan((0, 1), size=None) == [(0, 1)]
    assert plan((0, 0), size=100) == []


def one_by_one(calls: Sequence[Callable[[], pa.Buffer]]) -> list[pa.Buffer]:
    return [call() for call in calls]


FILE = bytes(number % 251 for number in range(600))


@given(
    st.lists(st.builds(ByteRange, st.integers(0, 700), st.integers(0, 200)), max_size=8),
    st.builds(ReadCosts, st.sampled_from([0, 599, 600]), st.integers(0, 60), st.integers(1, 150)),
    st.booleans(),
)
def test_the_bytes_of_each_range_come_of_few_requests(
    wanted: list[ByteRange], costs: ReadCosts, knows_size: bool
) -> None:
    made: list[ByteRange] = []

    def read(request: ByteRange) -> pa.Buffer:
        made.append(request)
        return pa.py_buffer(FILE[request.offset : request.end])

    found = read_ranges(read, wanted, costs, one_by_one, size_bytes=len(FILE) if knows_size else None)
    assert [part.to_pybytes() for part in found] == [FILE[each.offset : each.end] for each in wanted]
    if knows_size and costs.whole_bytes >= len(FILE):
        assert made in ([], [ByteRange(0, len(FILE))])
        return
    for before, after in pairwise(made):
        assert before.end == after.offset or after.offset - before.end > costs.gap_bytes
    assert all(0 < request.length <= costs.request_bytes for request in made)
    assert not knows_size or all(request.end <= len(FILE) for request in made)
    needed = {at for each in wanted for at in range(each.offset, each.end)}
    gap = 0
    for at in (at for request in made for at in range(request.offset, request.end)):
        gap = 0 if at in needed else gap + 1
        assert gap <= costs.gap_bytes, "no more is read than a request costs"


def test_one_request_is_cut_without_a_copy() -> None:
    whole = pa.py_buffer(FILE)
    [part] = read_ranges(
        lambda _: whole, [ByteRange(5, 10)], ReadCosts(600, 0, 600), lambda calls: [c() for c in calls], size_bytes=600
    )
    assert part.address == whole.address + 5
