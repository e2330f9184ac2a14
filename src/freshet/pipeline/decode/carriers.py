"""The type in which a column of the table travels through Spark, in Arrow, and its conversion there and back.

| table | Spark's carrier | Arrow from and to Spark | Arrow in storage |
|---|---|---|---|
| TIME(p) | BIGINT, milliseconds of the day | int64 | time32[ms] |
| TIMESTAMP(0), (1-3) | TIMESTAMP_NTZ | timestamp[us] | timestamp[s], [ms], rounded down |
| TIMESTAMP(4-6) | TIMESTAMP_NTZ | timestamp[us] | timestamp[us] |
| TIMESTAMP(7-9), with or without zone | BIGINT, nanoseconds since 1970 | int64 | timestamp[ns] |
| TIMESTAMP(p <= 6) WITH LOCAL TIME ZONE | TIMESTAMP | timestamp[us, any zone] | as above, zone UTC |
| CHAR, VARCHAR / BINARY, VARBINARY | STRING / BINARY | utf8 / binary | the same |
| ARRAY, MAP, ROW | the same, of carriers | list, map, struct | the same, of storage types |
| all others | the type of the same name | as storage | |

`freshet.pipeline.spark.arrow_bridge` has the same table in Spark's types. Spark has no type for nanoseconds and none
that its Arrow transfer and the Kafka source agree on for TIME, hence the 64-bit integers. Reading a table through Spark
gives the same carriers, so what is read can be written back unchanged.

Source: FORMAT.md §2.3.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.model.arrow_types import arrow_type, converted
from freshet.storage.model.data_type import DataType, ScalarType, TypeRoot

CARRIED_PRECISION_MAX: Final = 6
"""Fraction digits that Spark's timestamps hold; more travel as BIGINT."""

_TIMES: Final = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_FLOOR_UNITS: Final[dict[str, str]] = {"s": "second", "ms": "millisecond"}


def counted_in(data_type: DataType) -> str | None:
    """What the carrier of a time counts where it is a number; None for all others."""
    if data_type.root is TypeRoot.TIME:
        return "milliseconds of the day"
    return "nanoseconds since 1970" if is_nanos(data_type) else None


def is_nanos(data_type: DataType) -> bool:
    """True for timestamps finer than Spark's."""
    return (
        isinstance(data_type, ScalarType)
        and data_type.root in _TIMES
        and (data_type.precision or 0) > CARRIED_PRECISION_MAX
    )


def carrier_arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type of a column as Spark sends and takes it."""
    return arrow_type(data_type, _carrier_of_scalar)


def _carrier_of_scalar(scalar: ScalarType) -> pa.DataType:
    if scalar.root is TypeRoot.TIME or is_nanos(scalar):
        return pa.int64()
    if scalar.root in _TIMES:
        return pa.timestamp("us", "UTC" if scalar.root is TypeRoot.TIMESTAMP_LTZ else None)
    return arrow_type(scalar)


def restore_array(array: pa.Array, data_type: DataType) -> pa.Array:
    """A column as it came from Spark, in the table's Arrow type; the same object where nothing differs.

    Timestamps finer than the table's type are rounded down; any other value that does not fit raises
    `pa.ArrowInvalid`.
    """
    return _convert(array, arrow_type(data_type))


def carry_array(array: pa.Array, data_type: DataType) -> pa.Array:
    """A column of the table in the Arrow type that Spark takes; the inverse of `restore_array`."""
    return _convert(array, carrier_arrow_type(data_type))


def _convert(array: pa.Array, target: pa.DataType) -> pa.Array:
    if array.type == target:
        return array
    return converted(array, target, _convert) if pa.types.is_nested(target) else _convert_scalar(array, target)


def _convert_scalar(array: pa.Array, target: pa.DataType) -> pa.Array:
    source = array.type
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        # The zone only labels an instant in UTC; relabelling first keeps the cast from shifting anything.
        array = array.cast(pa.timestamp(source.unit, target.tz)) if source.tz != target.tz else array
        if target.unit in _FLOOR_UNITS and source.unit != target.unit:
            array = pc.floor_temporal(array, options=pc.RoundTemporalOptions(unit=_FLOOR_UNITS[target.unit]))
        return array.cast(target)
    if pa.types.is_time32(target) and pa.types.is_integer(source):
        return array.cast(pa.int32()).cast(target)
    if pa.types.is_time32(source) and pa.types.is_integer(target):
        return array.cast(pa.int32()).cast(target)
    return array.cast(target)
