"""Fields inside of columns in ALTER TABLE: `ADD COLUMN address.zip STRING`, `RENAME COLUMN address.nr TO number`.

The statement is read without the names before the last dot, as if the field were a column; the changes are `within`
what these name then. `element` is that of an ARRAY, `value` that of a MAP, as Spark writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from freshet.storage.schema.change import SchemaChange
from freshet.storage.sql.refusals import wrong
from freshet.storage.sql.sql_text import Statement

_VERBS: Final = ("ADD", "DROP", "RENAME", "ALTER", "CHANGE")


def without_path(statement: Statement, start: int) -> tuple[Statement, tuple[str, ...]]:
    """The statement with the last part of a dotted column name alone, and the parts before; `start` is the place of the
    verb among its tokens."""
    tokens = statement.tokens
    if start + 1 >= len(tokens) or tokens[start].text.upper() not in _VERBS:
        return statement, ()
    first = start + (2 if tokens[start + 1].text.upper() == "COLUMN" else 1)
    last = first
    while last + 2 < len(tokens) and tokens[last + 1].text == ".":
        last += 2
    path = tuple(token.text for token in tokens[first:last:2])
    return replace(statement, tokens=(*tokens[:first], *tokens[last:])), path


def inside(changes: Sequence[SchemaChange], path: tuple[str, ...], text: str) -> list[SchemaChange]:
    """The changes of columns as changes of fields."""
    moved: list[SchemaChange] = []
    names: dict[str, Any] = {"within": path}
    for change in changes:
        if not hasattr(change, "within"):
            raise wrong(text, "the place of a field in a column is said when it is added, and stays")
        moved.append(replace(change, **names))
    return moved
