"""How sizes, times, ids and names are shown to people."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED: Final = re.compile(
    "alter|and|any|as|between|case|create|cross|distinct|drop|else|except|fetch|for|from|glob|grant|having|ilike|inner|"
    "insert|intersect|into|join|lateral|like|minus|not|notnull|on|or|outer|qualify|regexp|returning|revoke|rlike|"
    "rollback|select|tablesample|then|uncache|union|using|values|when|where|with|xor",
    re.IGNORECASE,
)


def size_text(size_bytes: int) -> str:
    """Bytes in the largest unit that leaves a number above one."""
    size = float(size_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"


def time_text(time_ms: int) -> str:
    """A wall clock time in UTC, to the second; milliseconds where no calendar reaches."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"


def rfc3339(time_ms: int | None) -> str | None:
    """The same for programs, to the millisecond: `2026-11-29T10:04:45.000Z`; None where no calendar reaches."""
    try:
        moment = None if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return None if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def age_text(age_ms: int) -> str:
    """A span of time in the largest unit that leaves a number above one: `45 s`, `2.5 h`, `12 d`."""
    age = max(0, age_ms) / 1000
    for unit, size in (("s", 60), ("min", 60), ("h", 24)):
        if age < size:
            return f"{age:.0f} {unit}" if unit == "s" or age >= 10 else f"{age:.1f} {unit}"
        age /= size
    return f"{age:.0f} d" if age >= 10 else f"{age:.1f} d"


def ids_text(ids: Iterable[int]) -> str:
    """Ids in order, ranges of them in short: `1 to 4, 7`."""
    ranges: list[list[int]] = []
    for each in ids:
        if ranges and each == ranges[-1][1] + 1:
            ranges[-1][1] = each
        else:
            ranges.append([each, each])
    return ", ".join(f"{low}" if low == high else f"{low} to {high}" for low, high in ranges)


def sql_name(*parts: str) -> str:
    """A name as SQL takes it, such as that of a database and a table: in backticks what is no word, or one of SQL's."""
    return ".".join(
        each if _WORD.fullmatch(each) and not _RESERVED.fullmatch(each) else f"`{each.replace('`', '``')}`"
        for each in parts
    )


def shortened(text: str, size: int) -> str:
    """The text, its end left out where it has more characters than `size`."""
    return text if len(text) <= size else f"{text[: size - 1]}…"


def printable(text: str) -> str:
    """The text with control characters written as escapes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """The same, with lines as they are."""
    return "\n".join(map(printable, text.split("\n")))


def one_line(text: str) -> str:
    """The text on one line, with control characters written as escapes."""
    return printable(" ".join(text.split()))


def plural(number: int, noun: str) -> str:
    """`1 file`, `2 files`, `1,000 files`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
