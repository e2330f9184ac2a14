"""Patterns of paths as Hadoop has them: `*`, `?`, `[a-b]`, `[^a]`, `{a,b}`, and `\\` before a character that is meant.

Source: Hadoop's `GlobPattern` and `GlobExpander`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_MAGIC: Final = re.compile(r"[{}\[\]*?\\]")
_ESCAPED: Final = frozenset(".$()|+")


def is_pattern(path: str) -> bool:
    """Whether a path is taken for a pattern."""
    return _MAGIC.search(path) is not None


def plain_name(part: str) -> str | None:
    """The only name that a part of a pattern may stand for, None where there are several."""
    return None if re.search(r"[{}\[\]*?]", re.sub(r"\\.", "", part)) else re.sub(r"\\(.)", r"\1", part)


def matches(pattern: str, name: str) -> bool:
    """Whether a name is one of a pattern. Raises `ValueError` for a pattern that is none."""
    return _compiled(pattern).fullmatch(name) is not None


def spelled_out(pattern: str) -> list[str]:
    """Patterns in whose braces there is no slash, which together say the same."""
    begin, depth = -1, 0
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            at += 1
        elif character == "{":
            if not depth:
                begin, start, parts = at, at + 1, []
            depth += 1
        elif character == "," and depth == 1:
            parts.append(pattern[start:at])
            start = at + 1
        elif character == "}" and depth:
            depth -= 1
            if not depth and "/" in pattern[begin:at]:
                parts.append(pattern[start:at])
                found = (f"{pattern[:begin]}{each}{pattern[at + 1 :]}" for each in parts)
                return [each for one in found for each in spelled_out(one)]
        at += 1
    return [pattern]


@lru_cache(64)
def _compiled(pattern: str) -> re.Pattern[str]:
    found, braces, is_set, at = [], 0, False, 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            at += 1
            found.append(re.escape(pattern[at : at + 1]))
        elif character in _ESCAPED or (character == "^" and not is_set):
            found.append(f"\\{character}")
        elif character == "*" and not is_set:
            found.append(".*")
        elif character == "?" and not is_set:
            found.append(".")
        elif character == "{" and not is_set:
            found.append("(?:")
            braces += 1
        elif character == "," and braces and not is_set:
            found.append("|")
        elif character == "}" and braces and not is_set:
            found.append(")")
            braces -= 1
        elif character == "!" and is_set and pattern[at - 1] == "[":
            found.append("^")
        else:
            is_set = character == "[" or (is_set and character != "]")
            found.append(character)
        at += 1
    try:
        return re.compile("".join(found), re.DOTALL)
    except re.error as error:
        raise ValueError(f"{pattern} is no pattern: {error}") from error
