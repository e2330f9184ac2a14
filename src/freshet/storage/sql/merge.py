"""MERGE INTO, by `Table.merge`: rows are matched where columns of both sides are equal, clauses count in their order.

Conditions besides equality belong into the clauses, behind AND. The rows of the source are held in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from freshet._frozen import Frozen
from freshet.storage.edits.expression import Expression, expr
from freshet.storage.edits.merge import Merge
from freshet.storage.sql.names import SqlName, column_name, name_of, only_name
from freshet.storage.sql.query import checked_query, rows_of
from freshet.storage.sql.refusals import only, refused, wrong
from freshet.storage.sql.result import SqlResult, edited
from freshet.storage.sql.row_edits import as_columns, rest_of, value_of
from freshet.storage.sql.session import Plan, SqlSession

SOURCE: Final = "source"
TARGET: Final = "target"


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
        sides = Sides(self.called, {SOURCE: source.column_names, TARGET: table.schema.column_names})
        names = []
        for part in self.on:
            of_target, of_source = sides.equal_columns(part)
            names.append(of_target)
            source = _with_column(source, of_target, of_source, part)
        merge = table.merge(source, names)
        for when in self.clauses:
            merge = _with_clause(merge, when, sides, lambda values: as_columns(table, values))
        return edited(table, merge.execute(dry_run=session.dry_run))


class Sides(Frozen):
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
        return found[TARGET], found[SOURCE]

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
    called = {using.alias_or_name.lower(): SOURCE} if using.alias_or_name else {}
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


def _with_clause(merge: Merge, when: exp.When, sides: Sides, as_columns_of_table: Any) -> Merge:
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


def _assigned(then: exp.Update, sides: Sides) -> dict[str, Any]:
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


def _inserted(then: exp.Insert, sides: Sides) -> dict[str, Any]:
    columns = then.this.expressions if isinstance(then.this, exp.Tuple) else None
    values = then.expression.expressions if isinstance(then.expression, exp.Tuple) else None
    if columns is None or values is None or len(columns) != len(values):
        raise refused(then, "write INSERT *, or INSERT (columns) VALUES (as many values)")
    names = [column_name(each) for each in columns]
    if len({name.lower() for name in names}) != len(names):
        raise wrong(then, "a column is named twice")
    return {name: _value(value, sides) for name, value in zip(names, values, strict=True)}


def _value(node: exp.Expr, sides: Sides) -> Any:
    value = value_of(node)
    return sides.expression(node) if isinstance(value, Expression) else value
