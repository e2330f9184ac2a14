"""Joins rows of a source with rows of a table, and computes what the clauses of a merge make of them, in DuckDB.

SQL of conditions and values names columns as `source.total` and `target.total`: two columns of structs, side by side,
of those columns alone that are named. NULL matches nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from freshet.storage.edits.expression import Expression, translated
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import Env
from freshet.storage.scan.locked_duckdb import LockedDuckDb

Numbers = npt.NDArray[np.int64]

NO_CLAUSE: Final = -1
_ROW: Final = "freshet:row"


@dataclass(frozen=True, slots=True)
class Pairs:
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


class MergeJoin:
    """A source, to be joined with the rows of a table part by part; `close` it whatever happens."""

    def __init__(self, source: pa.Table, on: Sequence[str], env: Env) -> None:
        self._on = list(on)
        self._duckdb = LockedDuckDb("merge()", env)
        self._duckdb.connection.register("freshet_source", _numbered(source.select(self._on)))

    def close(self) -> None:
        """Ends the connection."""
        self._duckdb.close()

    def pairs(self, target: pa.Table) -> tuple[Numbers, Numbers]:
        """Positions of rows that match, of the source and of these rows of the table, in the order of the table."""
        self._duckdb.connection.register("freshet_target", _numbered(target.select(self._on)))
        same = " AND ".join(f"source.{_quoted(name)} = target.{_quoted(name)}" for name in self._on)
        found = self._query(
            f"SELECT source.{_quoted(_ROW)} AS s, target.{_quoted(_ROW)} AS t "
            f"FROM freshet_target AS target JOIN freshet_source AS source ON {same}",
            ["s", "t"],
        )
        source_rows, target_rows = found.column("s").to_numpy(), found.column("t").to_numpy()
        order = np.lexsort((source_rows, target_rows))
        return source_rows[order], target_rows[order]

    def chosen(self, conditions: Sequence[Expression | None], pairs: Pairs) -> Numbers:
        """Of each pair the number of the first condition that is true, or -1."""
        if not conditions or conditions[0] is None:
            return np.full(len(pairs), 0 if conditions else NO_CLAUSE, np.int64)
        cases = "".join(
            f"WHEN {'TRUE' if each is None else f'({_sql(each)})'} THEN {number} "
            for number, each in enumerate(conditions)
        )
        given = [each for each in conditions if each is not None]
        found = self._on_pairs(f"CAST(CASE {cases}ELSE {NO_CLAUSE} END AS BIGINT) AS c", ["c"], given, pairs)
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

    def _on_pairs(
        self, selected: str, names: Sequence[str], expressions: Sequence[Expression], pairs: Pairs
    ) -> pa.Table:
        used = columns_used(expressions)
        columns: dict[str, Any] = {_ROW: pa.array(np.arange(len(pairs)))}
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


def _numbered(rows: pa.Table) -> pa.Table:
    return rows.append_column(_ROW, pa.array(np.arange(rows.num_rows)))


def _sql(expression: Expression) -> str:
    return translated(expression.text).sql("duckdb")


def _cast(text: str, kind: pa.DataType) -> str:
    return f"CAST({text} AS DECIMAL({kind.precision}, {kind.scale}))" if pa.types.is_decimal(kind) else text


def _quoted(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql("duckdb")
