"""Joins rows of a source with rows of a table, and computes what the clauses of a merge make of them, in DuckDB.

SQL of conditions and values names columns as `source.total` and `target.total`. NULL matches nothing. Each query looks
at a part of the table's rows, and at those of the source that belong to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from freshet.storage.edits.expression import Expression, translated
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.scan.frame_outputs import optional_library

Numbers = npt.NDArray[np.int64]

_NO_CLAUSE: Final = -1
_SOURCE_ROW: Final = "freshet:source row"
_TARGET_ROW: Final = "freshet:target row"
_PAIR: Final = "freshet:pair"
_PAIR_SOURCE: Final = "freshet:pair's source"
_PAIR_TARGET: Final = "freshet:pair's target"


class MergeJoin:
    """Parts of a source and a table; `close` it whatever happens."""

    def __init__(self, source: pa.Table, target: pa.Table) -> None:
        self.source = source
        self._connection = optional_library("duckdb", "merge()").connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.register("freshet_source", _numbered(source, _SOURCE_ROW))
        self._connection.register("freshet_target", _numbered(target, _TARGET_ROW))

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()

    def pairs(self, on: Sequence[str]) -> tuple[Numbers, Numbers]:
        """Positions of rows that match, of the source and of the table, in the order of the table."""
        same = " AND ".join(f"source.{_quoted(name)} = target.{_quoted(name)}" for name in on)
        found = self._query(
            f"SELECT source.{_quoted(_SOURCE_ROW)} AS s, target.{_quoted(_TARGET_ROW)} AS t "
            f"FROM freshet_target AS target JOIN freshet_source AS source ON {same} ORDER BY t, s"
        )
        return found.column("s").to_numpy(), found.column("t").to_numpy()

    def chosen(
        self, conditions: Sequence[Expression | None], source_rows: Numbers | None, target_rows: Numbers | None
    ) -> Numbers:
        """Of each pair of rows (or each row of one side) the number of the first condition that is true, or -1."""
        cases = "".join(
            f"WHEN {'TRUE' if each is None else f'({_sql(each)})'} THEN {number} "
            for number, each in enumerate(conditions)
        )
        if not cases:
            return np.full(len(_one(source_rows, target_rows)), _NO_CLAUSE, np.int64)
        found = self._on_rows(f"CAST(CASE {cases}ELSE {_NO_CLAUSE} END AS BIGINT) AS c", source_rows, target_rows)
        numbers: Numbers = found.column("c").to_numpy()
        return numbers

    def computed(
        self,
        expressions: Mapping[str, Expression],
        types: pa.Schema,
        source_rows: Numbers | None,
        target_rows: Numbers | None,
    ) -> dict[str, pa.ChunkedArray]:
        """A column of values for each expression, a value for each pair of rows; decimals in the scale of `types`."""
        if not expressions:
            return {}
        selected = ", ".join(
            f"{_cast(_sql(each), types.field(name).type)} AS {_quoted(name)}" for name, each in expressions.items()
        )
        found = self._on_rows(selected, source_rows, target_rows)
        return {name: found.column(name) for name in expressions}

    def _on_rows(self, selected: str, source_rows: Numbers | None, target_rows: Numbers | None) -> pa.Table:
        given = {_PAIR_SOURCE: source_rows, _PAIR_TARGET: target_rows}
        pairs = {name: pa.array(rows) for name, rows in given.items() if rows is not None}
        count = len(_one(source_rows, target_rows))
        self._connection.register("freshet_pairs", pa.table({_PAIR: pa.array(np.arange(count)), **pairs}))
        joins = ""
        if source_rows is not None:
            joins += f" JOIN freshet_source AS source ON source.{_quoted(_SOURCE_ROW)} = pairs.{_quoted(_PAIR_SOURCE)}"
        if target_rows is not None:
            joins += f" JOIN freshet_target AS target ON target.{_quoted(_TARGET_ROW)} = pairs.{_quoted(_PAIR_TARGET)}"
        return self._query(f"SELECT {selected} FROM freshet_pairs AS pairs{joins} ORDER BY pairs.{_quoted(_PAIR)}")

    def _query(self, text: str) -> pa.Table:
        errors = optional_library("duckdb", "merge()").Error
        try:
            found: Any = self._connection.sql(text).to_arrow_table()
        except errors as error:
            raise InvalidRequestError(
                f"merge: {error}; name columns as source.column and target.column, those that are there"
            ) from error
        table: pa.Table = found
        return table


def _one(source_rows: Numbers | None, target_rows: Numbers | None) -> Numbers:
    rows = source_rows if source_rows is not None else target_rows
    assert rows is not None, "rows of one side at least"
    return rows


def _numbered(rows: pa.Table, name: str) -> pa.Table:
    return rows.append_column(name, pa.array(np.arange(rows.num_rows)))


def _sql(expression: Expression) -> str:
    return translated(expression.text).sql("duckdb")


def _cast(text: str, kind: pa.DataType) -> str:
    return f"CAST({text} AS DECIMAL({kind.precision}, {kind.scale}))" if pa.types.is_decimal(kind) else text


def _quoted(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql("duckdb")
