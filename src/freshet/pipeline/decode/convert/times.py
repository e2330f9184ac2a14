"""Dates and times: numbers by their unit and ISO texts, into carriers.

What the record's schema calls a number decides, and not the column:

| type name in the record's schema | DATE | TIME | TIMESTAMP |
|---|---|---|---|
| Date | that day | refused | its midnight |
| Time, MicroTime, NanoTime | refused | that time | refused |
| Timestamp, MicroTimestamp, NanoTimestamp | its day, if it is midnight | refused | that time |
| any other name: Year, MicroDuration … | refused | refused | refused |
| none, in a Debezium format | refused | refused | refused |

All names begin with io.debezium.time; Date, Time and Timestamp may also begin with org.apache.kafka.connect.data.
A Date is in days, Time and Timestamp are in milliseconds, Micro… in microseconds, Nano… in nanoseconds.
Texts are read as they are, whatever they are called.

| no schema (in other formats: no name either), mode | TIME(p) | TIMESTAMP(p) |
|---|---|---|
| adaptive | p <= 3 milli, <= 6 micro, else nano | the same |
| adaptive_time_microseconds | micro | by p |
| connect | milli | milli |
| microseconds, nanoseconds | as named | as named |
| isostring | numbers are refused | numbers are refused |

DATE takes days in all modes but the last.

Refused: dates outside years 1-9999 (1677-2262 for TIMESTAMP(7-9)), times outside one day, anything finer than the
declared precision; TIME finer than milliseconds, because the format stores those. A text of digits is no number: "2024"
is more likely a year than a count of days. A text without a zone is in UTC.

A text column takes what the schema calls a time of day, which MySQL takes for 838 hours: `-101:00:00.5`.

Source: Debezium's PostgreSQL and MySQL connector documentation, temporal types.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Annotated, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode.convert.converter import (
    LOST,
    Cell,
    Converted,
    Converter,
    FieldConversion,
    Values,
    null_mask,
    partly,
    ranged,
    whole_array,
    with_nulls,
)
from freshet.pipeline.decode.convert.decimals import DECIMALS
from freshet.pipeline.decode.convert.scalars import TextConverter
from freshet.pipeline.decode.dialect import Dialect, Fact
from freshet.pipeline.decode.json_value import INT, STRING, JsonNumber, JsonValue, text_of
from freshet.storage.model.data_type import ScalarType, TypeRoot

TIMES_OF_DAY: Final = {
    "io.debezium.time.Time": 3, "org.apache.kafka.connect.data.Time": 3, "io.debezium.time.MicroTime": 6,
    "io.debezium.time.NanoTime": 9,
}  # fmt: skip
"""Names of times, and the digits of a second that they count."""
NAMED_TEXTS: Final = DECIMALS | TIMES_OF_DAY.keys()
"""Names of types that matter for a text."""
_COUNT: Final = re.compile(r"-?[0-9]{1,19}")


class TimeTextConverter(TextConverter):
    """CHAR, VARCHAR, STRING of times: numbers are written as times, texts are what they are."""

    def __init__(self, data_type: ScalarType, fact: Fact) -> None:
        super().__init__(data_type)
        self._digits = TIMES_OF_DAY[fact.name]

    def one(self, value: JsonValue) -> Cell:
        is_count = isinstance(value, JsonNumber) and _COUNT.fullmatch(value)
        return super().one(_time_text(int(value), self._digits) if is_count else value)

    def conversion(self, kinds: frozenset[str]) -> FieldConversion:
        if kinds <= {INT}:
            return FieldConversion(_LONG | None, self._of_counts)
        return FieldConversion(msgspec.Raw, self._convert_each, self.raw_conversion.default)

    def of_array(self, array: pa.Array) -> Converted | None:
        return self._of_counts(array.to_pylist()) if pa.types.is_integer(array.type) else super().of_array(array)

    def _of_counts(self, counts: Sequence[int | None]) -> Converted:
        texts = [None if count is None else _time_text(count, self._digits) for count in counts]
        return self._checked(pa.array(texts, pa.string()))

    def _convert_each(self, values: Sequence[msgspec.Raw]) -> Converted:
        nothing = (b"", b"null")
        return self._array([None if bytes(raw) in nothing else self._one_raw(bytes(raw)) for raw in values])


def _time_text(count: int, digits: int) -> str:
    seconds, fraction = divmod(abs(count), 10**digits)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    rest = f"{fraction:0{digits}d}".rstrip("0")
    return f"{'-' if count < 0 else ''}{hour:02d}:{minute:02d}:{second:02d}{f'.{rest}' if rest else ''}"


_DAYS: Final = "days"
_DIGITS: Final = {"ms": 3, "us": 6, "ns": 9}
_KINDS: Final = {"Date": TypeRoot.DATE, "Time": TypeRoot.TIME, "Timestamp": TypeRoot.TIMESTAMP}
_NAMED: Final = {
    f"{space}{mark}{kind}": (root, _DAYS if root is TypeRoot.DATE else unit)
    for kind, root in _KINDS.items()
    for space, mark, unit in (
        ("io.debezium.time.", "", "ms"),
        ("org.apache.kafka.connect.data.", "", "ms"),
        ("io.debezium.time.", "Micro", "us"),
        ("io.debezium.time.", "Nano", "ns"),
    )
    if not (mark and root is TypeRoot.DATE)
}
"""What a type name in a schema says of numbers: the kind of time, and the unit."""
_DAY_S: Final = 86_400

_DAY_MIN, _DAY_MAX = -719162, 2932896
"""0001-01-01 and 9999-12-31 in days since 1970."""
_MICRO_MIN, _MICRO_MAX = _DAY_MIN * 86_400_000_000, (_DAY_MAX + 1) * 86_400_000_000 - 1
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_LONG: Final = Annotated[int, msgspec.Meta(ge=_LONG_MIN, le=_LONG_MAX)]
_DAY_MILLIS: Final = 86_400_000

_WHOLE: Final = re.compile(r"-?[0-9]{1,30}")
_ISO_DATE: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]00:00:00(?:[.]0+)?)?Z?")
_ISO_TIME: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:[.]([0-9]{1,3})0*)?)?Z?")
_ISO_STAMP: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.]([0-9]+))?(Z|[+-][0-9]{2}:[0-9]{2})?|Z)?"
)
_YEAR: Final = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_NANO_YEAR: Final = "(?:16(?:7[89]|[89][0-9])|1[7-9][0-9]{2}|2[01][0-9]{2}|22[0-5][0-9]|226[01])"
_MONTH_DAY: Final = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
"""Days that every year has; the others are looked at one by one."""
_PLAIN_DATE: Final = f"^{_YEAR}-{_MONTH_DAY}Z?$"
_CLOCK: Final = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_EPOCH: Final = datetime(1970, 1, 1)
_MICRO: Final = timedelta(microseconds=1)
_ZONE_MINUTES_MAX: Final = 18 * 60


def unit_of(data_type: ScalarType, dialect: Dialect, fact: Fact | None) -> str | None:
    """The unit of numbers for a column of this type; None where they are refused."""
    if fact is None or (not fact.name and not dialect.named_times):
        return unit_without_schema(data_type, dialect.numeric_times)
    kind, unit = _NAMED.get(fact.name, (None, None))
    is_time = data_type.root is TypeRoot.TIME
    return unit if kind is not None and (kind is TypeRoot.TIME) == is_time else None


def unit_without_schema(data_type: ScalarType, mode: str) -> str | None:
    """`ms`, `us`, `ns`, `days`, or None when numbers are refused."""
    if data_type.root is TypeRoot.DATE:
        return None if mode == "isostring" else _DAYS
    fixed = {"connect": "ms", "microseconds": "us", "nanoseconds": "ns"}
    if mode in fixed:
        return fixed[mode]
    if mode == "isostring":
        return None
    if mode == "adaptive_time_microseconds" and data_type.root is TypeRoot.TIME:
        return "us"
    precision = data_type.precision or 0
    return "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


class DateConverter(Converter):
    """DATE: days since 1970."""

    def __init__(self, data_type: ScalarType, dialect: Dialect, fact: Fact | None) -> None:
        super().__init__(data_type)
        unit = unit_of(data_type, dialect, fact)
        self._per_day = 0 if unit is None else 1 if unit == _DAYS else _DAY_S * 10 ** _DIGITS[unit]
        """What a number counts so many of a day; 0 where numbers are refused."""

    def one(self, value: JsonValue) -> Cell:
        text = text_of(value) or ""
        if isinstance(value, JsonNumber):
            if not self._per_day or not _WHOLE.fullmatch(text):
                return LOST
            days, rest = divmod(int(text), self._per_day)
            return days if _DAY_MIN <= days <= _DAY_MAX and not rest else LOST
        found = _ISO_DATE.fullmatch(text)
        try:
            return (date.fromisoformat(found[1]) - _EPOCH.date()).days if found else LOST
        except ValueError:
            return LOST

    def conversion(self, kinds: frozenset[str]) -> FieldConversion:
        if kinds == {STRING} or (not self._per_day and not kinds):
            return FieldConversion(str | None, self._convert_texts)
        if kinds <= {INT} and self._per_day > 1:
            return FieldConversion(_LONG | None, lambda values: self._of_counts(whole_array(values, pa.int64())))
        if kinds <= {INT} and self._per_day:
            days = Annotated[int, msgspec.Meta(ge=_DAY_MIN, le=_DAY_MAX)]
            return FieldConversion(
                days | None, lambda values: (whole_array(values, pa.int32()).view(pa.date32()), None)
            )
        return self.raw_conversion

    def of_array(self, array: pa.Array) -> Converted | None:
        return self._of_counts(array) if self._per_day and pa.types.is_integer(array.type) else None

    def _of_counts(self, array: pa.Array) -> Converted:
        rest = None
        if self._per_day > 1:
            numbers, rests = np.divmod(
                array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), self._per_day
            )
            array, rest = with_nulls(numbers, null_mask(array), pa.int64()), rests != 0
        days, bad = ranged(array, _DAY_MIN, _DAY_MAX, pa.int32())
        if rest is not None and rest.any():
            bad = rest if bad is None else bad | rest
        return days.view(self.arrow), bad

    def _convert_texts(self, values: Values) -> Converted:
        return partly(values, pa.array(values, pa.string()), _PLAIN_DATE, _cast_dates, self.one_by_one)


def _cast_dates(texts: pa.Array) -> pa.Array:
    return pc.utf8_rtrim(texts, "Z").cast(pa.date32())


class _CountConverter(Converter):
    """What is stored as a count: numbers by a unit, texts by `_text`."""

    def __init__(self, data_type: ScalarType, dialect: Dialect, fact: Fact | None, digits: int) -> None:
        super().__init__(data_type)
        unit = unit_of(data_type, dialect, fact)
        self._takes_numbers = unit is not None
        beyond = 0 if unit in (None, _DAYS) else _DIGITS[unit] - digits
        self._factor = _DAY_S * 10**digits if unit == _DAYS else 10 ** max(0, -beyond)
        self._divisor = 10 ** max(0, beyond)
        """A number times one of these, by the other, is the count that is stored."""
        self._digits = digits
        self._step = 10 ** max(0, digits - (data_type.precision or 0))
        self._low, self._high = _LONG_MIN, _LONG_MAX

    def one(self, value: JsonValue) -> Cell:
        text = text_of(value) or ""
        if isinstance(value, JsonNumber):
            takes = self._takes_numbers and _WHOLE.fullmatch(text)
            return self._bounded(self._scaled(int(text))) if takes else LOST
        return self._bounded(self._text(text))

    def conversion(self, kinds: frozenset[str]) -> FieldConversion:
        if kinds == {STRING} or (not self._takes_numbers and not kinds):
            return FieldConversion(str | None, self._convert_texts)
        if kinds <= {INT} and self._takes_numbers:
            return FieldConversion(_LONG | None, self._convert_numbers)
        return self.raw_conversion

    def _text(self, text: str) -> int | None:
        raise NotImplementedError

    def _convert_texts(self, values: Values) -> Converted:
        return self.one_by_one(values)

    def _scaled(self, number: int) -> int | None:
        whole, rest = divmod(number * self._factor, self._divisor)
        return None if rest else whole

    def _bounded(self, count: int | None) -> Cell:
        fits = count is not None and self._low <= count <= self._high and count % self._step == 0
        return count if fits else LOST

    def of_array(self, array: pa.Array) -> Converted | None:
        return self._counts(array.cast(pa.int64())) if self._takes_numbers and pa.types.is_integer(array.type) else None

    def _convert_numbers(self, values: Values) -> Converted:
        return self._counts(whole_array(values, pa.int64()))

    def _counts(self, array: pa.Array) -> Converted:
        nulls = null_mask(array)
        numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
        bad = nulls & False
        if self._factor > 1:
            factor = self._factor
            bad |= (numbers < -(-self._low // factor)) | (numbers > self._high // factor)
            numbers = np.where(bad, 0, numbers) * factor
        elif self._divisor > 1:
            numbers, rest = np.divmod(numbers, self._divisor)
            bad |= rest != 0
        if self._low > _LONG_MIN:
            bad |= (numbers < self._low) | (numbers > self._high)
        if self._step > 1:
            bad |= numbers % self._step != 0
        return with_nulls(np.ascontiguousarray(numbers), nulls, self.arrow), bad if bad.any() else None


class TimeConverter(_CountConverter):
    """TIME(p): milliseconds of the day."""

    def __init__(self, data_type: ScalarType, dialect: Dialect, fact: Fact | None) -> None:
        super().__init__(data_type, dialect, fact, digits=3)
        self._low, self._high = 0, _DAY_MILLIS - 1

    def _text(self, text: str) -> int | None:
        found = _ISO_TIME.fullmatch(text)
        if not found:
            return None
        hours, minutes, seconds, fraction = found.groups()
        return ((int(hours) * 60 + int(minutes)) * 60 + int(seconds or 0)) * 1000 + int((fraction or "").ljust(3, "0"))


class TimestampConverter(_CountConverter):
    """TIMESTAMP and TIMESTAMP_LTZ: microseconds since 1970, nanoseconds beyond six digits."""

    def __init__(self, data_type: ScalarType, dialect: Dialect, fact: Fact | None) -> None:
        self._is_nanos = (data_type.precision or 0) > 6
        super().__init__(data_type, dialect, fact, digits=9 if self._is_nanos else 6)
        if not self._is_nanos:
            self._low, self._high = _MICRO_MIN, _MICRO_MAX
        year = _NANO_YEAR if self._is_nanos else _YEAR
        self._plain = f"^{year}-{_MONTH_DAY}[T ]{_CLOCK}(?:[.][0-9]{{1,{self._digits}}})?Z?$"

    def _text(self, text: str) -> int | None:
        found = _ISO_STAMP.fullmatch(text)
        if not found:
            return None
        day, clock, fraction, zone = found.groups()
        fraction = (fraction or "").rstrip("0")
        if len(fraction) > self._digits:
            return None
        minutes = 0
        if zone and zone != "Z":
            hours, rest = int(zone[1:3]), int(zone[4:])
            minutes = (hours * 60 + rest) * (1 if zone[0] == "+" else -1)
            if rest > 59 or abs(minutes) > _ZONE_MINUTES_MAX:
                return None
        try:
            seconds = (datetime.fromisoformat(f"{day}T{clock or '00:00:00'}") - _EPOCH) // _MICRO // 1_000_000
        except ValueError:
            return None
        parts = int(fraction.ljust(self._digits, "0") or "0")
        micros = (seconds - minutes * 60) * 10**self._digits + parts
        return micros if _MICRO_MIN <= micros // 10 ** (self._digits - 6) <= _MICRO_MAX else None

    def _convert_texts(self, values: Values) -> Converted:
        texts = pa.array(values, pa.string())
        array, bad = partly(values, texts, self._plain, self._cast_stamps, self.one_by_one)
        counts = array.view(pa.int64())
        nulls = null_mask(counts)
        numbers = counts.fill_null(0).to_numpy(zero_copy_only=False)
        odd = numbers % self._step != 0
        if self._low > _LONG_MIN:
            odd |= (numbers < self._low) | (numbers > self._high)
        odd &= ~nulls
        if bad is not None:
            odd |= bad
        return array, odd if odd.any() else None

    def _cast_stamps(self, texts: pa.Array) -> pa.Array:
        """Texts of the plain form; the zone of the carrier's type is a label only."""
        stamps = pc.utf8_rtrim(texts, "Z").cast(pa.timestamp("ns" if self._is_nanos else "us"))
        return stamps.view(pa.int64()).view(self.arrow)
