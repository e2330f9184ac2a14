"""What is kept in memory stays within its bound, by use."""

from __future__ import annotations

import gc

from freshet.storage.io.sized_cache import OTHERS_MAX, SharedBound, SizedCache


def test_what_was_used_longest_ago_goes_first() -> None:
    cache: SizedCache[str, bytes] = SizedCache(6)
    cache.put("a", b"aaa")
    cache.put("b", b"bb")
    assert cache.get("a") == b"aaa"
    cache.put("c", b"cc")
    assert ("a" in cache, "b" in cache, cache.get("b"), cache.get("c")) == (True, False, None, b"cc")


def test_a_value_in_place_of_another_counts_once() -> None:
    cache: SizedCache[str, bytes] = SizedCache(6)
    cache.put("a", b"aaaa")
    cache.put("a", b"a")
    cache.put("b", b"bbbbb")
    assert (cache.get("a"), cache.get("b")) == (b"a", b"bbbbb")
    cache.drop(["a", "none of these"])
    cache.put("c", b"c")
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (None, b"bbbbb", b"c")


def test_the_newest_value_stays_whatever_its_size() -> None:
    cache: SizedCache[str, bytes] = SizedCache(6)
    cache.put("a", b"a")
    cache.put("b", b"b" * 10)
    assert (cache.get("a"), cache.get("b")) == (None, b"b" * 10)


def test_caches_divide_what_they_may_hold_together() -> None:
    bound = SharedBound(100, 20)
    first: SizedCache[int, str] = SizedCache(bound)
    for number in range(10):
        first.put(number, "x" * 10)
    assert len([number for number in range(10) if number in first]) == 10
    others = [SizedCache[int, str](bound) for _ in range(9)]
    assert bound.share == 20, "not below the least"
    first.put(10, "x" * 10)
    assert [number for number in range(11) if number in first] == [9, 10]
    del others
    gc.collect()
    assert bound.share == 100


def test_what_lives_no_more_is_forgotten_once_it_is_most() -> None:
    cache: SizedCache[int, str] = SizedCache(1000)
    for number in range(OTHERS_MAX + 10):
        cache.put(number, "x")
        cache.keep(5, iter(range(number - 4, number + 1)))
    held = [number for number in range(OTHERS_MAX + 10) if number in cache]
    assert held == list(range(OTHERS_MAX + 10)), "looked at too often"
    cache.put(OTHERS_MAX + 10, "x")
    cache.keep(5, range(OTHERS_MAX + 6, OTHERS_MAX + 11))
    assert [number for number in range(OTHERS_MAX + 11) if number in cache] == list(
        range(OTHERS_MAX + 6, OTHERS_MAX + 11)
    )
    cache.keep(0, [])
    assert OTHERS_MAX + 10 in cache
