"""Bounds of a column in a stripe, for filters; what pyarrow cannot read of a stripe is found by them, too.

| type | bounds |
|---|---|
| integers, TIME, DATE, DECIMAL, BOOLEAN | as they are |
| text | as they are; of values that were too long for the statistics a bound below, a bound above |
| FLOAT, DOUBLE | NaN may be left out, or take the place of both |
| TIMESTAMP | the millisecond below, the one above: writers cut before 1970 upwards |
| binary, nested types, missing statistics | none |
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from freshet.storage.codec.stats import NO_STATS, ColumnStats
from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.files.orc import protobuf as pb
from freshet.storage.files.orc.footer import CHAR_KIND, TIMESTAMP_KINDS, OrcFooter
from freshet.storage.files.orc.schema import NANOS_MAX
from freshet.storage.filters.literal import canonical
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import (
    FLOAT_ROOTS,
    INTEGER_ROOTS,
    TEXT_ROOTS,
    TIMESTAMP_ROOTS,
    DataType,
    ScalarType,
    TypeRoot,
)

_INTEGERS: Final = 2
_DOUBLES: Final = 3
_STRINGS: Final = 4
_BUCKETS: Final = 5
_DECIMALS: Final = 6
_DATES: Final = 7
_TIMESTAMPS: Final = 9
_MILLIS_REACH: Final = NANOS_MAX // 1_000_000


def stripe_stats(footer: OrcFooter, stripe: int, column: str, source: DataType, wanted: DataType) -> ColumnStats:
    """Bounds of a column, as values of the type wanted."""
    found, node = footer.stripes[stripe], footer.columns[column]
    if node >= len(found.statistics):
        return NO_STATS
    message = found.statistics[node]
    values = pb.number(message, 1)
    null_count = None if values is None else found.row_count - values
    if not values or not isinstance(source, ScalarType) or footer.types[node].kind == CHAR_KIND:
        return ColumnStats(null_count=null_count)  # a CHAR has its bounds with blanks, which order otherwise
    low, high = _bounds(message, source, wanted)
    return ColumnStats(low, high, null_count)


def check_readable(footer: OrcFooter, stripe: int, column: str, path: str) -> None:
    """Refuses timestamps that do not fit into 64 bits of nanoseconds, which pyarrow would wrap around."""
    statistics = footer.stripes[stripe].statistics
    for node in footer.leaves(footer.columns[column]):
        if footer.types[node].kind in TIMESTAMP_KINDS and node < len(statistics):
            low, high = _millis(statistics[node])
            if low is not None and high is not None and (low < -_MILLIS_REACH or high > _MILLIS_REACH):
                raise UnsupportedFeatureError(
                    f"column {column!r} of {path} holds timestamps outside 1677..2262, which are not read from ORC "
                    "files; read without that column, or rewrite the table with Apache Paimon and file.format=parquet"
                )


def _bounds(message: pb.Message, source: ScalarType, wanted: DataType) -> tuple[Any, Any]:
    root = source.root
    if root in INTEGER_ROOTS or root is TypeRoot.TIME:
        return _signed_pair(message, _INTEGERS)
    if root in FLOAT_ROOTS:
        part = _part(message, _DOUBLES)
        return pb.double(part, 1), pb.double(part, 2)
    if root in TEXT_ROOTS:
        part = _part(message, _STRINGS)
        return _text(part, 1, 4), _text(part, 2, 5)
    if root is TypeRoot.BOOLEAN:
        (trues,) = pb.numbers(_part(message, _BUCKETS), 1) or (None,)
        if trues is None:
            return None, None
        return trues == pb.number(message, 1), trues > 0
    if root is TypeRoot.DECIMAL:
        part = _part(message, _DECIMALS)
        low, high = _text(part, 1, 1), _text(part, 2, 2)
        return (None, None) if low is None or high is None else (Decimal(low), Decimal(high))
    if root is TypeRoot.DATE:
        days = _signed_pair(message, _DATES)
        return tuple(None if day is None else _date(day) for day in days)  # type: ignore[return-value]
    if root in TIMESTAMP_ROOTS:
        low_ms, high_ms = _millis(message)
        if low_ms is None or high_ms is None:
            return None, None
        return _ticks(low_ms - 1, wanted), _ticks(high_ms + 1, wanted)
    return None, None


def _part(message: pb.Message, field: int) -> pb.Message:
    return pb.parse(pb.content(message, field) or b"")


def _signed_pair(message: pb.Message, field: int) -> tuple[int | None, int | None]:
    part = _part(message, field)
    return pb.signed(part, 1), pb.signed(part, 2)


def _millis(message: pb.Message) -> tuple[int | None, int | None]:
    """In UTC."""
    part = _part(message, _TIMESTAMPS)
    return pb.signed(part, 3), pb.signed(part, 4)


def _text(part: pb.Message, exact: int, bound: int) -> str | None:
    found = pb.content(part, exact)
    found = pb.content(part, bound) if found is None else found
    return None if found is None else found.decode(errors="strict")


def _date(day: int) -> Any:
    try:
        return canonical(pa.scalar(day, pa.int32()).cast(pa.date32()))
    except (ValueError, OverflowError):
        return None  # a date outside Python's calendar is no bound


def _ticks(millis: int, wanted: DataType) -> int:
    unit = arrow_type(wanted).unit
    return millis // 1000 if unit == "s" else millis * {"ms": 1, "us": 1000, "ns": 1_000_000}[unit]
