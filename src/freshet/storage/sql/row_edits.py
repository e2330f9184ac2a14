"""DELETE and UPDATE of rows that a condition chooses, and MERGE INTO.

The condition is what scans take as a filter; `WHERE TRUE` is all rows. Values of UPDATE are SQL over the row, as `expr`
has it.

MERGE INTO is `Table.merge`: rows are matched where columns of both sides are equal, clauses count in their order.

Conditions besides equality belong into the clauses, behind AND. The rows of the source are held in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from sqlglot import exp

from freshet._frozen import Frozen
from freshet.storage.edits.expression import Expression, expr
from freshet.storage.edits.merge import Merge
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.filter_text import predicate_of
from freshet.storage.filters.predicate import IsNull, Not, Or, Predicate
from freshet.storage.sql.names import SqlName, column_name, columns_as_written, name_of, only_name
from freshet.storage.sql.query import checked_query, rows_of
from freshet.storage.sql.refusals import only, refused, wrong
from freshet.storage.sql.result import SqlResult, edited
from freshet.storage.sql.session import Plan, SqlSession

if TYPE_CHECKING:
    from freshet.storage.table import Table


_ANY_CONDITION: Final = (
    "MERGE takes any condition: MERGE INTO t USING (SELECT DISTINCT c FROM t WHERE …) s ON t.c = s.c WHEN MATCHED THEN "
    "…, where c is the primary key, or the columns that the condition names"
)

_SOURCE: Final = "source"
TARGET: Final = "target"


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


class _MergeInto(Frozen):
    """A MERGE INTO: `called` are the names that the statement has for both sides."""

    name: SqlName
    query: exp.Query
    called: Mapping[str, str]
    on: tuple[exp.Expr, ...]
    clauses: tuple[exp.When, ...]

    def execute(self, session: SqlSession) -> SqlResult:
        """Merges, in one commit."""
        table = session.table(self.name)
        rows = rows_of(session, self.query)
        source = pa.Table.from_batches(rows.batches(), rows.schema)
        sides = _Sides(self.called, {_SOURCE: source.column_names, TARGET: table.schema.column_names})
        names = []
        for part in self.on:
            of_target, of_source = sides.equal_columns(part)
            names.append(of_target)
            source = _with_column(source, of_target, of_source, part)
        merge = table.merge(source, names)
        for when in self.clauses:
            merge = _with_clause(merge, when, sides, lambda values: as_columns(table, values))
        return edited(table, merge.execute(dry_run=session.dry_run))


class _Sides(Frozen):
    """The two sides of a merge: what the statement calls them, and their columns."""

    called: Mapping[str, str]
    columns: Mapping[str, Sequence[str]]

    def named(self, node: exp.Expr) -> exp.Expr:
        """The expression with its columns as `source.…` and `target.…`."""

        def with_side(column: exp.Expr) -> exp.Expr:
            if not isinstance(column, exp.Column) or isinstance(column.this, exp.Star):
                return column
            side, rest = self._side(column)
            parts = [exp.to_identifier(side), *(part.copy() for part in rest.parts)]
            return exp.Column(**dict(zip(("this", "table", "db", "catalog"), reversed(parts), strict=False)))

        return node.copy().transform(with_side)

    def expression(self, node: exp.Expr) -> Expression:
        """The same as the verbs take it."""
        return expr(self.named(node).sql("spark", comments=False))

    def equal_columns(self, part: exp.Expr) -> tuple[str, str]:
        """The columns of `a.id = b.id`, of target and source."""
        plain = part.unnest()
        found: dict[str, str] = {}
        sides = [each.unnest() for each in plain.iter_expressions()] if isinstance(plain, exp.EQ) else []
        columns = [each for each in sides if isinstance(each, exp.Column)]
        if len(columns) == len(sides):
            for each in columns:
                side, rest = self._side(each)
                found[side] = self._as_written(side, column_name(rest), part)
        if len(found) != 2:
            raise refused(
                part, "ON takes columns of both sides that are equal, joined by AND; put more into WHEN … AND …"
            )
        return found[TARGET], found[_SOURCE]

    def _as_written(self, side: str, name: str, part: exp.Expr) -> str:
        for each in self.columns[side]:
            if each.lower() == name.lower():
                return each
        raise wrong(part, f"the {side} has no column {name!r}; it has {', '.join(self.columns[side])}")

    def _side(self, column: exp.Column) -> tuple[str, exp.Column]:
        """The side of a column, and the column without the name of its side."""
        parts = [part.name.lower() for part in column.parts]
        if len(parts) > 1 and parts[0] in self.called:
            return self.called[parts[0]], rest_of(column, 1)
        if len(parts) > 2 and parts[1] in self.called:
            return self.called[parts[1]], rest_of(column, 2)
        having = [side for side, names in self.columns.items() if parts[0] in [name.lower() for name in names]]
        if len(having) != 1:
            why = "both sides have such a column" if having else "neither side has such a column"
            raise wrong(column, f"{why}; write the name of its side before it")
        return having[0], column


def plan_merge(tree: exp.Merge) -> Plan:
    """The plan of MERGE INTO."""
    only(tree, "this", "using", "on", "whens")
    target, using = tree.this, tree.args["using"]
    if not isinstance(target, exp.Table):
        raise refused(target)
    only_name(target, "alias")
    called = {using.alias_or_name.lower(): _SOURCE} if using.alias_or_name else {}
    if target.alias_or_name.lower() in called:
        raise wrong(tree, "both sides have the same name; give one an alias")
    called[target.alias_or_name.lower()] = TARGET
    query = checked_query(exp.select("*").from_(using.copy()))
    on = tree.args["on"].unnest()
    parts = tuple(on.flatten()) if isinstance(on, exp.And) else (on,)
    clauses = tuple(_checked(each) for each in tree.args["whens"].expressions)
    return Plan(_MergeInto(name_of(target), query, called, parts, clauses).execute, has_dry_run=True)


def _checked(when: exp.When) -> exp.When:
    only(when, "matched", "source", "condition", "then")
    return when


def _with_column(source: pa.Table, name: str, of_source: str, part: exp.Expr) -> pa.Table:
    """The source with a column that is called as in the table."""
    if name.lower() == of_source.lower():
        return source
    if name.lower() in [each.lower() for each in source.column_names]:
        raise refused(part, f"the source has another column {name!r}; let a query give it another name")
    return source.append_column(name, source.column(of_source))


def _with_clause(merge: Merge, when: exp.When, sides: _Sides, as_columns_of_table: Any) -> Merge:
    then, condition = when.args["then"], when.args.get("condition")
    if condition is not None:
        condition = sides.expression(condition)
    is_by_source = bool(when.args.get("source"))
    if isinstance(then, exp.Var) and then.name.upper() == "DELETE":
        if is_by_source:
            return merge.when_not_matched_by_source_delete(condition)
        if when.args.get("matched"):
            return merge.when_matched_delete(condition)
        raise refused(when, "rows that are not matched are inserted")
    if isinstance(then, exp.Update):
        only(then, "expressions")
        if not when.args.get("matched") and not is_by_source:
            raise refused(when, "rows that are not matched are inserted")
        if len(then.expressions) == 1 and isinstance(then.expressions[0], exp.Star):
            if is_by_source:
                raise refused(when, "there are no values of the source")
            return merge.when_matched_update_all(condition)
        values = as_columns_of_table(_assigned(then, sides))
        if is_by_source:
            return merge.when_not_matched_by_source_update(values, condition)
        return merge.when_matched_update(values, condition)
    if isinstance(then, exp.Insert) and not when.args.get("matched") and not is_by_source:
        if isinstance(then.this, exp.Star):
            return merge.when_not_matched_insert_all(condition)
        return merge.when_not_matched_insert(as_columns_of_table(_inserted(then, sides)), condition)
    raise refused(when)


def _assigned(then: exp.Update, sides: _Sides) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for each in then.expressions:
        if not isinstance(each, exp.EQ) or not isinstance(each.this, exp.Column):
            raise refused(each)
        parts = [part.name.lower() for part in each.this.parts]
        of_target = len(parts) > 1 and sides.called.get(parts[-2]) == TARGET
        name = column_name(rest_of(each.this, len(parts) - 1) if of_target else each.this)
        if name in values:
            raise wrong(each, f"{name} has two values")
        values[name] = _value(each.expression, sides)
    return values


def _inserted(then: exp.Insert, sides: _Sides) -> dict[str, Any]:
    columns = then.this.expressions if isinstance(then.this, exp.Tuple) else None
    values = then.expression.expressions if isinstance(then.expression, exp.Tuple) else None
    if columns is None or values is None or len(columns) != len(values):
        raise refused(then, "write INSERT *, or INSERT (columns) VALUES (as many values)")
    names = [column_name(each) for each in columns]
    if len({name.lower() for name in names}) != len(names):
        raise wrong(then, "a column is named twice")
    return {name: _value(value, sides) for name, value in zip(names, values, strict=True)}


def _value(node: exp.Expr, sides: _Sides) -> Any:
    value = value_of(node)
    return sides.expression(node) if isinstance(value, Expression) else value
