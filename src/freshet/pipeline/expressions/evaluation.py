"""Translated expressions over Arrow columns: their values, and which rows fail.

Nothing that is translated throws, so failures cost what values cost. Should something throw all the same, the rows are
halved until the one that does is alone.

DuckDB plans expressions once for all blocks of a process: to plan the five of W9 takes as long as to compute them for
20,000 rows.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.pipeline.expressions.odd_texts import ODD_TEXTS
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.scan.locked_duckdb import LockedDuckDb

Mask = npt.NDArray[np.bool_]
_ROWS: Final = "freshet_rows"
_NO_COLUMNS: Final = "none"
_QUERIES_MAX: Final = 256
"""Queries that are kept planned; then all are forgotten."""
_OWN: Final = threading.local()


class ExpressionSql(Frozen):
    """One expression for DuckDB: its value, and the condition under which it fails ("" for never).

    `misfits` is the condition under which the value does not fit the column that it is for.
    """

    value: str
    fails: str = ""
    misfits: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """What is asked of DuckDB; nothing for a condition that never holds."""
        return tuple(filter(None, (self.value, self.fails, self.misfits)))


class ExpressionValues(Frozen):
    """The values of one expression, NULL where it fails; the masks are None where no row does."""

    values: Any
    failed: Mask | None = None
    misfits: Mask | None = None


def column_sql(index: int) -> str:
    """The name under which expressions read a column."""
    return f"c{index}"


def column_index(sql: str) -> int:
    """The number of a column by its name."""
    return int(sql.removeprefix("c"))


def evaluate(columns: Mapping[int, Any], count: int, wanted: Sequence[ExpressionSql]) -> list[ExpressionValues]:
    """The expressions over so many rows; `columns` are what they read, by their number."""
    named = {column_sql(index): _plain(array) for index, array in columns.items()}
    return _computed(pa.table(named or {_NO_COLUMNS: pa.nulls(count)}), wanted)


def _computed(rows: pa.Table, wanted: Sequence[ExpressionSql]) -> list[ExpressionValues]:
    try:
        return _at_once(rows, wanted)
    except InvalidRequestError:
        if len(wanted) > 1:
            return [_computed(rows, [each])[0] for each in wanted]
        if rows.num_rows < 2:
            return [ExpressionValues(pa.nulls(rows.num_rows), np.ones(rows.num_rows, np.bool_))]
    middle = rows.num_rows // 2
    return [_joined(_computed(rows[:middle], wanted)[0], _computed(rows[middle:], wanted)[0])]


def _at_once(rows: pa.Table, wanted: Sequence[ExpressionSql]) -> list[ExpressionValues]:
    columns = iter(_query(rows.schema, wanted).run(rows).columns)
    return [
        ExpressionValues(
            _whole(next(columns)),
            _mask(next(columns)) if each.fails else None,
            _mask(next(columns)) if each.misfits else None,
        )
        for each in wanted
    ]


class _Query:
    """The query of some expressions over rows of one schema, planned; DuckDB asks it for the rows of each run."""

    def __init__(self, duckdb: LockedDuckDb, number: int, schema: pa.Schema, wanted: Sequence[ExpressionSql]) -> None:
        texts = [text for each in wanted for text in each.columns]
        self._duckdb, self._name = duckdb, f"freshet_query{number}"
        self._names = [f"v{index}" for index in range(len(texts))]
        self._nothing = self._rows = schema.empty_table()
        selected = ", ".join(f"{text} AS {name}" for text, name in zip(texts, self._names, strict=True))
        duckdb.connection.register(f"{_ROWS}{number}", self)
        duckdb.prepare(self._name, f"SELECT {selected} FROM {_ROWS}{number}")

    def run(self, rows: pa.Table) -> pa.Table:
        """The values of all expressions and conditions, a column each."""
        self._rows = rows
        try:
            return self._duckdb.computed(f"EXECUTE {self._name}", self._names)
        finally:
            self._rows = self._nothing

    def __arrow_c_schema__(self) -> object:
        return self._rows.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)


def _query(schema: pa.Schema, wanted: Sequence[ExpressionSql]) -> _Query:
    """The planned query of this thread, on a connection that stays open: to open one takes as long as some ten blocks.

    A process that was forked has its own.
    """
    opened: _Opened | None = getattr(_OWN, "opened", None)
    if opened is not None and opened.process == os.getpid() and len(opened.queries) >= _QUERIES_MAX:
        opened.duckdb.close()
        opened = None
    if opened is None or opened.process != os.getpid():
        opened = _OWN.opened = _Opened(os.getpid(), _new_duckdb(), {})
    key = (schema, tuple(wanted))
    if key not in opened.queries:
        opened.queries[key] = _Query(opened.duckdb, len(opened.queries), schema, wanted)
    return opened.queries[key]


class _Opened(NamedTuple):
    """The connection of a thread, the process that it is of, and the queries that are planned on it."""

    process: int
    duckdb: LockedDuckDb
    queries: dict[tuple[pa.Schema, tuple[ExpressionSql, ...]], _Query]


def _new_duckdb() -> LockedDuckDb:
    """A connection with one thread: a block is too small for several."""
    duckdb = LockedDuckDb(threads=1)
    for name, (function, arguments) in ODD_TEXTS.items():
        duckdb.add_function(name, function, arguments)
    atexit.register(duckdb.close)
    return duckdb


def _plain(array: Any) -> Any:
    """Times in UTC without the zone, which DuckDB would look up."""
    if pa.types.is_timestamp(array.type) and array.type.tz is not None:
        return array.view(pa.timestamp(array.type.unit))
    return array


def _whole(column: Any) -> Any:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _mask(column: Any) -> Mask | None:
    mask: Mask = column.to_numpy()
    return mask.astype(np.bool_) if mask.any() else None


def _joined(left: ExpressionValues, right: ExpressionValues) -> ExpressionValues:
    pair = (left, right)
    kind = next((each.values.type for each in pair if not pa.types.is_null(each.values.type)), pa.null())
    values = pa.concat_arrays([each.values.cast(kind) for each in pair])
    return ExpressionValues(
        values,
        _both_masks([(each.failed, len(each.values)) for each in pair]),
        _both_masks([(each.misfits, len(each.values)) for each in pair]),
    )


def _both_masks(masks: Sequence[tuple[Mask | None, int]]) -> Mask | None:
    if all(mask is None for mask, _ in masks):
        return None
    return np.concatenate([np.zeros(count, np.bool_) if mask is None else mask for mask, count in masks])
