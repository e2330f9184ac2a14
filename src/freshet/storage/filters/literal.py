"""Literals of filters: where a value is among the values that a column can have.

A literal may be finer than the column's type (12:00:00.0005 for TIMESTAMP(3)), outside of its range (300 for TINYINT)
or of another type (1.5 for INT, a date for a TIMESTAMP). Comparing as SQL does means comparing in the wider of both
types; `locate` answers the same question in the column's type, exactly:

    Equal(first, last)     the values from first to last equal the literal (nearly always one value)
    Between(below, …)      no value equals it; `below` is the largest that is smaller

| column | literal | compared as |
|---|---|---|
| integers, DECIMAL | int, Decimal | numbers, exactly |
| integers, DECIMAL | float | DOUBLE, as SQL casts the column: DECIMAL 0.10 equals the float 0.1 |
| FLOAT, DOUBLE | int, float, Decimal | DOUBLE: FLOAT 0.1 does not equal the DOUBLE 0.1 |
| DATE, TIMESTAMP | date, time stamp, their ISO text | instants; a date is its midnight |
| TIMESTAMP WITH LOCAL TIME ZONE | time stamp with a zone; a date or a text without one is in UTC | instants |
| TIME | time, its ISO text | nanoseconds of the day |
| BOOLEAN, text, binary | the same | as they are |

NaN is above all numbers and equals itself. Everything else is refused with a `ValueError` that names the remedy.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_05UP, Context, Decimal
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types

from freshet._frozen import Frozen
from freshet.storage.model.arrow_types import numpy_type

_NANOS_PER: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY_NANOS: Final = 86_400 * 10**9
_EPOCH: Final = datetime.date(1970, 1, 1)
_UTC: Final = datetime.UTC
_EXPONENT_MAX: Final = 400
_BITS_MAX: Final = 1400
_STICKY: Final = Context(prec=2 * _EXPONENT_MAX, rounding=ROUND_05UP)
"""What it cuts off leaves a last digit that is not zero."""
_TIMESTAMP_TEXT: Final = re.compile(
    r"\s*(?P<date>\d{4}-\d{2}-\d{2})"
    r"(?:[ T](?P<time>\d{2}:\d{2}(?::\d{2})?)(?:\.(?P<fraction>\d{1,9}))?)?"
    r"\s*(?P<zone>Z|UTC|[+-]\d{2}:\d{2})?\s*"
)


class Literal(Frozen):
    """A value of a column's type as `canonical` gives it, with its Arrow type."""

    value: Any
    type: pa.DataType

    @property
    def scalar(self) -> pa.Scalar[Any]:
        """The same for Arrow."""
        return pa.scalar(self.value, self.type)


@dataclass(frozen=True, slots=True)
class Instant:
    """A time stamp in nanoseconds since 1970, of the wall clock or of UTC.

    `has_zone` is None for a text without a zone, which is of whatever kind the column is.
    """

    nanos: int
    has_zone: bool | None

    def __repr__(self) -> str:
        seconds, nanos = divmod(self.nanos, 10**9)
        text = str(datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds))
        return f"TIMESTAMP '{text}{f'.{nanos:09d}'.rstrip('0') if nanos else ''}{'Z' if self.has_zone else ''}'"


class TimeOfDay(Frozen):
    """A time in nanoseconds since midnight."""

    nanos: int


class Equal(Frozen):
    """The values of the column's type that equal the literal, both ends included."""

    first: Literal
    last: Literal


class Between(Frozen):
    """A literal that no value of the column's type equals.

    `below` is the largest value smaller than the literal, None if there is none; `is_above_all`: no value is larger.
    """

    below: Literal | None
    is_above_all: bool = False


def canonical(scalar: pa.Scalar[Any]) -> Any:
    """The plain value of an Arrow scalar: an integer for TIME and TIMESTAMP, else Python's own; None for null."""
    if types.is_timestamp(scalar.type) or types.is_time(scalar.type):
        return scalar.value
    return scalar.as_py()


def locate(value: Any, column_type: pa.DataType) -> Equal | Between:
    """Where a value is among those of a column; `ValueError` says why they cannot be compared."""
    value = _plain(value)
    if types.is_boolean(column_type):
        return _same(value, bool, column_type, "write true or false")
    if types.is_string(column_type):
        return _same(value, str, column_type, "write the value as text, in quotes")
    if types.is_binary(column_type):
        return _same(value, bytes, column_type, "write bytes (X'…' in SQL)")
    if types.is_floating(column_type):
        return _among_floats(_number(value), column_type)
    grid = _grid(column_type)
    if grid is None:
        raise ValueError("columns of this type can only be compared with NULL")
    return grid.locate(*_span(value, column_type))


def timestamp_value(text: str) -> Instant:
    """The time stamp of an ISO text such as `2024-01-31 12:00:00.5+01:00`; the time may be left out."""
    match = _TIMESTAMP_TEXT.fullmatch(text)
    if match is None:
        raise ValueError("a time stamp is written as 2024-01-31 12:00:00.5, with Z or +01:00 where it has a zone")
    zone = match["zone"]
    moment = datetime.datetime.fromisoformat(f"{match['date']} {match['time'] or '00:00'}")
    if zone is not None:
        moment = datetime.datetime.fromisoformat(f"{moment}{'+00:00' if zone in ('Z', 'UTC') else zone}")
    nanos = int((match["fraction"] or "").ljust(9, "0"))
    return Instant(_instant_of(moment).nanos + nanos, None if zone is None else True)


def _plain(value: Any) -> Any:
    """A bool, int, float, Decimal, str, bytes, date, Instant or TimeOfDay; what is none of these stays as it is."""
    if isinstance(value, Literal):
        if types.is_timestamp(value.type):
            return Instant(value.value * _NANOS_PER[value.type.unit], value.type.tz is not None)
        if types.is_time(value.type):
            return TimeOfDay(value.value * _NANOS_PER[value.type.unit])
        return value.value
    if isinstance(value, np.datetime64):
        return _plain(_literal_of(pa.scalar(value)))
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, datetime.datetime):
        return _instant_of(value)
    if isinstance(value, datetime.time):
        if value.tzinfo is not None:
            raise ValueError("a time of day has no time zone")
        since_midnight = datetime.datetime.combine(_EPOCH, value)
        return TimeOfDay(_instant_of(since_midnight).nanos)
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


def _literal_of(scalar: pa.Scalar[Any]) -> Literal:
    return Literal(canonical(scalar), scalar.type)


def _instant_of(moment: datetime.datetime) -> Instant:
    has_zone = moment.tzinfo is not None
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=_UTC if has_zone else None)
    return Instant((since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000, has_zone)


def _same(value: Any, wanted: type, column_type: pa.DataType, remedy: str) -> Equal:
    if not isinstance(value, wanted):
        raise ValueError(remedy)
    literal = Literal(value, column_type)
    return Equal(literal, literal)


def _number(value: Any) -> int | float | Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise ValueError("write a number, without quotes")
    return value


def _among_floats(value: int | float | Decimal, column_type: pa.DataType) -> Equal | Between:
    number = _as_double(value)
    if number is None:  # beyond the largest number, but not infinite
        largest = float(np.finfo(numpy_type(column_type)).max)
        return Between(Literal(largest if value > 0 else -math.inf, column_type))
    stored = number
    if types.is_float32(column_type):
        with np.errstate(over="ignore"):
            nearest = np.float32(number)
            below = np.nextafter(nearest, np.float32(-math.inf))
        stored = float(nearest)
        if stored > number:
            return Between(Literal(float(below), column_type))
        if stored < number:
            return Between(Literal(stored, column_type))
    return Equal(Literal(stored, column_type), Literal(stored, column_type))


def _as_double(value: int | float | Decimal) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    return None if math.isinf(number) and value not in (math.inf, -math.inf) else number


class _Grid(Frozen):
    """The values of an exact type: whole numbers of `unit` from `low` to `high`."""

    type: pa.DataType
    unit: Fraction
    low: int
    high: int
    value_of: Callable[[int], Any]

    def locate(self, low: Fraction | None, high: Fraction | None, closed: bool) -> Equal | Between:
        """Where the numbers from `low` to `high` (with the ends if closed) are; None is beyond every number."""
        if high is None:
            return Between(self._literal(self.high), is_above_all=True)
        if low is None:
            return Between(None)
        first, last = math.ceil(low / self.unit), math.floor(high / self.unit)
        if not closed:
            first += first * self.unit == low
            last -= last * self.unit == high
        if max(first, self.low) <= min(last, self.high):
            return Equal(self._literal(max(first, self.low)), self._literal(min(last, self.high)))
        below = self._literal(min(first - 1, self.high)) if first > self.low else None
        return Between(below, is_above_all=last >= self.high)

    def _literal(self, count: int) -> Literal:
        return Literal(self.value_of(count), self.type)


def _grid(column_type: pa.DataType) -> _Grid | None:
    if types.is_integer(column_type):
        limit = 1 << (column_type.bit_width - 1)
        return _Grid(column_type, Fraction(1), -limit, limit - 1, int)
    if types.is_decimal(column_type):
        limit, scale = 10**column_type.precision - 1, column_type.scale
        unit = Fraction(1, 10**scale)
        return _Grid(column_type, unit, -limit, limit, lambda count: _decimal(count, scale))
    if types.is_date(column_type):
        # A column may hold days outside of Python's calendar, but no literal does.
        return _Grid(column_type, Fraction(_DAY_NANOS), -(2**31), 2**31 - 1, _day)
    if types.is_time(column_type):
        unit_nanos = _NANOS_PER[column_type.unit]
        return _Grid(column_type, Fraction(unit_nanos), 0, _DAY_NANOS // unit_nanos - 1, int)
    if types.is_timestamp(column_type):
        return _Grid(column_type, Fraction(_NANOS_PER[column_type.unit]), -(2**63), 2**63 - 1, int)
    return None


def _decimal(count: int, scale: int) -> Decimal:
    digits = tuple(map(int, str(abs(count))))
    return Decimal((int(count < 0), digits, -scale))


def _day(count: int) -> datetime.date:
    return _EPOCH + datetime.timedelta(days=count)


def _span(value: Any, column_type: pa.DataType) -> tuple[Fraction | None, Fraction | None, bool]:
    """The exact numbers that equal the value, as low, high and whether these two do; None is beyond every number."""
    if types.is_date(column_type) or types.is_timestamp(column_type):
        exact = Fraction(_nanos_of(value, column_type))
    elif types.is_time(column_type):
        exact = Fraction(_time_nanos_of(value))
    else:
        number = _bounded(_number(value))
        if isinstance(number, float) or not math.isfinite(number):
            return _rounded_to(float(number))
        exact = Fraction(number)
    return exact, exact, True


def _bounded(number: int | float | Decimal) -> int | float | Decimal:
    """A number that can be computed with: beyond every column's values it is infinite, nearer to zero than any, or with
    more digits, it is another one that lies between the same two values of every type."""
    if isinstance(number, int):
        return number if number.bit_length() <= _BITS_MAX else math.inf if number > 0 else -math.inf
    if isinstance(number, float) or not number.is_finite():
        return number
    if not number:
        return 0  # of 0e99999999 too
    if number.adjusted() > _EXPONENT_MAX:
        return -math.inf if number.is_signed() else math.inf
    if number.adjusted() < -_EXPONENT_MAX:
        return Decimal((number.is_signed(), (1,), -_EXPONENT_MAX))
    return _STICKY.plus(number)


def _rounded_to(number: float) -> tuple[Fraction | None, Fraction | None, bool]:
    """The numbers whose nearest DOUBLE this is; those half-way between two go to the one with an even mantissa."""
    if math.isnan(number) or number == math.inf:
        return Fraction(0), None, False
    if number == -math.inf:
        return None, Fraction(0), False
    ends = []
    for direction in (-math.inf, math.inf):
        neighbour = math.nextafter(number, direction)
        if math.isinf(neighbour):  # no type holds numbers of this size
            neighbour = number
        ends.append((Fraction(number) + Fraction(neighbour)) / 2)
    return ends[0], ends[1], int(np.float64(number).view(np.int64)) % 2 == 0


def _nanos_of(value: Any, column_type: pa.DataType) -> int:
    if isinstance(value, str):
        value = datetime.date.fromisoformat(value.strip()) if types.is_date(column_type) else timestamp_value(value)
    if isinstance(value, datetime.date):
        return (value - _EPOCH).days * _DAY_NANOS
    if not isinstance(value, Instant):
        raise ValueError("write a date or a time stamp")
    column_has_zone = types.is_timestamp(column_type) and column_type.tz is not None
    if value.has_zone is not None and value.has_zone != column_has_zone:
        raise ValueError(
            "TIMESTAMP WITH LOCAL TIME ZONE takes a time stamp with a zone"
            if column_has_zone
            else "the column has no time zone: write the time stamp without one"
        )
    return value.nanos


def _time_nanos_of(value: Any) -> int:
    if isinstance(value, str):
        value = _plain(datetime.time.fromisoformat(value.strip()))
    if not isinstance(value, TimeOfDay):
        raise ValueError("write a time of day such as 12:30:00")
    return value.nanos
