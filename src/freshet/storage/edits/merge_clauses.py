"""The clauses of a merge: what becomes of rows that match, of source rows without one, of table rows without one.

Of each of the three the clauses are tried in order, and the first whose condition is true counts; a row for which none
is stays as it is. The words are those of Delta Lake's users.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from freshet.storage.edits.expression import Expression, expr


class Side(StrEnum):
    """Which rows a clause is about."""

    MATCHED = "matched"
    NOT_MATCHED = "not matched"
    """Rows of the source that no row of the table matches."""
    BY_SOURCE = "not matched by source"
    """Rows of the table that no row of the source matches."""


class Action(StrEnum):
    """What is done with a row."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause. `values` are by column; None means all columns of the source, by their names."""

    side: Side
    action: Action
    values: Mapping[str, Any] | None = None
    condition: Expression | None = None


def condition_of(text: str | Expression | None) -> Expression | None:
    """A condition as users give it: SQL over `source.…` and `target.…`."""
    return expr(text) if isinstance(text, str) else text
