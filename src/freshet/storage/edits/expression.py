"""Values that an update computes from the row: SQL text in Spark's dialect, such as `expr("total * 2")`.

DuckDB evaluates it over Arrow, so functions, casts and rounding are those of DuckDB that the text has after translation
(`CAST(3.7 AS INT)` is 4, Spark's is 3); what comes out is converted to the column's type as any input is, without loss
or with an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.filter_text import reason_of
from freshet.storage.model.arguments import reading, shown_value
from freshet.storage.model.display import shortened
from freshet.storage.scan.locked_duckdb import LockedDuckDb

_DIALECT: Final = "spark"
_SHOWN_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Expression:
    """SQL over the columns of a row; `expr` makes it."""

    text: str

    def __repr__(self) -> str:
        return f"expr({self.text!r})"


def expr(text: str) -> Expression:
    """A value that is computed from the row, as SQL: `table.update({"total": expr("total * 2")}, "id = 1")`.

    Raises `InvalidRequestError` for text that is no SQL expression, or that asks for a query.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequestError(f"expr takes an SQL expression such as 'total * 2', not {shown_value(text)}")
    translated(text)
    return Expression(text)


def translated(text: str) -> exp.Expr:
    """The parsed expression; aggregates and queries are refused, and what DuckDB has no text for."""
    shown = repr(shortened(text, _SHOWN_MAX))
    with reading(f"expr({shown})"):
        return _translated(text, shown)


def _translated(text: str, shown: str) -> exp.Expr:
    try:
        tree = sqlglot.parse_one(text, read=_DIALECT)
    except SqlglotError as error:
        raise InvalidRequestError(f"expr({shown}) is no SQL expression: {reason_of(error)}") from error
    for kind, what in (
        (exp.Query, "a query"),
        (exp.AggFunc, "an aggregate"),
        (exp.Window, "a window"),
        (exp.UDTF, "a function that makes rows"),
        (exp.Explode, "a function that makes rows"),
        (exp.Star, "all columns"),
    ):
        if tree.find(kind) is not None:
            raise InvalidRequestError(f"expr({shown}) has {what}; it may use the columns of one row")
    tree = tree.transform(_strict)
    tree.sql("duckdb", unsupported_level=ErrorLevel.IGNORE)
    return tree


def _strict(node: exp.Expr) -> exp.Expr:
    """A CAST that fails is an error, as in Spark 4; TRY_CAST gives NULL. sqlglot takes both for the latter."""
    is_cast = isinstance(node, exp.TryCast) and not node.args.get("safe")
    return exp.Cast(this=node.this, to=node.args["to"]) if is_cast else node


def columns_of(expressions: Sequence[Expression]) -> set[str]:
    """Names of the columns that they use, as they are written."""
    columns = (column for each in expressions for column in translated(each.text).find_all(exp.Column))
    return {column.parts[0].name for column in columns}


def first_names(expression: Expression) -> list[tuple[str, str]]:
    """The columns in it: the first part of the name where it has several, else nothing, and the text."""
    columns = translated(expression.text).find_all(exp.Column)
    return [(each.parts[0].name if len(each.parts) > 1 else "", each.sql()) for each in columns]


def evaluate(rows: pa.Table, expressions: Mapping[str, Expression]) -> dict[str, pa.ChunkedArray]:
    """A column for each expression, in the order of the rows; `rows` has the columns that are computed, too.

    Decimals are rounded to the scale of their column, as SQL stores them.
    """
    if not expressions:
        return {}
    selected = ", ".join(_selected(name, each, rows.schema.field(name).type) for name, each in expressions.items())
    with closing(LockedDuckDb()) as duckdb:
        duckdb.connection.register("freshet_rows", rows)
        try:
            found = duckdb.computed(f"SELECT {selected} FROM freshet_rows", list(expressions))
        except InvalidRequestError as error:
            texts = ", ".join(f"{name} = {each!r}" for name, each in expressions.items())
            raise error.reworded(f"cannot compute {shortened(texts, _SHOWN_MAX)}: {error}") from error
    if found.num_rows != rows.num_rows:
        raise InvalidRequestError(
            f"{', '.join(map(repr, expressions.values()))} gives {found.num_rows} values for {rows.num_rows} rows"
        )
    return {name: found.column(name) for name in expressions}


def _selected(name: str, expression: Expression, kind: pa.DataType) -> str:
    computed = translated(expression.text).sql("duckdb")
    if pa.types.is_decimal(kind):
        computed = f"CAST({computed} AS DECIMAL({kind.precision}, {kind.scale}))"
    return f"{computed} AS {exp.to_identifier(name, quoted=True).sql('duckdb')}"
