"""Patterns of paths, as Hadoop reads them."""

from __future__ import annotations

import pytest

from freshet.pipeline.local.file_listing import is_pattern, matches, plain_name, spelled_out


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("*", ["a", ".a", "", "a\nb"], []),
        ("a*.json", ["a.json", "abc.json"], ["a.jsonl", "aXjson", "ba.json"]),
        ("?.json", ["a.json"], [".json", "ab.json"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "-x"]),
        ("[^a-c]x", ["dx"], ["ax"]),
        ("[!a]x", ["bx", "!x"], ["ax"]),
        ("{a,bc,}x", ["ax", "bcx", "x"], ["abcx"]),
        ("{a,{b,c}d}", ["a", "bd", "cd"], ["b"]),
        (r"a\*\{b", ["a*{b"], ["ab{b"]),
        ("a,b^!(c)$+|d", ["a,b^!(c)$+|d"], ["ad"]),
    ],
)
def test_names_fit_a_pattern(pattern: str, fitting: list[str], others: list[str]) -> None:
    assert [name for name in [*fitting, *others] if matches(pattern, name)] == fitting


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="is no pattern"):
        matches("a[b", "a")


def test_a_part_may_stand_for_one_name() -> None:
    assert plain_name(r"a\*b") == "a*b" and plain_name("a*") is None
    assert is_pattern("/in/{a}") and is_pattern("/in/a\\b") and not is_pattern("/in/a b^!")


def test_slashes_in_braces_are_spelled_out() -> None:
    assert spelled_out("/in/{a/b,c}/{d,e}") == ["/in/a/b/{d,e}", "/in/c/{d,e}"]
    assert spelled_out("/{a/b,{c/d,e}}") == ["/a/b", "/c/d", "/e"]
    assert spelled_out(r"/\{a/b}") == [r"/\{a/b}"]
