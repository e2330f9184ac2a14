"""Exact bounds and null counts of the columns of a file that is written.

They are computed from the values, not taken from the footer of the file: that of Parquet leaves out bounds of values
longer than 4 KB and of INT96 timestamps, skips NaN, and swaps the sign of zeros. Doing so costs 2 to 4 % of writing
the same rows.

| type | bounds |
|---|---|
| FLOAT, DOUBLE | -0.0 below 0.0, NaN above everything: one NaN makes the maximum NaN |
| strings, binary | unsigned bytes |
| ARRAY, MAP, ROW | no bounds, only the null count |

Which of them an entry holds is a matter of the format (`StatsRules`). Source: FORMAT.md §6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.codec.stats import ColumnStats, merge_stats
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_type import FLOAT_ROOTS, DataField, ScalarType

_NO_ROWS: Final = ColumnStats(null_count=0)


class ColumnBounds:
    """Running statistics of the columns given, by name."""

    def __init__(self, fields: Sequence[DataField]) -> None:
        self._fields = tuple(fields)
        self._stats = [_NO_ROWS] * len(self._fields)

    def add(self, rows: pa.Table) -> None:
        """Takes further rows into account."""
        for index, field in enumerate(self._fields):
            self._stats[index] = merge_stats(self._stats[index], column_stats(rows.column(field.name), field))

    def stats(self) -> dict[str, ColumnStats]:
        """Statistics so far, by column."""
        return {field.name: stats for field, stats in zip(self._fields, self._stats, strict=True)}


def column_stats(column: pa.ChunkedArray[Any], field: DataField) -> ColumnStats:
    """Statistics of one column of some rows; `InvalidRequestError` where a bound is text that is no UTF-8."""
    null_count = column.null_count
    if null_count == len(column) or not isinstance(field.type, ScalarType):
        return ColumnStats(null_count=null_count)
    if field.type.root in FLOAT_ROOTS:
        low, high = _float_bounds(column)
        return ColumnStats(low, high, null_count)
    bounds = pc.min_max(column)
    try:
        return ColumnStats(plain_value(bounds["min"]), plain_value(bounds["max"]), null_count)
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"column {field.name!r} holds bytes that are no text in UTF-8 ({error}); clean them before writing, or "
            "make the column BYTES"
        ) from error


def plain_value(scalar: pa.Scalar[Any]) -> Any:
    """The value as binary rows take it: integers for TIME, TIMESTAMP and DATE, else Python's own."""
    if pa.types.is_temporal(scalar.type):
        return scalar.value
    return scalar.as_py()


def _float_bounds(column: pa.ChunkedArray[Any]) -> tuple[float, float]:
    present = column.drop_null() if column.null_count else column
    values = present.to_numpy()
    low, high = float(np.fmin.reduce(values)), float(np.fmax.reduce(values))
    if math.isnan(low):
        return math.nan, math.nan
    if low == 0.0:
        low = -0.0 if np.signbit(values[values == 0.0]).any() else 0.0
    if high == 0.0:
        high = -0.0 if np.signbit(values[values == 0.0]).all() else 0.0
    if bool(np.isnan(values).any()):
        high = math.nan
    return low, high
