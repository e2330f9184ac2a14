"""SQL text of edits in Spark's dialect, computed over Arrow by DuckDB: values of an update, clauses of a merge.

A value that an update computes from the row is such as `expr("total * 2")`. Functions, casts and rounding are those of
DuckDB that the text has after translation (`CAST(3.7 AS INT)` is 4, Spark's is 3); what comes out is converted to the
column's type as any input is, without loss or with an error.

Rows of a source are joined with rows of a table (`RowJoin`): SQL of conditions and values names columns as
`source.total` and `target.total`: two columns of structs, side by side, of those columns alone that are named. NULL
matches nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.filter_text import reason_of
from freshet.storage.io.env import Env
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


Numbers = npt.NDArray[np.int64]

_SOURCE: Final = "freshet:source"
_TARGET: Final = "freshet:target"
"""Numbers of rows of both sides; no names of columns."""


class Pairs(Frozen):
    """Rows of both sides that belong together, in the same order, or of one side."""

    source: pa.Table | None
    target: pa.Table | None

    def __len__(self) -> int:
        rows = self.source if self.source is not None else self.target
        assert rows is not None, "rows of one side at least"
        return int(rows.num_rows)

    def sides(self) -> dict[str, pa.Table]:
        """What there is, by the name that SQL has for it."""
        given = {"source": self.source, "target": self.target}
        return {name: rows for name, rows in given.items() if rows is not None}


class RowJoin:
    """A source, to be joined with the rows of a table part by part; `close` it whatever happens.

    Where each of its rows has a key of its own (`is_by_key`), no DuckDB is needed to match them.
    """

    def __init__(self, source: pa.Table, on: Sequence[str], env: Env, *, is_by_key: bool) -> None:
        self._on = list(on)
        self._source = _numbered(source.select(self._on), _SOURCE)
        self._env = env
        self._is_by_key = is_by_key
        self._opened: LockedDuckDb | None = None

    def close(self) -> None:
        """Ends the connection."""
        if self._opened is not None:
            self._opened.close()

    def pairs(self, target: pa.Table) -> tuple[Numbers, Numbers]:
        """Positions of rows that match, of the source and of these rows of the table, in the order of the table."""
        numbered = _numbered(target.select(self._on), _TARGET)
        matched = self._source.join(numbered, self._on, join_type="inner") if self._is_by_key else self._equal(numbered)
        source_rows, target_rows = matched.column(_SOURCE).to_numpy(), matched.column(_TARGET).to_numpy()
        order = np.lexsort((source_rows, target_rows))
        return source_rows[order], target_rows[order]

    def first_true(self, conditions: Sequence[Expression | None], pairs: Pairs) -> Numbers:
        """The number of the first condition that is true of each pair, or -1."""
        cases = "".join(
            f"WHEN {'TRUE' if each is None else f'({_sql(each)})'} THEN {number} "
            for number, each in enumerate(conditions)
        )
        given = [each for each in conditions if each is not None]
        found = self._on_pairs(f"CAST(CASE {cases}ELSE -1 END AS BIGINT) AS c", ["c"], given, pairs)
        numbers: Numbers = found.column("c").to_numpy()
        return numbers

    def computed(
        self, expressions: Mapping[str, Expression], types: pa.Schema, pairs: Pairs
    ) -> dict[str, pa.ChunkedArray]:
        """A column of values for each expression, a value for each pair; decimals in the scale of `types`."""
        if not expressions:
            return {}
        selected = ", ".join(
            f"{_cast(_sql(each), types.field(name).type)} AS {_quoted(name)}" for name, each in expressions.items()
        )
        found = self._on_pairs(selected, list(expressions), list(expressions.values()), pairs)
        return {name: found.column(name) for name in expressions}

    @property
    def _duckdb(self) -> LockedDuckDb:
        if self._opened is None:
            self._opened = LockedDuckDb(self._env)
            self._opened.connection.register("freshet_source", self._source)
        return self._opened

    def _equal(self, target: pa.Table) -> pa.Table:
        """The numbers of rows that are equal in the columns of the join; NULL is equal to nothing."""
        self._duckdb.connection.register("freshet_target", target)
        same = " AND ".join(f"source.{_quoted(name)} = target.{_quoted(name)}" for name in self._on)
        return self._query(
            f"SELECT {_quoted(_SOURCE)}, {_quoted(_TARGET)} "
            f"FROM freshet_target AS target JOIN freshet_source AS source ON {same}",
            [_SOURCE, _TARGET],
        )

    def _on_pairs(
        self, selected: str, names: Sequence[str], expressions: Sequence[Expression], pairs: Pairs
    ) -> pa.Table:
        used = columns_used(expressions)
        columns: dict[str, Any] = {_TARGET: pa.array(np.arange(len(pairs)))}
        for side, rows in pairs.sides().items():
            of_side = [_named(side, name, rows.column_names) for name in used.get(side, ())]
            if of_side:
                columns[side] = rows.select(list(dict.fromkeys(of_side))).to_struct_array()
        self._duckdb.connection.register("freshet_pairs", pa.table(columns))
        return self._query(f"SELECT {selected} FROM freshet_pairs", names)

    def _query(self, text: str, names: Sequence[str]) -> pa.Table:
        try:
            return self._duckdb.computed(text, names)
        except InvalidRequestError as error:
            raise error.reworded(
                f"merge: {error}; name columns as source.column and target.column, those that are there"
            ) from error


def columns_used(expressions: Iterable[Expression]) -> dict[str, list[str]]:
    """The columns that they name, by their side, as they are written."""
    used: dict[str, list[str]] = {}
    for each in expressions:
        for column in translated(each.text).find_all(exp.Column):
            side, name = column.parts[0].name.lower(), column.parts[1].name
            used.setdefault(side, []).append(name)
    return used


def check_names(expressions: Sequence[Expression], names: Mapping[str, Sequence[str]]) -> None:
    """Raises `InvalidRequestError` for a column that its side does not have."""
    for side, given in columns_used(expressions).items():
        for name in given:
            _named(side, name, names[side])


def target_columns(expressions: Iterable[Expression], names: Sequence[str]) -> list[str]:
    """The columns of the table that they name."""
    return [_named("target", name, names) for name in columns_used(expressions).get("target", ())]


def _named(side: str, given: str, names: Sequence[str]) -> str:
    """The column as the rows have it; the case of its letters does not matter where that names one."""
    same = [given] if given in names else [name for name in names if name.lower() == given.lower()]
    if len(same) != 1:
        raise InvalidRequestError(f"merge: the {side} has no column {given!r}; its columns are {', '.join(names)}")
    return same[0]


def _numbered(rows: pa.Table, name: str) -> pa.Table:
    return rows.append_column(name, pa.array(np.arange(rows.num_rows)))


def _sql(expression: Expression) -> str:
    return translated(expression.text).sql("duckdb")


def _cast(text: str, kind: pa.DataType) -> str:
    return f"CAST({text} AS DECIMAL({kind.precision}, {kind.scale}))" if pa.types.is_decimal(kind) else text


def _quoted(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql("duckdb")
