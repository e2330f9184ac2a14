"""Clauses: what becomes of rows that match, of source rows without a match, of table rows without one.

Of each of the three the clauses are tried in order, and the first whose condition is true counts; a row for which none
is stays as it is. The words are those of Delta Lake's users. As text they are those of SQL's MERGE:

    matched [and CONDITION] then update [set COLUMN = SQL, …] | delete
    not matched [and CONDITION] then insert [(COLUMN, …) values (SQL, …)]
    not matched by source [and CONDITION] then update set COLUMN = SQL, … | delete

`update` and `insert` without columns, or with `*` or `all`, mean all columns that source and table have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum, StrEnum
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from freshet._frozen import Frozen
from freshet.storage.edits.expression import Expression, expr, first_names
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.predicate import field_of
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arguments import reading
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.display import shortened

EXAMPLES: Final = '"matched then update", "matched and source.gone then delete", "not matched then insert"'

_DIALECT: Final = "spark"
_SHOWN_MAX: Final = 200
_SHAPE: Final = re.compile(r"\s*(not\s+)?matched\b.*\bthen\b", re.IGNORECASE | re.DOTALL)
_ALL: Final = re.compile(r"\bthen\s+(update|insert)(\s+set)?\s+(all|\*)\s*$", re.IGNORECASE)


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


class Taken(Enum):
    """A value that is taken from the column of this name in the source."""

    FROM_SOURCE = "from source"


class Clause(Frozen):
    """One clause. `values` are by column; None means all columns of the source, by their names (`with_columns`)."""

    side: Side
    action: Action
    values: Mapping[str, Any] | None = None
    condition: Expression | None = None

    def with_columns(self, store: TableStore, names: Sequence[str]) -> Clause:
        """The clause with its columns as the table names them, all those of the source where it names none.

        Raises `InvalidRequestError` for columns that cannot be updated: the row would be another one.
        """
        if self.action is Action.DELETE:
            return self
        if self.values is not None:
            return replace(self, values=checked_columns(store, self.values, is_insert=self.action is Action.INSERT))
        fixed = {name for _, names in _fixed(store) for name in names} if self.action is Action.UPDATE else set()
        known = store.schema.by_name.keys() - fixed
        return replace(self, values={name: Taken.FROM_SOURCE for name in names if name in known})


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


def checked_columns(store: TableStore, values: Mapping[str, Any], *, is_insert: bool = False) -> dict[str, Any]:
    """The values by the names of the columns; raises `InvalidRequestError` for those that cannot be updated."""
    if not values:
        raise InvalidRequestError(f'name the columns of {store.name} and their values, such as {{"city": "Ulm"}}')
    schema = arrow_schema(store.schema)
    named: dict[str, Any] = {}
    for given, value in values.items():
        name = field_of(given, schema, "values").name
        for which, names in () if is_insert else _fixed(store):
            if name in names:
                raise InvalidRequestError(
                    f"column {name!r} of table {store.name} is {which}: its rows would be others; delete the rows and "
                    "append them with the new value",
                    table=store.name,
                    column=name,
                )
        named[name] = value
    return named


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


def _fixed(store: TableStore) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return (
        ("part of the primary key", store.schema.primary_keys),
        ("a partition key", store.schema.partition_keys),
        ("part of the bucket key", store.bucket_key),
    )
