"""Times in texts of partitions: the formats that people give, and the one that is taken without.

A given format is a pattern of Java's `DateTimeFormatter`, read as Java reads it with its default (smart) resolver:

| letters | field | digits |
|---|---|---|
| `y`, `u` | year | `yy` two (2000 to 2099), `yyyy` four, any number of others at least as many |
| `M`, `L`, `d`, `H`, `m`, `s` | month, day, hour, minute, second | one letter: one or two, two letters: two |
| `S…` | fraction of a second | as many as letters |
| `'text'`, `''` | text, a quote | |
| `[ ]` | a part that may be missing | |
| other characters | themselves | |

A day after the end of its month is the last one, `24:00` is the next midnight, missing smaller units are 0, and a text
without an hour is a date: midnight. Other letters are refused.

Without a format `y-M-d` or `y-M-d H:m:s[.f]` is read, leniently: month 13 is January of the next year.

A time is in nanoseconds since 1970-01-01 00:00 of the zone that the text is in.

Source: FORMAT.md §12.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

import numpy as np

from freshet.storage.exceptions import InvalidRequestError

DAY_NS: Final = 86_400 * 10**9
_YEAR_MAX: Final = 999_999_999
_LENIENT: Final = re.compile(
    r"(?P<y>-?[0-9]{1,10})-(?P<M>[0-9]{1,2})-(?P<d>[0-9]{1,2})"
    r"(?: (?P<H>[0-9]{1,2}):(?P<m>[0-9]{1,2}):(?P<s>[0-9]{1,2})(?:\.(?P<S>[0-9]{1,9}))?)?"
)
_TOKEN: Final = re.compile(r"(?P<letters>([A-Za-z])\2*)|'(?P<quoted>(?:[^']|'')*)'|(?P<plain>[^A-Za-z'])|(?P<bad>')")
_FIELDS: Final[Mapping[str, str]] = {"u": "y", "L": "M"}
_RANGES: Final[Mapping[str, tuple[int, int]]] = {"M": (1, 12), "d": (1, 31), "H": (0, 24), "m": (0, 59), "s": (0, 59)}


class TimeFormat:
    """One format."""

    def __init__(self, pattern: str, expression: re.Pattern[str]) -> None:
        self.pattern = pattern
        self._expression = expression

    def parse(self, text: str) -> int | None:
        """The time of a text in nanoseconds; None for one that is not of the format."""
        match = self._expression.fullmatch(text)
        if match is None:
            return None
        fields: dict[str, int] = {}
        for name, digits in match.groupdict().items():
            if digits is None:
                continue
            field, value = name[0], _value(name, digits)
            if fields.setdefault(field, value) != value:
                return None
        return _smart(fields)


@lru_cache(256)
def time_format(pattern: str) -> TimeFormat:
    """The format of a pattern; `ValueError` for one that is not understood."""
    return TimeFormat(pattern, re.compile("".join(_parts(pattern))))


def check_time_format(pattern: str) -> None:
    """Raises `InvalidRequestError` for a pattern of `partition.timestamp-formatter` that is not understood."""
    try:
        time_format(pattern)
    except ValueError as error:
        key = "partition.timestamp-formatter"
        raise InvalidRequestError(f"option {key} cannot be used: {error}", option=key) from error


def lenient_time(text: str) -> int | None:
    """The time of a text without a format, in nanoseconds; None for one that is none."""
    match = _LENIENT.fullmatch(text)
    if match is None or abs(int(match["y"])) > _YEAR_MAX:
        return None
    month = 12 * int(match["y"]) + int(match["M"]) - 1
    day = _epoch_day(month // 12, month % 12 + 1) + int(match["d"]) - 1
    seconds = 3600 * int(match["H"] or 0) + 60 * int(match["m"] or 0) + int(match["s"] or 0)
    return day * DAY_NS + seconds * 10**9 + int((match["S"] or "0").ljust(9, "0"))


def _parts(pattern: str) -> Iterator[str]:
    depth = 0
    for number, token in enumerate(_TOKEN.finditer(pattern)):
        if token["bad"] is not None:
            raise ValueError(f"{pattern!r} has a quote without its end")
        if token["letters"] is not None:
            yield _field(token["letters"], number, pattern)
        elif token["quoted"] is not None:
            yield re.escape(token["quoted"].replace("''", "'") or "'")
        elif token["plain"] == "[":
            depth += 1
            yield "(?:"
        elif token["plain"] == "]":
            depth -= 1
            if depth < 0:
                raise ValueError(f"{pattern!r} has ] without [")
            yield ")?"
        elif token["plain"] in "{}#":
            raise ValueError(f"{pattern!r} has {token['plain']!r}, which is reserved")
        else:
            yield re.escape(token["plain"])
    yield ")?" * depth


def _field(letters: str, number: int, pattern: str) -> str:
    letter, count = letters[0], len(letters)
    field = _FIELDS.get(letter, letter)
    if field == "y":
        digits = {1: "{1,10}", 2: "{2}", 3: "{3,10}"}.get(count, f"{{{count}}}")
        return f"(?P<y{'_' if count == 2 else ''}{number}>[0-9]{digits})"
    if field == "S":
        if count > 9:
            raise ValueError(f"{pattern!r} has more than 9 digits of a second")
        return f"(?P<S{number}>[0-9]{{{count}}})"
    if field not in _RANGES or count > 2:
        raise ValueError(f"{pattern!r} has {letters!r}; understood are y, u, M, d, H, m, s and S, as numbers")
    return f"(?P<{field}{number}>[0-9]{{{'1,2' if count == 1 else '2'}}})"


def _value(name: str, digits: str) -> int:
    if name[0] == "S":
        return int(digits.ljust(9, "0"))
    return int(digits) + (2000 if name.startswith("y_") else 0)


def _smart(fields: Mapping[str, int]) -> int | None:
    if not {"y", "M", "d"} <= fields.keys() or not 1 <= fields["y"] <= _YEAR_MAX:
        return None
    if any(not low <= fields[field] <= high for field, (low, high) in _RANGES.items() if field in fields):
        return None
    year, month = fields["y"], fields["M"]
    day = _epoch_day(year, month) + min(fields["d"], _month_days(year, month)) - 1
    parts = [fields.get(field) for field in "HmsS"]
    given = [part is not None for part in parts]
    if not given[0] or given != sorted(given, reverse=True):
        return day * DAY_NS
    hour, minute, second, nanos = (part or 0 for part in parts)
    if hour == 24 and (minute or second or nanos):
        return None
    return day * DAY_NS + (3600 * hour + 60 * minute + second) * 10**9 + nanos


def _month_days(year: int, month: int) -> int:
    return monthrange(2000 + year % 400, month)[1]


def _epoch_day(year: int, month: int) -> int:
    """Days since 1970 of the first day of a month, in the proleptic Gregorian calendar."""
    return int(np.datetime64(12 * (year - 1970) + month - 1, "M").astype("M8[D]").astype(np.int64))
