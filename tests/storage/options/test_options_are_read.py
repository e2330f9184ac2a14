"""Each option is declared once, and what is done with it is what its declaration says: it is read, refused or without
effect."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from freshet.storage.options import CoreOptions, risky_options, unheeded_options
from freshet.storage.options.declaration import ATTRIBUTES, GROUPS
from freshet.storage.options.declared.unsupported import ENGINE_KEYS, FORMAT_KEYS, MOVED_OUT, REFUSED
from freshet.storage.options.option import FLAG, Option, Status

SOURCES = Path(__file__).parents[3] / "src" / "freshet"
CORE = "storage/options/core.py"
HOLDERS = {"options", "_options", "core", "CoreOptions"}
"""What values of `CoreOptions` are called; in their own module `self` is one."""
MAY_HOLD = re.compile(rf"\b(?:{'|'.join(HOLDERS)})\s*\.")
"""Modules without such a name before a dot are not parsed."""


@cache
def attributes_by_module() -> dict[str, frozenset[str]]:
    """Attributes that the code of each module asks options for."""
    files = {path: path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py") if path.parent != SOURCES}
    texts = {path.relative_to(SOURCES).as_posix(): text for path, text in files.items()}
    return {
        name: frozenset(
            node.attr
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Attribute) and _holder(node.value, name)
        )
        for name, text in texts.items()
        if name == CORE or MAY_HOLD.search(text)
    }


def read_attributes(besides: str = "") -> frozenset[str]:
    """Attributes that code asks options for, in all modules but this."""
    return frozenset().union(*(found for name, found in attributes_by_module().items() if name != besides))


def _holder(value: ast.expr, path: str) -> bool:
    name = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
    return name in HOLDERS or (name == "self" and path == CORE)


def unread(declared: Mapping[str, Option[Any]]) -> list[str]:
    """Keys of options with status *read* that no code asks for."""
    read = read_attributes()
    return [option.key for name, option in declared.items() if option.status is Status.READ and name not in read]


@pytest.mark.dear("parses the whole source")
def test_every_option_that_is_declared_read_is_read() -> None:
    nobodys = Option("a-key.that-nobody-reads", FLAG, False)
    assert len(ATTRIBUTES) > 110
    assert unread({**ATTRIBUTES, "a_field_that_nobody_reads": nobodys}) == [nobodys.key]


@pytest.mark.dear("parses the whole source, where it is the first")
def test_options_that_are_refused_or_tolerated_are_not_read() -> None:
    others = {name: option for name, option in ATTRIBUTES.items() if option.status is not Status.READ}
    assert len(others) == 3
    assert others.keys() & read_attributes("storage/options/risky.py") == set()


def test_every_key_is_declared_once() -> None:
    once: Iterable[str] = [
        *(key for option in (*ATTRIBUTES.values(), *REFUSED) for key in (option.key, *option.former)),
        *FORMAT_KEYS,
        *ENGINE_KEYS,
        *MOVED_OUT,
    ]
    assert {key: count for key, count in Counter(once).items() if count > 1} == {}
    assert sum(len([o for o in vars(group).values() if isinstance(o, Option)]) for group in GROUPS) == len(ATTRIBUTES)


def test_what_is_refused_has_a_refusal() -> None:
    refused = [option for option in (*ATTRIBUTES.values(), *REFUSED) if option.status is Status.REFUSED]
    assert len(refused) > 40
    assert [option.key for option in refused if not option.refusals] == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"file-index.bloom-filter.columns": "id", "file-index.bitmap.columns": "id"}, []),
        ({"file-index.range-bitmap.columns": "id"}, []),
        ({"file-index.bsi.columns": "id"}, ["file-index.bsi.columns"]),
        ({"write-buffer-for-append": "true"}, ["write-buffer-for-append"]),
        ({"write-buffer-for-append": "false", "bucket": "4"}, []),
    ],
)
@pytest.mark.parametrize("has_primary_key", [False, True])
def test_options_without_effect_are_warned_of(options: dict[str, str], named: list[str], has_primary_key: bool) -> None:
    parsed = CoreOptions.parse(options, has_primary_key=has_primary_key)
    warnings = unheeded_options(parsed)
    assert len(warnings) == len(named)
    assert all(key in text and "no effect" in text for key, text in zip(named, warnings, strict=True))
    assert risky_options(parsed) == []
