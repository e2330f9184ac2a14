"""The index of keys in memory: what it finds, how much memory it takes; the rule that gives new keys their buckets."""

from __future__ import annotations

import tracemalloc

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.storage.write import partition_index
from freshet.storage.write.partition_index import BUCKETS_MAX, UNKNOWN, AssignerShare, AssignmentRule, KeyIndex

BYTES_PER_KEY_MAX = 12
HASHES = st.integers(-(2**31), 2**31 - 1)


def hashes(*values: int) -> npt.NDArray[np.int32]:
    return np.array(values, np.int32)


@given(st.lists(st.lists(st.tuples(HASHES, st.integers(0, 40)), max_size=30), max_size=12), st.lists(HASHES))
def test_an_index_finds_what_was_added_first(parts: list[list[tuple[int, int]]], others: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_index, "RECENT_MIN", 8)
        patch.setattr(partition_index, "PIECE", 7)
        index, expected = KeyIndex(), dict[int, int]()
        for part in parts:
            for value, bucket in part:
                expected.setdefault(value, bucket)
            index.add(hashes(*(value for value, _ in part)), np.array([bucket for _, bucket in part], np.int16))
            if len(part) % 2:
                index.settle()
        asked = [*expected, *others]
        assert index.find(hashes(*asked)).tolist() == [expected.get(value, UNKNOWN) for value in asked]
        assert len(index) == len(expected)
        by_bucket = {bucket: sorted(found.tolist()) for bucket, found in index.by_bucket()}
        assert {value: bucket for bucket, found in by_bucket.items() for value in found} == expected
        for bucket in list(by_bucket)[:1]:
            index.remove(bucket)
            assert sorted(index.find(hashes(*by_bucket[bucket])).tolist()) == [UNKNOWN] * len(by_bucket[bucket])
            assert len(index) == len(expected) - len(by_bucket[bucket])


@given(st.lists(st.sets(HASHES, max_size=30), max_size=8), st.booleans(), st.integers(1, 3))
def test_keys_that_are_known_to_be_new_are_added_as_others_are(
    parts: list[set[int]], is_merged: bool, bucket_count: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_index, "RECENT_MIN", 8)
        index, expected = KeyIndex(), dict[int, int]()
        for number, part in enumerate(parts):
            bucket = number % bucket_count
            new = hashes(*sorted(part - expected.keys()))
            expected.update(dict.fromkeys(new.tolist(), bucket))
            other = KeyIndex() if is_merged else index
            other.extend(new, np.full(len(new), bucket, np.int16))
            if is_merged:
                index.merge(other)
        assert index.find(hashes(*expected)).tolist() == list(expected.values())
        assert len(index) == len(expected)


def test_a_key_takes_less_than_twelve_bytes_also_while_others_are_added() -> None:
    chance, index, count = np.random.default_rng(7), KeyIndex(), 2_000_000
    everything = chance.permutation(np.arange(-count, count, 2, dtype=np.int32))
    tracemalloc.start()
    try:
        for part in np.array_split(everything, 40):
            index.add(part, np.zeros(len(part), np.int16))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(index) == count
    assert index.size_bytes == 6 * count
    assert peak < BYTES_PER_KEY_MAX * count


def test_new_keys_fill_the_lowest_buckets_whatever_order_they_come_in() -> None:
    rule = AssignmentRule(3)
    assert rule.assign(hashes(-9, -1, 4, 7, 8), {0: 3, 2: 1}).tolist() == [2, 2, 1, 1, 1]
    assert rule.assign(hashes(1), {0: 3, 1: 2, 5: 0}).tolist() == [1]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_assigners_own_disjoint_buckets_and_keys(count: int) -> None:
    keys = np.unique(np.random.default_rng(3).integers(-(2**31), 2**31, 500).astype(np.int32))
    given_to: dict[int, int] = {}
    for number in range(count):
        share = AssignerShare(number, count)
        for bucket in AssignmentRule(10, 4 * count, share).assign(keys[share.has(keys)], {}).tolist():
            assert given_to.setdefault(bucket, number) == number
            assert bucket % count == number
            assert bucket < 4 * count
    assert sum(int(AssignerShare(number, count).has(keys).sum()) for number in range(count)) == len(keys)


def test_beyond_the_largest_number_buckets_grow_over_the_target() -> None:
    given_to = AssignmentRule(2, 3).assign(hashes(*range(100)), {0: 1})
    assert set(given_to.tolist()) == {0, 1, 2}
    assert AssignmentRule(1).assign(hashes(5), dict.fromkeys(range(BUCKETS_MAX), 1))[0] in range(BUCKETS_MAX)
