"""How option values are spelled: sizes, durations, numbers, booleans, name lists, maps.

| kind | examples | rule |
|---|---|---|
| size | `64 mb`, `128k`, `1 gibibytes`, `1024` | bytes without a unit; units are powers of 1024, any case |
| duration | `1 h`, `10 min`, `5 seconds`, `250` | milliseconds without a unit, any case |
| boolean | `true`, `FALSE` | nothing else |
| map | `0:avro,5:parquet` | pairs separated by commas, key and value by a colon |

Parsers raise ValueError; `freshet.storage.options.core` adds the name of the option.

Source: FORMAT.md §15.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.options.secrets import shown_option

T = TypeVar("T")

LONG_MAX: Final = 9223372036854775807
INT_MAX: Final = 2147483647

_NUMBER_AND_UNIT: Final = re.compile(r"([0-9]+)\s*(.*)", re.DOTALL)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_SIZE_UNITS: Final = {
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1024),
    **dict.fromkeys(("m", "mb", "mebibytes"), 1024**2),
    **dict.fromkeys(("g", "gb", "gibibytes"), 1024**3),
    **dict.fromkeys(("t", "tb", "tebibytes"), 1024**4),
}
_DURATION_UNITS_NS: Final = {
    **dict.fromkeys(("d", "day", "days"), 86_400 * 10**9),
    **dict.fromkeys(("h", "hour", "hours"), 3_600 * 10**9),
    **dict.fromkeys(("min", "m", "minute", "minutes"), 60 * 10**9),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 10**9),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 10**6),
    **dict.fromkeys(("µs", "micro", "micros", "microsecond", "microseconds"), 10**3),
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1),
}


def parse_size_bytes(text: str) -> int:
    """Bytes of a memory size."""
    return _with_unit(text, _SIZE_UNITS, "a size such as 64 mb")


def parse_duration_ms(text: str) -> int:
    """Milliseconds of a duration, cut."""
    return _with_unit(text, _DURATION_UNITS_NS, "a duration such as 1 h") // 10**6


def parse_int(text: str) -> int:
    """A 32-bit number."""
    return _bounded(text, INT_MAX)


def parse_long(text: str) -> int:
    """A 64-bit number."""
    return _bounded(text, LONG_MAX)


def option_text(value: object) -> str:
    """An option's value as schema files hold it: true and false in lower case, numbers as typed."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def option_texts(options: Mapping[str, object] | None) -> dict[str, str]:
    """Options as a caller gives them, as text; `InvalidRequestError` where they are not keys with values."""
    if not isinstance(options, Mapping | None) or not all(isinstance(key, str) for key in options or ()):
        raise InvalidRequestError(f"options are keys with values such as {{'bucket': 4}}, not {_shape(options)}")
    return {key: option_text(value) for key, value in (options or {}).items()}


def _shape(options: object) -> str:
    """What was given instead, without values: one of them may be a secret."""
    if not isinstance(options, Mapping):
        return f"a value of type {type(options).__name__}"
    return "keys of type " + ", ".join(sorted({type(key).__name__ for key in options if not isinstance(key, str)}))


def parse_bool(text: str) -> bool:
    """true or false, in any case."""
    match text.upper():
        case "TRUE":
            return True
        case "FALSE":
            return False
    raise ValueError("expected true or false")


def parse_names(text: str) -> tuple[str, ...]:
    """Column names separated by commas, blanks around them cut."""
    return tuple(name.strip() for name in text.split(",")) if text.strip() else ()


def split_names(text: str) -> tuple[str, ...]:
    """Column names separated by commas, blanks and all; empty ones at the end do not count: so reads the format."""
    return tuple(text.rstrip(",").split(",")) if text.strip(",") or not text else ()


def parse_map(text: str) -> dict[str, str]:
    """Pairs `key:value` separated by commas."""
    pairs = [item.split(":") for item in text.split(",") if item.strip()]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("expected key:value pairs separated by commas, such as 0:avro,5:parquet")
    return {key.strip(): value.strip() for key, value in pairs}


def parse_file_prefix(text: str) -> str:
    """How names of files begin: within their folder, whoever wrote the option."""
    if "/" in text or not text.isprintable() or not text.strip():
        raise ValueError("it becomes part of a file's name")
    return text


def parse_folder(text: str) -> str:
    """Folders below another one; a slash behind them is cut."""
    folder = text.removesuffix("/")
    if not all(part.strip(". ") and part.isprintable() for part in folder.split("/")):
        raise ValueError("expected folders below the table's, such as data or data/files")
    return folder


def parse_levels(text: str) -> dict[str, str]:
    """Pairs `level:value` separated by commas."""
    pairs = parse_map(text)
    if not all(map(_INTEGER.fullmatch, pairs)):
        raise ValueError("expected level:value pairs separated by commas, such as 0:avro,5:parquet")
    return {str(int(level)): value for level, value in pairs.items()}


def _bounded(text: str, limit: int) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError("expected a whole number")
    value = int(text)
    if not -limit - 1 <= value <= limit:
        raise ValueError(f"expected a number up to {limit}")
    return value


def _with_unit(text: str, units: dict[str, int], expected: str) -> int:
    match = _NUMBER_AND_UNIT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected {expected}")
    unit = match[2].strip().lower()
    if unit not in units:
        raise ValueError(f"expected {expected}; the unit {unit!r} is none of {', '.join(u for u in units if u)}")
    return int(match[1]) * units[unit]


def parsed_option(options: Mapping[str, str], key: str, parse: Callable[[str], T], default: T) -> T:
    """The value of an option, or `default` where it is not given; what cannot be read is refused with the key."""
    if key not in options:
        return default
    try:
        return parse(options[key])
    except ValueError as error:
        raise InvalidRequestError(f"option {key}={shown_option(key, options[key])}: {error}", option=key) from error
