"""The page of PostgreSQL's types and of the columns that they become (`tests.docs.reference`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from freshet.pipeline.postgres.source_types import NO_MODIFIER, TYPES, USER_TYPES, PostgresType, SourceType

INTRODUCTION: Final = """\
# Types of PostgreSQL

This page is made from the code (`make reference`); do not edit it. A test copies and streams values of each line from
a real server.

A column of the lake has a type that holds every value of the source exactly, or it is a STRING with the text that
PostgreSQL prints. A few values have no place in an exact type, such as `infinity` in a date: the row is a dead letter
that names the column, and no other value takes its place. The initial copy and the changes after it are read as the
same texts, by the same code.

Settings of the server, of the role or of the database (`DateStyle`, `IntervalStyle`, `TimeZone`, `bytea_output`,
`extra_float_digits`, `lc_monetary`) change nothing: Freshet's sessions have their own.

A table that is there already, or a `select`, may give a column another type. Its values are then read from the same
texts: `12` into BIGINT or DOUBLE, an instant into TIMESTAMP (in UTC), a timestamp into STRING. What does not fit that
type exactly is a dead letter.

| PostgreSQL | column | |
|---|---|---|
"""
SAMPLES: Final = {
    "numeric": {"(14,4)": ((14 << 16) + 4) + 4, "": NO_MODIFIER},
    "time": {"(3)": 3, "": NO_MODIFIER},
    "timestamp": {"": NO_MODIFIER, "(3)": 3},
    "timestamptz": {"": NO_MODIFIER, "(3)": 3},
}
"""Modifiers that the page shows of types whose column depends on them."""


def markdown() -> str:
    """The page."""
    plain = [each.name for each in TYPES if _is_plain(each)]
    lines = [*_lines(), f"| {_code(plain)} | `STRING` | |"]
    lines += [f"| {name} | {_shown(column)} | {why} |" for name, column, why in USER_TYPES]
    return INTRODUCTION + "\n".join(lines) + "\n"


def _lines() -> Iterator[str]:
    for each in TYPES:
        if not _is_plain(each):
            for written, modifier in SAMPLES.get(each.name, {"": NO_MODIFIER}).items():
                yield f"| `{each.name}{written}` | `{SourceType(each, modifier).sql_type}` | {each.why} |"


def _is_plain(each: PostgresType) -> bool:
    return each.column == "STRING" and not each.why


def _shown(column: str) -> str:
    return f"`{column}`" if column.isupper() and " " not in column else column


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
