"""Bounds and null counts of columns: exact ones of a file that is written, and those of a footer for filters.

Exact ones are computed from the values, not taken from the Parquet footer, since the footer leaves out bounds of values
longer than 4 KB and of INT96 timestamps, skips NaN, and swaps the sign of zeros. Doing so costs 2 to 4 % of writing
the same rows.

| type | exact bounds |
|---|---|
| FLOAT, DOUBLE | -0.0 below 0.0, NaN above everything: one NaN makes the maximum NaN |
| strings, binary | unsigned bytes |
| ARRAY, MAP, ROW, TIMESTAMP(7..9) | no bounds, only the null count |

| type | bounds of a row group |
|---|---|
| integers, DATE, BOOLEAN, DECIMAL, text, binary | as they are |
| TIME, TIMESTAMP | ticks in the unit of the column's Arrow type; none for INT96 |
| FLOAT, DOUBLE | as they are: NaN is left out by writers, zeros have the wider sign |
| nested types, missing statistics | none |

Source: FORMAT.md §6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.codec.stats import NO_STATS, ColumnStats, merge_stats
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.files.parquet_schema import is_nano_timestamp
from freshet.storage.filters.literal import canonical
from freshet.storage.model.arrow_types import arrow_type
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
    if null_count == len(column) or not isinstance(field.type, ScalarType) or is_nano_timestamp(field.type):
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


def row_group_stats(footer: Any, stored: pa.Schema, source: DataField, wanted: DataField) -> ColumnStats:
    """Bounds of one column in one row group, as values of the type wanted, which must keep those of the file.

    `footer` is the row group's metadata and `stored` the file's Arrow schema, both as pyarrow gives them.
    """
    # A dot in a name is the same as a nested path in the footer: better no bounds than those of another column.
    if not isinstance(source.type, ScalarType) or "." in source.name:
        return NO_STATS
    for index in range(footer.num_columns):
        column = footer.column(index)
        if column.path_in_schema == source.name:
            return _bounds(column, stored.field(source.name).type, arrow_type(wanted.type))
    return NO_STATS


def _bounds(column: Any, stored: pa.DataType, target: pa.DataType) -> ColumnStats:
    statistics = column.statistics
    if statistics is None:
        return NO_STATS
    null_count = statistics.null_count if statistics.has_null_count else None
    if not statistics.has_min_max or column.physical_type == "INT96":
        return ColumnStats(null_count=null_count)
    if pa.types.is_temporal(target):
        if stored != target:
            return ColumnStats(null_count=null_count)
        return ColumnStats(_temporal(statistics.min_raw, target), _temporal(statistics.max_raw, target), null_count)
    if not isinstance(statistics.min, _plain_class(target)):
        return ColumnStats(null_count=null_count)  # stored in another way than the type says
    return ColumnStats(statistics.min, statistics.max, null_count)


def _plain_class(target: pa.DataType) -> type:
    if pa.types.is_string(target):
        return str
    if pa.types.is_binary(target):
        return bytes
    if pa.types.is_decimal(target):
        return Decimal
    if pa.types.is_boolean(target):
        return bool
    return int if pa.types.is_integer(target) else float


def _temporal(ticks: int, target: pa.DataType) -> Any:
    storage = pa.int32() if target.bit_width == 32 else pa.int64()
    try:
        return canonical(pa.scalar(ticks, storage).cast(target))
    except (ValueError, OverflowError):
        return None  # a date outside Python's calendar is no bound
