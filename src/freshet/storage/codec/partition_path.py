"""The folder of a partition, derived from the partition row of the manifest.

    path = esc(name)=esc(text) joined by "/", in the order of the partition keys

| type | text, `partition.legacy-name=true` (default) | text, legacy false |
|---|---|---|
| BOOLEAN | true / false | same |
| integers, DECIMAL | decimal digits, `1.50` | same |
| FLOAT, DOUBLE | shortest form; below 1e-3 and from 1e7 as `1.0E7` | same |
| DATE | epoch day, `19675` | `2023-11-14` |
| TIME | milliseconds of the day | `01:01:01.123`; for p > 0 trailing zeros are cut to one digit |
| TIMESTAMP | `2023-11-14T22:13:20.123456`; 0, 3, 6, 9 digits, no `:00` seconds | `2023-11-14 22:13:20.000`, p digits |
| TIMESTAMP_LTZ | the same, in UTC | depends on the session zone of each writer: refused |
| CHAR, VARCHAR | as is | as is |

Null, the empty string and strings of whitespace only share the folder `partition.default-name`. Whitespace is 0x09 to
0x0D, 0x1C to 0x1F and the Unicode space, line and paragraph separators without U+00A0, U+2007 and U+202F. Readers
derive the folder as well, so it must be exact; the text is never parsed back.

FLOAT and DOUBLE texts are the shortest that read back as the same number. Java before 19 prints a few numbers with one
digit more (2.0E-44 for example); a partition by such a number has another folder there.

Source: FORMAT.md §1.2.
"""

from __future__ import annotations

import datetime
import math
import unicodedata
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np

from freshet.storage.codec.binary_row import EPOCH_DAY_ORDINAL, decode_row, ticks_per_second
from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.model.data_type import DataType, ScalarType, TypeRoot
from freshet.storage.paths import DEFAULT_PARTITION_NAME, escape_path_name

_NO_BREAK_SPACES = frozenset("\u00a0\u2007\u202f")
_CONTROL_SPACES = frozenset("\t\n\v\f\r\x1c\x1d\x1e\x1f")


@lru_cache(maxsize=65536)
def partition_path(
    partition: bytes,
    names: tuple[str, ...],
    types: tuple[DataType, ...],
    default_name: str = DEFAULT_PARTITION_NAME,
    legacy: bool = True,
) -> str:
    """Path of a partition below the data root, without slashes around it; empty for an unpartitioned table."""
    values = decode_row(partition, types)
    return "/".join(
        folder_name(name, partition_text(value, data_type, default_name, legacy))
        for name, value, data_type in zip(names, values, types, strict=True)
    )


def folder_name(column: str, text: str) -> str:
    """Name of the folder of one partition key; `text` is that of its value."""
    return f"{escape_path_name(column)}={escape_path_name(text)}"


def partition_text(
    value: Any, data_type: DataType, default_name: str = DEFAULT_PARTITION_NAME, legacy: bool = True
) -> str:
    """Unescaped text of one partition value, given as `decode_row` returns it."""
    if value is None:
        return default_name
    text = _value_text(value, data_type, legacy)
    return default_name if all(_is_whitespace(char) for char in text) else text


def check_partition_types(names: Sequence[str], types: Sequence[DataType], legacy: bool) -> None:
    """Refuses partition columns whose folder names are not known for certain."""
    for name, data_type in zip(names, types, strict=True):
        if data_type.root is TypeRoot.TIMESTAMP_LTZ and not legacy:
            raise _session_zone_error(name)


def _session_zone_error(name: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"partition column {name} of type TIMESTAMP WITH LOCAL TIME ZONE with partition.legacy-name=false: its folder "
        "names depend on the time zone of each writer's session; use partition.legacy-name=true or another column type",
        column=name,
    )


def _is_whitespace(char: str) -> bool:
    if char in _CONTROL_SPACES:
        return True
    return unicodedata.category(char) in ("Zs", "Zl", "Zp") and char not in _NO_BREAK_SPACES


def _value_text(value: Any, data_type: DataType, legacy: bool) -> str:
    assert isinstance(data_type, ScalarType)
    match data_type.root:
        case TypeRoot.BOOLEAN:
            return "true" if value else "false"
        case TypeRoot.FLOAT:
            return float_text(np.float32(value))
        case TypeRoot.DOUBLE:
            return float_text(np.float64(value))
        case TypeRoot.DECIMAL:
            return format(value, "f") if isinstance(value, Decimal) else str(value)
        case TypeRoot.DATE:
            day = value.toordinal() - EPOCH_DAY_ORDINAL if isinstance(value, datetime.date) else int(value)
            return str(day) if legacy else _date_text(day, _four_digit_year)
        case TypeRoot.TIME:
            return str(value) if legacy else _time_text(int(value), data_type.precision or 0)
        case TypeRoot.TIMESTAMP:
            return _timestamp_text(int(value), data_type.precision or 0, legacy)
        case TypeRoot.TIMESTAMP_LTZ:
            if not legacy:
                raise _session_zone_error("of the table")
            return _timestamp_text(int(value), data_type.precision or 0, legacy)
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            raise UnsupportedFeatureError(f"partition column of type {data_type}: its folder name is not defined")
        case TypeRoot.TINYINT | TypeRoot.SMALLINT | TypeRoot.INT | TypeRoot.BIGINT | TypeRoot.CHAR | TypeRoot.VARCHAR:
            return str(value)
    raise AssertionError(f"{data_type} has no text in folder names")


def float_text(value: np.float32 | np.float64) -> str:
    """A number as Java prints it: plain from 1e-3 to below 1e7, else one digit, a fraction and an exponent."""
    if math.isnan(value):
        return "NaN"
    size = abs(float(value))
    if math.isinf(size):
        return "Infinity" if value > 0 else "-Infinity"
    if size == 0 or 1e-3 <= size < 1e7:
        return np.format_float_positional(value, unique=True, trim="0")
    mantissa, exponent = np.format_float_scientific(value, unique=True, trim="0").split("e")
    if len(mantissa.lstrip("-")) == 3:  # two digits at least, and then the nearest two: 4.9E-324, not 5.0E-324
        mantissa, exponent = f"{float(value):.1e}".split("e")
    return f"{mantissa}E{int(exponent)}"


def _date_text(day: int, year_text: Callable[[int], str]) -> str:
    year, month, day_of_month = _civil(day)
    return f"{year_text(year)}-{month:02}-{day_of_month:02}"


def _iso_year(year: int) -> str:
    if 0 <= year <= 9999:
        return f"{year:04}"
    return f"-{-year:04}" if year < 0 else f"+{year}"


def _four_digit_year(year: int) -> str:
    # Years outside 0..9999 lose their upper digits, and each digit of a negative one is taken below "0".
    digits = f"{abs(year) % 10_000:04}"
    return digits if year >= 0 else "".join(chr(ord("0") - int(digit)) for digit in digits)


def _time_text(millis: int, precision: int) -> str:
    seconds, fraction = divmod(millis, 1000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if precision == 0:
        return text
    digits = f"{fraction:03}"[:precision].rstrip("0") or "0"
    return f"{text}.{digits}"


def _timestamp_text(ticks: int, precision: int, legacy: bool) -> str:
    per_second = ticks_per_second(precision)
    epoch_seconds, rest = divmod(ticks, per_second)
    nanos = rest * (1_000_000_000 // per_second)
    day, second = divmod(epoch_seconds, 86_400)
    date = _date_text(day, _iso_year if legacy else _four_digit_year)
    hour, minute, second = second // 3600, second // 60 % 60, second % 60
    if not legacy:
        fraction = f".{nanos:09}"[: precision + 1] if precision else ""
        return f"{date} {hour:02}:{minute:02}:{second:02}{fraction}"
    text = f"{date}T{hour:02}:{minute:02}"
    if not second and not nanos:
        return text
    digits = f"{nanos:09}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{text}:{second:02}" + (f".{digits}" if digits else "")


def _civil(day: int) -> tuple[int, int, int]:
    """Year, month and day of an epoch day in the proleptic Gregorian calendar, without limits."""
    date = np.datetime64(day, "D")
    first = date.astype("M8[M]")
    year, month = divmod(int(first.astype(np.int64)), 12)
    return year + 1970, month + 1, int((date - first).astype(np.int64)) + 1
