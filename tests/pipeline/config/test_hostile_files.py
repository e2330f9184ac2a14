"""Pipeline files that are made to hang or to end whoever reads them: refused in milliseconds."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from freshet.pipeline.config.pipeline_file import parse_pipeline

LEVELS = "abcdefghijklmnopqrst"


def aliases(first: str, later: str) -> str:
    """Keys of which each repeats the one before nine times."""
    lines = [f"{LEVELS[0]}: &{LEVELS[0]} {first}"]
    for before, name in pairwise(LEVELS):
        lines.append(f"{name}: &{name} {later.format(', '.join([f'*{before}'] * 9), name)}")
    return "\n".join(lines) + "\n"


FILES = {
    "aliases": (aliases("[x]", "[{0}]"), "more than 100,000 values"),
    "aliases of keys": (aliases("{k: 1}", "{{<<: [{0}], {1}: 1}}"), "more than 100,000 values"),
    "aliases below each other": (
        "a0: &a0 [1]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}]\n" for n in range(400)),
        "nested more than 50 deep",
    ),
    "an alias of itself": ("a: &a [*a]\n", "an alias contains itself"),
    "keys of itself": ("a: &a\n  <<: *a\n", "an alias contains itself"),
    "open brackets": ("[" * 20_000, "nested more than 50 deep"),
    "brackets": ("a: " + "[" * 20_000 + "]" * 20_000, "nested more than 50 deep"),
    "braces": ("{" * 20_000, "nested more than 50 deep"),
    "dashes": ("- " * 20_000, "nested more than 50 deep"),
    "blocks": ("".join(f"{' ' * n}k{n}:\n" for n in range(1000)), "nested more than 50 deep"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_refused(name: str) -> None:
    text, reason = FILES[name]
    began = time.process_time()
    config, problems = parse_pipeline(text, "hostile.yaml", {})
    assert time.process_time() - began < 1, "milliseconds, on a quiet machine"
    assert config is None
    assert len(problems) == 1
    assert reason in str(problems[0])
    assert str(problems[0]).startswith("hostile.yaml:")


def test_names_cannot_forge_lines() -> None:
    _, problems = parse_pipeline('"na\\x1b[2J\\nfreshet: all is well": 1\n', "a\nb.yaml", {})
    for problem in problems:
        assert str(problem).isprintable(), str(problem)
