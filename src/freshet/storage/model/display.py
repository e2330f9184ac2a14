"""How sizes, times, ids and names are shown to people."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime


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


def ids_text(ids: Iterable[int]) -> str:
    """Ids in order, ranges of them in short: `1 to 4, 7`."""
    ranges: list[list[int]] = []
    for each in ids:
        if ranges and each == ranges[-1][1] + 1:
            ranges[-1][1] = each
        else:
            ranges.append([each, each])
    return ", ".join(f"{low}" if low == high else f"{low} to {high}" for low, high in ranges)


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
