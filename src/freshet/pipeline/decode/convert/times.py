"""Dates and times: numbers by their unit and ISO texts, into carriers.

| type name in the record's schema | unit |
|---|---|
| io.debezium.time.Date, org.apache.kafka.connect.data.Date | days |
| io.debezium.time.Time, .Timestamp, org.apache.kafka.connect.data.Time, .Timestamp | milliseconds |
| io.debezium.time.MicroTime, .MicroTimestamp | microseconds |
| io.debezium.time.NanoTime, .NanoTimestamp | nanoseconds |

| no schema, mode | TIME(p) | TIMESTAMP(p) |
|---|---|---|
| adaptive | p <= 3 milli, <= 6 micro, else nano | the same |
| adaptive_time_microseconds | micro | by p |
| connect | milli | milli |
| microseconds, nanoseconds | as named | as named |
| isostring | numbers are refused | numbers are refused |

Refused: dates outside years 1-9999 (1677-2262 for TIMESTAMP(7-9)), times outside one day, anything finer than the
declared precision; TIME finer than milliseconds, because the format stores those. A text of digits is no number: "2024"
is more likely a year than a count of days. A text without a zone is in UTC.

Source: Debezium's PostgreSQL and MySQL connector documentation, temporal types.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode.convert.converter import (
    LOST,
    Converted,
    Converter,
    FieldConversion,
    null_mask,
    partly,
    ranged,
    whole_array,
    with_nulls,
)
from freshet.pipeline.decode.dialect import Dialect, Fact
from freshet.pipeline.decode.json_value import INT, STRING, JsonNumber, JsonValue, text_of
from freshet.storage.model.data_type import ScalarType, TypeRoot

_UNITS: Final = {
    "io.debezium.time.Time": "ms", "io.debezium.time.Timestamp": "ms",
    "org.apache.kafka.connect.data.Time": "ms", "org.apache.kafka.connect.data.Timestamp": "ms",
    "io.debezium.time.MicroTime": "us", "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTime": "ns", "io.debezium.time.NanoTimestamp": "ns",
}  # fmt: skip
_DIGITS: Final = {"ms": 3, "us": 6, "ns": 9}

_DAY_MIN, _DAY_MAX = -719162, 2932896
"""0001-01-01 and 9999-12-31 in days since 1970."""
_MICRO_MIN, _MICRO_MAX = _DAY_MIN * 86_400_000_000, (_DAY_MAX + 1) * 86_400_000_000 - 1
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_DAY_MILLIS: Final = 86_400_000

_WHOLE: Final = re.compile(r"-?[0-9]{1,30}")
_ISO_DATE: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})Z?")
_ISO_TIME: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:[.]([0-9]{1,3})0*)?)?Z?")
_ISO_STAMP: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.]([0-9]+))?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
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


def unit_without_schema(data_type: ScalarType, mode: str) -> str | None:
    """`ms`, `us`, `ns`, or None when numbers are refused."""
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
        self._takes_numbers = dialect.numeric_times != "isostring" or fact is not None

    def one(self, value: JsonValue) -> Any:
        text = text_of(value) or ""
        if isinstance(value, JsonNumber):
            if not self._takes_numbers or not _WHOLE.fullmatch(text):
                return LOST
            days = int(text)
            return days if _DAY_MIN <= days <= _DAY_MAX else LOST
        found = _ISO_DATE.fullmatch(text)
        try:
            return (date.fromisoformat(found[1]) - _EPOCH.date()).days if found else LOST
        except ValueError:
            return LOST

    def conversion(self, kinds: frozenset[str]) -> FieldConversion:
        if kinds == {STRING} or (not self._takes_numbers and not kinds):
            return FieldConversion(str | None, self._convert_texts)
        if kinds <= {INT} and self._takes_numbers:
            days = Annotated[int, msgspec.Meta(ge=_DAY_MIN, le=_DAY_MAX)]
            return FieldConversion(
                days | None, lambda values: (whole_array(values, pa.int32()).view(pa.date32()), None)
            )
        return self.raw_conversion

    def of_array(self, array: Any) -> Converted | None:
        if not self._takes_numbers or not pa.types.is_integer(array.type):
            return None
        days, bad = ranged(array, _DAY_MIN, _DAY_MAX, pa.int32())
        return days.view(self.arrow), bad

    def _convert_texts(self, values: Sequence[Any]) -> Converted:
        return partly(values, pa.array(values, pa.string()), _PLAIN_DATE, _cast_dates, self.one_by_one)


def _cast_dates(texts: Any) -> Any:
    return pc.utf8_rtrim(texts, "Z").cast(pa.date32())


class _CountConverter(Converter):
    """What is stored as a count: numbers by a unit, texts by `_text`."""

    def __init__(self, data_type: ScalarType, dialect: Dialect, fact: Fact | None, digits: int) -> None:
        super().__init__(data_type)
        unit = _UNITS.get(fact.name) if fact is not None else None
        self._unit = unit or unit_without_schema(data_type, dialect.numeric_times)
        self._digits = digits
        self._step = 10 ** max(0, digits - (data_type.precision or 0))
        self._low, self._high = _LONG_MIN, _LONG_MAX

    def one(self, value: JsonValue) -> Any:
        text = text_of(value) or ""
        if isinstance(value, JsonNumber):
            return self._bounded(self._scaled(int(text))) if _WHOLE.fullmatch(text) and self._unit else LOST
        return self._bounded(self._text(text))

    def conversion(self, kinds: frozenset[str]) -> FieldConversion:
        if kinds == {STRING} or (not self._unit and not kinds):
            return FieldConversion(str | None, self._convert_texts)
        if kinds <= {INT} and self._unit:
            whole = Annotated[int, msgspec.Meta(ge=_LONG_MIN, le=_LONG_MAX)]
            return FieldConversion(whole | None, self._convert_numbers)
        return self.raw_conversion

    def _text(self, text: str) -> int | None:
        raise NotImplementedError

    def _convert_texts(self, values: Sequence[Any]) -> Converted:
        return self.one_by_one(values)

    def _scaled(self, number: int) -> int | None:
        assert self._unit is not None
        beyond = _DIGITS[self._unit] - self._digits
        if beyond <= 0:
            return number * 10**-beyond
        whole, rest = divmod(number, 10**beyond)
        return None if rest else whole

    def _bounded(self, count: int | None) -> Any:
        fits = count is not None and self._low <= count <= self._high and count % self._step == 0
        return count if fits else LOST

    def of_array(self, array: Any) -> Converted | None:
        return self._counts(array.cast(pa.int64())) if self._unit and pa.types.is_integer(array.type) else None

    def _convert_numbers(self, values: Sequence[Any]) -> Converted:
        return self._counts(whole_array(values, pa.int64()))

    def _counts(self, array: Any) -> Converted:
        nulls = null_mask(array)
        numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
        assert self._unit is not None
        beyond = _DIGITS[self._unit] - self._digits
        bad = nulls & False
        if beyond < 0:
            factor = 10**-beyond
            bad |= (numbers < -(-self._low // factor)) | (numbers > self._high // factor)
            numbers = np.where(bad, 0, numbers) * factor
        elif beyond > 0:
            factor = 10**beyond
            numbers, rest = np.divmod(numbers, factor)
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

    def _convert_texts(self, values: Sequence[Any]) -> Converted:
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

    def _cast_stamps(self, texts: Any) -> Any:
        """Texts of the plain form; the zone of the carrier's type is a label only."""
        stamps = pc.utf8_rtrim(texts, "Z").cast(pa.timestamp("ns" if self._is_nanos else "us"))
        return stamps.view(pa.int64()).view(self.arrow)
