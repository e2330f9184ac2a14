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

Readers cast without complaint: a number wraps, a text is cut, a fraction goes, or reading fails altogether. So a change
of a column's type warns before, of what can happen to some value of the old type (`possible_loss`); whether such a
value is stored is not looked at.
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
_DIGITS: Final = {_R.TINYINT: 3, _R.SMALLINT: 5, _R.INT: 10, _R.BIGINT: 19}
_EXACT_BITS: Final = {_R.FLOAT: 24, _R.DOUBLE: 53}
"""Integers up to 2**bits are exact in a float."""
_INTEGER_BITS: Final = {_R.TINYINT: 7, _R.SMALLINT: 15, _R.INT: 31, _R.BIGINT: 63}
_NANO_PRECISION_MIN: Final = 7

_ROUNDED: Final = "numbers are rounded"
_FRACTION: Final = "fractions are cut"
_WRAPPED: Final = "numbers that do not fit wrap around to others"
_NULLED: Final = "numbers that do not fit become NULL"
_YEARS: Final = "reading fails for times outside the years 1677 to 2262"


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


def possible_loss(source: DataType, target: DataType) -> str | None:
    """What the change can do to a value, as a clause such as 'fractions are cut'; None where every value stays."""
    match source, target:
        case RowType(), RowType():
            kept = {field.id: field for field in target.fields}
            gone = [field.name for field in source.fields if field.id not in kept]
            if gone:
                return f"the values of field {gone[0]} are gone"
            losses = (possible_loss(field.type, kept[field.id].type) for field in source.fields)
            return next((loss for loss in losses if loss is not None), None)
        case ArrayType(), ArrayType():
            return possible_loss(source.element, target.element)
        case MapType(), MapType():
            return possible_loss(source.value, target.value)
        case ScalarType(), ScalarType():
            return None if keeps_values(source, target) else _scalar_loss(source, target)
    if isinstance(target, ScalarType) and target.root in TEXT_ROOTS:
        return _text_loss(None, target)
    return "existing values cannot be cast"


def _scalar_loss(source: ScalarType, target: ScalarType) -> str | None:
    if target.root in TEXT_ROOTS:
        return _text_loss(source, target)
    if target.root in BYTES_ROOTS:
        return _bytes_loss(source, target)
    if source.root in TEXT_ROOTS:
        return f"reading fails for text that is not a valid {target}"
    if target.root is _R.DECIMAL:
        return _decimal_loss(source, target)
    if target.root in _INTEGER_BITS:
        return _integer_loss(source, target)
    if target.root in _EXACT_BITS:
        is_exact = source.root in (_R.BOOLEAN, _R.FLOAT) or (
            _INTEGER_BITS.get(source.root, 99) <= _EXACT_BITS[target.root]
        )
        return None if is_exact else _ROUNDED
    if target.root is _R.BOOLEAN:
        return "all numbers but 0 become TRUE"
    return _time_loss(source, target)


def _text_loss(source: ScalarType | None, target: ScalarType) -> str | None:
    if target.root is _R.CHAR:
        return f"text that is longer than {target.length} characters is cut, shorter text is padded"
    if target.length == LENGTH_MAX:
        return "reading fails for bytes that are not text in UTF-8" if source and source.root in BYTES_ROOTS else None
    digits = None if source is None else _DIGITS.get(source.root)
    is_short = digits is not None and digits + 1 <= (target.length or 0)
    return None if is_short else f"text that is longer than {target.length} characters is cut"


def _bytes_loss(source: ScalarType, target: ScalarType) -> str | None:
    if source.root in TEXT_ROOTS and target.root is _R.VARBINARY and target.length == LENGTH_MAX:
        return None
    padded = ", shorter ones are padded with zeros" if target.root is _R.BINARY else ""
    return f"values that are longer than {target.length} bytes are cut{padded}"


def _decimal_loss(source: ScalarType, target: ScalarType) -> str | None:
    scale, whole = target.scale or 0, (target.precision or 0) - (target.scale or 0)
    if source.root in _EXACT_BITS:
        return f"{_ROUNDED}, and {_NULLED}"
    if source.root is _R.DECIMAL:
        if scale < (source.scale or 0):
            return _ROUNDED
        digits = (source.precision or 0) - (source.scale or 0)
    else:
        digits = _DIGITS.get(source.root, 1)
    return None if digits <= whole else _NULLED


def _integer_loss(source: ScalarType, target: ScalarType) -> str | None:
    if source.root is _R.BOOLEAN:
        return None
    if source.root is _R.DECIMAL:
        fits = (source.precision or 0) - (source.scale or 0) < _DIGITS[target.root]
        cut = _FRACTION if source.scale else None
        return cut if fits else " and ".join(filter(None, (cut, _WRAPPED)))
    if source.root in _EXACT_BITS:
        return f"{_FRACTION}, and numbers that do not fit become the nearest that does"
    if source.root in TIMESTAMP_ROOTS:
        wraps = f", and {_WRAPPED}" if target.root is not _R.BIGINT else ""
        return f"fractions of a second are cut{wraps}"
    return _WRAPPED


def _time_loss(source: ScalarType, target: ScalarType) -> str | None:
    is_nanos = target.root in TIMESTAMP_ROOTS and (target.precision or 0) >= _NANO_PRECISION_MIN
    if source.root in TIMESTAMP_ROOTS and target.root is _R.DATE:
        return "the time of day is gone"
    if source.root in TIMESTAMP_ROOTS and target.root is _R.TIME:
        return "the date is gone"
    if source.root in TIMESTAMP_ROOTS and source.root is not target.root:
        return "readers in other time zones than UTC see other times"
    if source.root in (*TIMESTAMP_ROOTS, _R.TIME) and (target.precision or 0) < (source.precision or 0):
        return "fractions of a second are cut"
    if is_nanos and not (source.root in TIMESTAMP_ROOTS and (source.precision or 0) >= _NANO_PRECISION_MIN):
        return None if source.root is _R.TIME else _YEARS
    if source.root is _R.BIGINT:
        return "numbers become seconds since 1970, and reading fails for those that are not times"
    return None
