"""The footer of a Parquet file: how long it is, and the bounds that it has of row groups, for filters.

| type | bounds of a row group |
|---|---|
| integers, DATE, BOOLEAN, DECIMAL, text, binary | as they are |
| TIME, TIMESTAMP | ticks in the unit of the column's Arrow type; none for INT96 |
| FLOAT, DOUBLE | as they are: NaN is left out by writers, zeros have the wider sign |
| nested types, missing statistics | none |
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from freshet.storage.codec.stats import NO_STATS, ColumnStats
from freshet.storage.filters.literal import canonical
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import DataField, ScalarType

_FRAME_BYTES: Final = 8
"""Behind the footer: its length and the magic."""
_MAGIC: Final = b"PAR1"


def footer_bytes(tail: pa.Buffer) -> int | None:
    """Length of the footer of the file that ends so, with the frame; None where it is no end of a Parquet file."""
    frame = tail.slice(max(0, tail.size - _FRAME_BYTES)).to_pybytes()
    if len(frame) < _FRAME_BYTES or frame[4:] != _MAGIC:
        return None
    return int.from_bytes(frame[:4], "little") + _FRAME_BYTES


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
