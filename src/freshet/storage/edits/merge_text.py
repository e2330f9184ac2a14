"""Clauses of a merge as text, in the words of SQL's MERGE: `matched and source.gone then delete`.

    matched [and CONDITION] then update [set COLUMN = SQL, …] | delete
    not matched [and CONDITION] then insert [(COLUMN, …) values (SQL, …)]
    not matched by source [and CONDITION] then update set COLUMN = SQL, … | delete

`update` and `insert` without columns, or with `*` or `all`, mean all columns that source and table have.
"""

from __future__ import annotations

import re
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from freshet.storage.edits.expression import Expression, expr
from freshet.storage.edits.merge_clauses import Action, Clause, Side, clause_of
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.arguments import reading
from freshet.storage.model.display import shortened

EXAMPLES: Final = '"matched then update", "matched and source.gone then delete", "not matched then insert"'

_DIALECT: Final = "spark"
_SHOWN_MAX: Final = 200
_SHAPE: Final = re.compile(r"\s*(not\s+)?matched\b.*\bthen\b", re.IGNORECASE | re.DOTALL)
_ALL: Final = re.compile(r"\bthen\s+(update|insert)(\s+set)?\s+(all|\*)\s*$", re.IGNORECASE)


def clause_of_text(text: str) -> Clause:
    """The clause that a text says; raises `InvalidRequestError` with what it may be."""
    with reading(f"merge clause {shortened(text, _SHOWN_MAX)!r}"):
        return _clause(text)


def _clause(text: str) -> Clause:
    given = re.sub(r"^\s*when\b", "", text, flags=re.IGNORECASE)
    given = _ALL.sub(lambda found: f"then {found[1]}", given.rstrip().rstrip(";"))
    if _SHAPE.match(given) is None:
        raise _refused(text)
    try:
        tree = sqlglot.parse_one(f"MERGE INTO target USING source ON TRUE WHEN {given}", read=_DIALECT)
    except SqlglotError as error:
        raise _refused(text) from error
    whens = tree.args.get("whens")
    if not isinstance(tree, exp.Merge) or whens is None or len(whens.expressions) != 1:
        raise _refused(text, "it is not one clause")
    when = whens.expressions[0]
    side = Side.MATCHED if when.args["matched"] else Side.BY_SOURCE if when.args.get("source") else Side.NOT_MATCHED
    action, values = _action(text, when.args["then"])
    if (action is Action.INSERT) is not (side is Side.NOT_MATCHED):
        raise _refused(text, f"rows that are {side} cannot be {_DONE[action]}")
    if side is Side.BY_SOURCE and action is Action.UPDATE and values is None:
        raise _refused(text, "no row of the source has new values: write set COLUMN = SQL")
    condition = when.args.get("condition")
    return clause_of(side, action, values, None if condition is None else expr(_sql(condition)))


_DONE: Final = {Action.UPDATE: "updated", Action.DELETE: "deleted", Action.INSERT: "inserted"}


def _action(text: str, then: exp.Expression) -> tuple[Action, dict[str, Any] | None]:
    match then:
        case exp.Update():
            return Action.UPDATE, _assigned(text, then.expressions or [])
        case exp.Insert():
            return Action.INSERT, _inserted(text, then)
        case exp.Var() if then.name.lower() == "delete":
            return Action.DELETE, None
    raise _refused(text)


def _assigned(text: str, parts: list[exp.Expression]) -> dict[str, Expression] | None:
    values: dict[str, Expression] = {}
    for part in parts:
        if not isinstance(part, exp.EQ) or not isinstance(part.this, exp.Column):
            raise _refused(text, "behind set stand columns and their values: set total = source.total")
        _put(text, values, part.this, part.expression)
    return values or None


def _inserted(text: str, then: exp.Insert) -> dict[str, Expression] | None:
    names, given = then.this, then.args.get("expression")
    if names is None and not given:
        return None
    if not isinstance(names, exp.Tuple) or not isinstance(given, exp.Tuple):
        raise _refused(text, "write insert (COLUMN, …) values (SQL, …)")
    if len(names.expressions) != len(given.expressions):
        raise _refused(text, f"{len(names.expressions)} columns have {len(given.expressions)} values")
    values: dict[str, Expression] = {}
    for name, value in zip(names.expressions, given.expressions, strict=True):
        _put(text, values, name, value)
    return values


def _put(text: str, values: dict[str, Expression], column: exp.Expression, value: exp.Expression) -> None:
    if column.name in values:
        raise _refused(text, f"{column.name} has two values")
    values[column.name] = expr(_sql(value))


def _sql(tree: exp.Expression) -> str:
    return tree.sql(_DIALECT)


def _refused(text: str, reason: str = "it cannot be read") -> InvalidRequestError:
    return InvalidRequestError(
        f"merge clause {shortened(text, _SHOWN_MAX)!r}: {reason}; "
        f'clauses are such as {EXAMPLES}, or with columns "matched then update set '
        'total = target.total + source.total", "not matched then insert (id, total) values (source.id, 0)", "not '
        'matched by source then delete"'
    )
