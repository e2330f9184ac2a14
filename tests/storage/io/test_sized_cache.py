"""What is kept in memory stays within its bound, by use."""

from __future__ import annotations

from freshet.storage.io.sized_cache import SizedCache


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
