"""The clauses of a merge: what becomes of rows that match, of source rows without one, of table rows without one.

Of each of the three the clauses are tried in order, and the first whose condition is true counts; a row for which none
is stays as it is. The words are those of Delta Lake's users.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from freshet.storage.edits.expression import Expression, expr, first_names
from freshet.storage.exceptions import InvalidRequestError


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


SIDES_SEEN = {
    Side.MATCHED: ("source", "target"),
    Side.NOT_MATCHED: ("source",),
    Side.BY_SOURCE: ("target",),
}
"""Whose columns a clause of a side may name."""


def clause_of(
    side: Side, action: Action, values: Mapping[str, Any] | None, condition: str | Expression | None
) -> Clause:
    """A clause as users give it; raises `InvalidRequestError` for SQL that names columns of nothing or of another side.

    A bare name could be a column of either.
    """
    condition = expr(condition) if isinstance(condition, str) else condition
    computed = [each for each in (values or {}).values() if isinstance(each, Expression)]
    for each in [*computed, *([] if condition is None else [condition])]:
        for side_name, text in first_names(each):
            if side_name.lower() not in SIDES_SEEN[side]:
                raise InvalidRequestError(
                    f"merge: {text!r} in {each!r} is a column of neither side; rows that are {side} have "
                    f"{' and '.join(f'{name}.column' for name in SIDES_SEEN[side])}"
                )
    return Clause(side, action, values, condition)
