"""How commands print: tables and JSON on standard output, messages on standard error."""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

import orjson
from rich.cells import cell_len

from freshet.storage.model.display import age_text, ids_text, printable, printable_lines, rfc3339, time_text

_LEFT: Final = "<"
_OURS: Final = "freshet: "
_RIGHT: Final = ">"
_IN_UTC: Final = "(UTC)"
_NO_READER: Final = "the program that read standard output has ended; run again with one that stays, or into a file"


def say(text: str) -> None:
    """A line on standard output, at once; by one write, so that lines of several threads do not mix."""
    try:
        print(f"{printable_lines(text)}\n", end="", flush=True)
    except BrokenPipeError as error:
        raise BrokenPipeError(error.errno, _NO_READER) from error


def complain(text: str) -> None:
    """A message on standard error, marked as ours; no other line of it is."""
    shown = printable_lines(text).replace(f"\n{_OURS}", f"\n  {_OURS}")
    print(f"{_OURS}{shown}\n", end="", file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """One JSON document, indented for people."""
    print(_json(value, orjson.OPT_INDENT_2))


def json_line(value: object) -> str:
    """One JSON document on one line."""
    return _json(value)


def _json(value: object, option: int = 0) -> str:
    try:
        return orjson.dumps(value, default=json_value, option=option | orjson.OPT_NON_STR_KEYS).decode()
    except orjson.JSONEncodeError:  # names of files may have bytes that are no text
        return json.dumps(value, default=json_value, indent=2 if option else None)


def json_value(value: object) -> object:
    """What JSON has no form for: exact decimals as text, bytes as base64, intervals as text."""
    if isinstance(value, Decimal):
        return format(value, "f")  # every digit: str() writes a zero of scale 10 as 0E-10
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, int):
        return str(value)  # beyond 64 bits
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def print_columns(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = ()) -> None:
    """Rows below a header, each column as wide as its widest cell; columns named in `right` end at one edge."""
    numeric = set(right)
    lines = [list(header), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(cell_len(line[index]) for line in lines) for index in range(len(header))]
    sides = [_RIGHT if name in numeric else _LEFT for name in header]
    for line in lines:
        cells = (_padded(text, side, width) for text, side, width in zip(line, sides, widths, strict=True))
        print("  ".join(cells).rstrip())


def _padded(text: str, side: str, width: int) -> str:
    """Characters of East Asian scripts take two columns of a terminal, combining ones none."""
    blanks = " " * (width - cell_len(text))
    return blanks + text if side == _RIGHT else text + blanks


def print_facts(facts: Sequence[Mapping[str, Any]], *, as_json: bool, header: Mapping[str, str]) -> None:
    """A list of facts as JSON, or as columns; `header` maps the keys shown to their titles. Below a title with `(UTC)`
    there are no zones."""
    if as_json:
        print_json(list(facts))
        return
    numbers = [title for key, title in header.items() if facts and all(_is_number(fact.get(key)) for fact in facts)]
    cells = [[_cell(fact.get(key), title) for key, title in header.items()] for fact in facts]
    print_columns(list(header.values()), cells, right=numbers)


def latest_facts(snapshot: Any) -> dict[str, Any]:
    """What lists of tables and branches say of the newest snapshot of each, None where there is none."""
    return {
        "snapshot": None if snapshot is None else snapshot.id,
        "records": None if snapshot is None else snapshot.total_record_count,
        "time": None if snapshot is None else rfc3339(snapshot.time_ms),
    }


def since_text(time_ms: int) -> str:
    """`2026-11-29 08:00:00 UTC (2.5 h ago)`."""
    return f"{time_text(time_ms)} ({age_text(int(time.time() * 1000) - time_ms)} ago)"


def in_snapshots(ids: Sequence[int]) -> str:
    """`in snapshot 3`, `in snapshots 3 to 5, 8`."""
    return f"in snapshot{'' if len(ids) == 1 else 's'} {ids_text(ids)}"


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: object, title: str) -> str:
    if value is None:
        return "-"
    if title.endswith(_IN_UTC):
        return str(value)[:19].replace("T", " ")
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
