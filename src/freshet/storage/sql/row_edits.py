"""DELETE and UPDATE of rows that a condition chooses.

The condition is what scans take as a filter; `WHERE TRUE` is all rows. Values of UPDATE are SQL over the row, as `expr`
has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from freshet.storage.edits.expression import expr
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.filter_text import predicate_of
from freshet.storage.filters.predicate import IsNull, Not, Or, Predicate
from freshet.storage.sql.names import SqlName, column_name, name_of, only_name
from freshet.storage.sql.partitions import columns_as_written
from freshet.storage.sql.refusals import only, refused, wrong
from freshet.storage.sql.result import SqlResult, edited
from freshet.storage.sql.session import Plan, SqlSession

if TYPE_CHECKING:
    from freshet.storage.table import Table

_ANY_CONDITION: Final = (
    "MERGE takes any condition: MERGE INTO t USING (SELECT DISTINCT c FROM t WHERE …) s ON t.c = s.c WHEN MATCHED THEN "
    "…, where c is the primary key, or the columns that the condition names"
)


def plan_delete(tree: exp.Delete) -> Plan:
    """The plan of DELETE."""
    only(tree, "this", "where")
    if not isinstance(tree.this, exp.Table):
        raise refused(tree, "write DELETE FROM table WHERE …")
    where = tree.args.get("where")
    if where is None:
        raise wrong(tree, "say which rows are deleted; TRUNCATE TABLE takes all rows away")
    chosen = _predicate(where.this, tree.this)
    return Plan(partial(_delete, _target(tree.this), chosen), has_dry_run=True)


def plan_update(tree: exp.Update) -> Plan:
    """The plan of UPDATE."""
    only(tree, "this", "expressions", "where")
    where = tree.args.get("where")
    if where is None:
        raise wrong(tree, "say which rows are updated; WHERE TRUE is all rows")
    values: dict[str, Any] = {}
    for each in tree.expressions:
        if not isinstance(each, exp.EQ):
            raise refused(each)
        name = column_name(bare(each.this, tree.this))
        if name in values:
            raise wrong(each, f"{name} has two values")
        values[name] = value_of(bare(each.expression, tree.this))
    chosen = _predicate(where.this, tree.this)
    return Plan(partial(_update, _target(tree.this), values, chosen), has_dry_run=True)


def _delete(name: SqlName, chosen: Predicate | None, session: SqlSession) -> SqlResult:
    table = session.table(name)
    return edited(table, table.delete(_filter(table, chosen), dry_run=session.dry_run))


def _update(name: SqlName, given: Mapping[str, Any], chosen: Predicate | None, session: SqlSession) -> SqlResult:
    table = session.table(name)
    values = as_columns(table, given)
    return edited(table, table.update(values, _filter(table, chosen), dry_run=session.dry_run))


def value_of(node: exp.Expr) -> Any:
    """The value of an assignment, as the verbs take it."""
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    if isinstance(node, exp.Literal) and str(node.this).isdigit():
        return int(node.this)
    if (
        isinstance(node, exp.Column)
        and len(node.parts) == 1
        and not node.this.quoted
        and node.name.upper() == "DEFAULT"
    ):
        raise refused(node, "write the value; columns have no defaults here")
    return expr(node.sql("spark", comments=False))


def as_columns(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with the columns named as the table has them; case does not matter."""
    return dict(zip(columns_as_written(table, values), values.values(), strict=True))


def bare(node: exp.Expr, table: exp.Table) -> exp.Expr:
    """An expression over one table with its columns named without the table."""
    names = {table.alias.lower()} if table.alias else {table.name.lower()}

    def without_table(column: exp.Expr) -> exp.Expr:
        if not isinstance(column, exp.Column):
            return column
        parts = [part.name.lower() for part in column.parts]
        if len(parts) > 1 and parts[0] in names:
            return rest_of(column, 1)
        is_full = not table.alias and parts[:2] == [table.text("db").lower(), table.name.lower()]
        return rest_of(column, 2) if len(parts) > 2 and is_full else column

    return node.copy().transform(without_table)


def rest_of(column: exp.Column, skipped: int) -> exp.Column:
    """A column without the first parts of its name."""
    parts = [part.copy() for part in column.parts[skipped:]]
    names = dict(zip(("this", "table", "db", "catalog"), reversed(parts), strict=False))
    return exp.Column(**names)


def _target(table: exp.Table) -> SqlName:
    only_name(table, "alias")
    return name_of(table)


def _predicate(condition: exp.Expr, table: exp.Table) -> Predicate | None:
    plain = bare(condition, table)
    if isinstance(plain.unnest(), exp.Boolean) and plain.unnest().this:
        return None
    try:
        return predicate_of(plain)
    except InvalidRequestError as error:
        raise error.reworded(f"SQL: {error}. {_ANY_CONDITION}") from error


def _filter(table: Table, predicate: Predicate | None) -> Predicate:
    if predicate is not None:
        return predicate
    first = table.schema.column_names[0]
    return Or((IsNull(first), Not(IsNull(first))))
