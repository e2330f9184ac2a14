"""Casts between column types by the format's rules, on whole Arrow arrays.

| from | to | rule |
|---|---|---|
| integers, FLOAT, DOUBLE | each other | as in Java: narrowing wraps, fractions are cut, floats saturate, NaN is 0 |
| integers, FLOAT, DOUBLE, BOOLEAN | DECIMAL | rounded half up; NULL where it does not fit |
| DECIMAL | DECIMAL | rounded half up; NULL where it does not fit |
| DECIMAL | integers | fraction cut, then wraps |
| DECIMAL | FLOAT, DOUBLE | nearest |
| integers / BOOLEAN | BOOLEAN / numbers | not 0 is TRUE / TRUE is 1 |
| INT, BIGINT | TIMESTAMP | seconds since the epoch |
| TIMESTAMP | INT, BIGINT | seconds since the epoch, fraction cut |
| DATE, TIME, TIMESTAMP | TIMESTAMP | midnight, the first day, fraction cut to the precision |
| TIMESTAMP | DATE, TIME | its parts |
| all | CHAR, VARCHAR, STRING | `text_casts` |
| CHAR, VARCHAR, STRING | all scalars | `text_casts` |
| BINARY, VARBINARY | each other | cut at the length; BINARY padded with zeros |

Where the time zone of a session matters (WITH LOCAL TIME ZONE to and from the others), it is UTC. Before 1970 a date
or a shorter fraction is rounded down; Paimon rounds towards 1970 there.

`can_cast` knows two sets: implicit casts lose nothing, explicit ones may. Source: FORMAT.md §13.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.casts.text_casts import (
    NESTED_TO_TEXT_ROOTS,
    decimal_to_float,
    decimal_to_integer,
    fit_binary,
    float_to_decimal,
    from_text,
    rescale,
    to_text,
)
from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.model.arrow_types import arrow_type, numpy_type
from freshet.storage.model.data_type import (
    BYTES_ROOTS,
    FLOAT_ROOTS,
    INTEGER_ROOTS,
    LENGTH_MAX,
    TEXT_ROOTS,
    TIMESTAMP_ROOTS,
    ArrayType,
    DataType,
    MapType,
    RowType,
    ScalarType,
    TypeRoot,
    with_nullable,
)

ArrayCast = Callable[["pa.Array[Any]"], "pa.Array[Any]"]

_R = TypeRoot
_NUMBERS: Final = frozenset({*INTEGER_ROOTS, *FLOAT_ROOTS, _R.DECIMAL})
_DATETIMES: Final = frozenset({_R.DATE, _R.TIME, *TIMESTAMP_ROOTS})
_SCALARS: Final = frozenset({_R.BOOLEAN, *_NUMBERS, *TEXT_ROOTS, *BYTES_ROOTS, *_DATETIMES})

_IMPLICIT: Final[dict[TypeRoot, frozenset[TypeRoot]]] = {
    _R.VARCHAR: TEXT_ROOTS,
    _R.VARBINARY: BYTES_ROOTS,
    _R.DECIMAL: _NUMBERS,
    _R.SMALLINT: frozenset(INTEGER_ROOTS[:1]),
    _R.INT: frozenset(INTEGER_ROOTS[:2]),
    _R.BIGINT: frozenset(INTEGER_ROOTS[:3]),
    _R.FLOAT: frozenset({*INTEGER_ROOTS, _R.DECIMAL}),
    _R.DOUBLE: _NUMBERS,
    _R.DATE: frozenset({_R.TIMESTAMP}),
    _R.TIME: frozenset({_R.TIMESTAMP}),
    _R.TIMESTAMP: frozenset({_R.TIMESTAMP_LTZ}),
    _R.TIMESTAMP_LTZ: frozenset({_R.TIMESTAMP}),
}
"""Source roots of casts that are always allowed, by target; a root to itself is allowed as well."""

_TO_NUMBER: Final = frozenset({*_NUMBERS, *TEXT_ROOTS, _R.BOOLEAN})
_TO_LONG: Final = _TO_NUMBER | TIMESTAMP_ROOTS
_EXPLICIT: Final[dict[TypeRoot, frozenset[TypeRoot]]] = {
    _R.CHAR: _SCALARS | NESTED_TO_TEXT_ROOTS,
    _R.VARCHAR: _SCALARS | NESTED_TO_TEXT_ROOTS,
    _R.BOOLEAN: frozenset({*TEXT_ROOTS, *INTEGER_ROOTS}),
    _R.BINARY: TEXT_ROOTS | BYTES_ROOTS,
    _R.VARBINARY: TEXT_ROOTS | BYTES_ROOTS,
    _R.DECIMAL: _TO_NUMBER,
    _R.TINYINT: _TO_NUMBER,
    _R.SMALLINT: _TO_NUMBER,
    _R.INT: _TO_LONG,
    _R.BIGINT: _TO_LONG,
    _R.FLOAT: _TO_NUMBER,
    _R.DOUBLE: _TO_NUMBER,
    _R.DATE: TIMESTAMP_ROOTS | TEXT_ROOTS,
    _R.TIME: TIMESTAMP_ROOTS | TEXT_ROOTS,
    _R.TIMESTAMP: frozenset({*_DATETIMES, *TEXT_ROOTS, _R.INT, _R.BIGINT}),
    _R.TIMESTAMP_LTZ: frozenset({*_DATETIMES, *TEXT_ROOTS, _R.INT, _R.BIGINT}),
}
"""Further ones that need the explicit kind; pairs that no reader can convert are not among them."""

_DAY_MS: Final = 86_400_000
_SECOND_TICKS: Final = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


def can_cast(source: DataType, target: DataType, *, explicit: bool) -> bool:
    """True when a column may change from one type to the other.

    Nullability only matters for implicit casts: NULL into NOT NULL needs the explicit kind.
    """
    if source.nullable and not target.nullable and not explicit:
        return False
    match source, target:
        case RowType(), RowType():
            known = {field.id: field for field in source.fields}
            return all(
                can_cast(known[field.id].type, field.type, explicit=explicit)
                for field in target.fields
                if field.id in known
            )
        case ArrayType(), ArrayType():
            return can_cast(source.element, target.element, explicit=explicit)
        case MapType(), MapType():
            same_key = with_nullable(source.key, True) == with_nullable(target.key, True)
            return same_key and can_cast(source.value, target.value, explicit=explicit)
    if not isinstance(target, ScalarType):
        return False
    if source.root in _DATETIMES and target.root in TEXT_ROOTS:
        # Readers of the format render dates and times as STRING, not as text of a limited length.
        return explicit and target.root is _R.VARCHAR and target.length == LENGTH_MAX
    if source.root is target.root is _R.TIME:
        return isinstance(source, ScalarType) and source.precision == target.precision
    if source.root is target.root or source.root in _IMPLICIT.get(target.root, ()):
        return True
    return explicit and source.root in _EXPLICIT.get(target.root, ())


def keeps_values(source: ScalarType, target: ScalarType) -> bool:
    """True when the cast changes no value: same type, longer text or bytes, wider integer."""
    if with_nullable(source, True) == with_nullable(target, True):
        return True
    if source.root in INTEGER_ROOTS and target.root in INTEGER_ROOTS:
        return INTEGER_ROOTS.index(source.root) <= INTEGER_ROOTS.index(target.root)
    varying = (_R.VARCHAR, {_R.CHAR, _R.VARCHAR}), (_R.VARBINARY, {_R.BINARY, _R.VARBINARY})
    return any(target.root is to and source.root in roots for to, roots in varying) and (
        (source.length or 0) <= (target.length or 0)
    )


def cast_scalar(source: DataType, target: DataType) -> ArrayCast | None:
    """The cast of a column that is not a ROW, ARRAY or MAP on both sides; None where there is nothing to do.

    Raises `UnsupportedFeatureError` where there is no such cast.
    """
    if not isinstance(target, ScalarType) or not can_cast(source, target, explicit=True):
        raise UnsupportedFeatureError("there is no such cast")
    if isinstance(source, ScalarType) and keeps_values(source, target):
        goal = arrow_type(target)
        return None if arrow_type(source) == goal else lambda array: array.cast(goal)
    if target.root in TEXT_ROOTS:
        return lambda array: to_text(array, source, target)
    assert isinstance(source, ScalarType)
    return _between_scalars(source, target)


def _between_scalars(source: ScalarType, target: ScalarType) -> ArrayCast:
    if source.root in TEXT_ROOTS:
        return lambda array: from_text(array, target)
    if source.root in BYTES_ROOTS:
        return lambda array: fit_binary(array, target)
    if target.root is _R.DECIMAL:
        return _to_decimal(source, target)
    if target.root in INTEGER_ROOTS or target.root in FLOAT_ROOTS:
        return _to_number(source, target)
    if target.root is _R.BOOLEAN:
        return lambda array: pc.not_equal(array, pa.scalar(0, array.type))
    return lambda array: _to_datetime(array, source, target)


def _to_decimal(source: ScalarType, target: ScalarType) -> ArrayCast:
    if source.root in FLOAT_ROOTS:
        return lambda array: float_to_decimal(array.cast(pa.float64()), target)
    if source.root is _R.DECIMAL:
        return lambda array: rescale(array, target)
    return lambda array: rescale(array.cast(pa.int64()).cast(pa.decimal128(19, 0)), target)


def _to_number(source: ScalarType, target: ScalarType) -> ArrayCast:
    goal = arrow_type(target)
    if source.root is _R.DECIMAL:
        if target.root in FLOAT_ROOTS:
            return lambda array: decimal_to_float(array).cast(goal, safe=False)
        return lambda array: _wrapped(decimal_to_integer(array), goal)
    if source.root is _R.BOOLEAN:
        return lambda array: array.cast(pa.int8()).cast(goal)
    if source.root in TIMESTAMP_ROOTS:
        return lambda array: _wrapped(_epoch_seconds(array), goal)
    return lambda array: _wrapped(array, goal)


def _wrapped(array: pa.Array[Any], goal: pa.DataType) -> pa.Array[Any]:
    """Numbers in another width as Java converts them."""
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    values = (array.fill_null(0) if nulls is not None else array).to_numpy(zero_copy_only=False)
    dtype = numpy_type(goal)
    if np.issubdtype(values.dtype, np.floating) and np.issubdtype(dtype, np.integer):
        values = _saturated(values, np.dtype(np.int64) if dtype.itemsize == 8 else np.dtype(np.int32))
    with np.errstate(over="ignore"):
        converted = values.astype(dtype)
    return pa.array(converted, goal, mask=nulls)


def _saturated(values: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    limits = np.iinfo(dtype)
    wide = np.nan_to_num(values.astype(np.float64), nan=0.0)
    # 2**63 - 1 is not a double: values at or above 2**63 are set afterwards.
    high, low = wide >= float(limits.max), wide <= float(limits.min)
    result = np.where(high | low, 0.0, wide).astype(dtype)
    result[high], result[low] = limits.max, limits.min
    return result


def _to_datetime(array: pa.Array[Any], source: ScalarType, target: ScalarType) -> pa.Array[Any]:
    goal = arrow_type(target)
    if source.root in INTEGER_ROOTS:
        return array.cast(pa.int64()).cast(pa.timestamp("s")).cast(_naive(goal)).cast(goal)
    if source.root is _R.DATE:
        return array.cast(pa.timestamp("s")).cast(_naive(goal)).cast(goal)
    if source.root is _R.TIME:
        millis = array.cast(pa.int32()).cast(pa.int64()).cast(pa.timestamp("ms"))
        return millis.cast(_naive(goal), safe=False).cast(goal)
    naive = array.cast(_naive(array.type))
    if target.root is _R.DATE:
        return pc.floor_temporal(naive, unit="day").cast(pa.date32())
    if target.root is _R.TIME:
        millis = _floor_to(naive.cast(pa.int64()), max(1, _SECOND_TICKS[naive.type.unit] // 1000))
        per_day = _DAY_MS * max(1, _SECOND_TICKS[naive.type.unit]) // 1000
        of_day = pc.subtract(millis, _floor_to(millis, per_day))
        return (
            pa.array(of_day)
            .cast(pa.duration(naive.type.unit))
            .cast(pa.duration("ms"))
            .cast(pa.int64())
            .cast(pa.int32())
            .cast(goal)
        )
    return _with_precision(naive, source, target).cast(goal)


def _with_precision(naive: pa.Array[Any], source: ScalarType, target: ScalarType) -> pa.Array[Any]:
    """A timestamp at the precision of another type; finer digits are cut, downwards."""
    goal = _naive(arrow_type(target))
    precision = target.precision or 0
    if precision < (source.precision or 0):
        step = max(1, _SECOND_TICKS[naive.type.unit] // 10**precision)
        naive = _floor_to(naive.cast(pa.int64()), step).cast(naive.type)
    return naive.cast(goal, safe=True)


def _floor_to(ticks: pa.Array[Any], step: int) -> pa.Array[Any]:
    if step == 1:
        return ticks
    nulls = ticks.is_null().to_numpy(zero_copy_only=False) if ticks.null_count else None
    values = (ticks.fill_null(0) if nulls is not None else ticks).to_numpy()
    return pa.array(values // step * step, pa.int64(), mask=nulls)


def _epoch_seconds(array: pa.Array[Any]) -> pa.Array[Any]:
    ticks = array.cast(pa.int64())
    return pc.divide(ticks, pa.scalar(_SECOND_TICKS[array.type.unit], pa.int64()))


def _naive(timestamp: pa.DataType) -> pa.DataType:
    return pa.timestamp(timestamp.unit)
