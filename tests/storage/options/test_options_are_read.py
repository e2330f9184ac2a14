"""No option is declared that nobody reads: what is accepted works, is refused or is told to do nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from freshet.storage.options import CoreOptions, silent_traps, unheeded_options
from freshet.storage.options.supported import RULES

SOURCES = Path(__file__).parents[3] / "src" / "freshet"
DECLARATION = "storage/options/core.py"
NAMES = "storage/options/keys.py"


@cache
def sources() -> dict[str, ast.Module]:
    files = [path for path in SOURCES.rglob("*.py") if path.parent != SOURCES]
    return {path.relative_to(SOURCES).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in files}


def unread(declared: Iterable[tuple[str, str]]) -> list[str]:
    """Keys of declared options (field, key) that no code asks for, neither as an attribute nor by the key."""
    attributes, texts = set(), {rule.key for rule in RULES}
    for path, module in sources().items():
        for node in ast.walk(module):
            if isinstance(node, ast.Attribute):
                attributes.add(node.attr)
            elif isinstance(node, ast.Call) and path not in (DECLARATION, NAMES):  # options.get("key", …)
                texts |= {
                    arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
                }
    return [key for field, key in declared if field not in attributes and key not in texts]


def test_every_declared_option_is_read() -> None:
    declared = [(name, str(field.alias)) for name, field in CoreOptions.model_fields.items()]
    assert len(declared) > 80
    assert unread([*declared, ("a_field_that_nobody_reads", "a-key.that-nobody-reads")]) == ["a-key.that-nobody-reads"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"file-index.read.enabled": "true"}, ["file-index.read.enabled"]),
        ({"file-index.read.enabled": "false"}, []),
        ({"file-index.bloom-filter.columns": "id"}, ["file-index.bloom-filter.columns"]),
        ({"write-buffer-for-append": "true"}, ["write-buffer-for-append"]),
        ({"write-buffer-for-append": "false", "bucket": "4"}, []),
    ],
)
@pytest.mark.parametrize("has_primary_key", [False, True])
def test_options_that_do_nothing_are_told(options: dict[str, str], named: list[str], has_primary_key: bool) -> None:
    parsed = CoreOptions.parse(options, has_primary_key=has_primary_key)
    told = unheeded_options(parsed)
    assert len(told) == len(named)
    assert all(key in text and "no effect" in text for key, text in zip(named, told, strict=True))
    assert silent_traps(parsed) == []
