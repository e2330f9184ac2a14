"""Computed columns of `sync`: functions of Apache Paimon's CDC actions over one column.

| function | type |
|---|---|
| year(c), month(c), day(c), hour(c), minute(c), second(c) | INT; of a DATE or TIMESTAMP, or of a text in ISO form |
| date_format(c, 'yyyy-MM-dd') | STRING; letters y M d H m s, others as they are |
| substring(c, begin[, end]) | STRING; from 0, the end not included |
| truncate(c, width) | the column's: of a text its first characters, of a whole number the multiple of the width below |
| upper(c), lower(c), trim(c) | STRING |
| cast(value, TYPE) | TYPE; a constant |

NULL gives NULL. Source: docs/content of Apache Paimon, cdc-ingestion/overview "Computed Functions".
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import DataType, ScalarType, TypeRoot, with_nullable
from freshet.storage.model.sql_type import parse_sql_type

_CALL: Final = re.compile(r"\s*([A-Za-z_]+)\s*\((.*)\)\s*", re.DOTALL)
_ARGUMENT: Final = re.compile(r"\s*('(?:[^']|'')*'|`[^`]+`|(?:[^,'`()]|\([^()]*\))+)\s*(,|$)")
PARTS: Final = ("year", "month", "day", "hour", "minute", "second")
TEXT_FUNCTIONS: Final = {"upper": "utf8_upper", "lower": "utf8_lower", "trim": "utf8_trim_whitespace"}
_FORMATS: Final = {"y": "%Y", "M": "%m", "d": "%d", "H": "%H", "m": "%M", "s": "%S"}
_WIDTHS: Final = {"y": 4}
_INTEGERS: Final = {TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT}
_TIMES: Final = {TypeRoot.DATE, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ}
_TEXT_ROOTS: Final = {TypeRoot.CHAR, TypeRoot.VARCHAR}
_READ_LATER: Final = {TypeRoot.TIME, TypeRoot.TIMESTAMP_LTZ, TypeRoot.BINARY, TypeRoot.VARBINARY}
"""Types whose constants are read in other forms than Arrow's: the decoder says what is none."""
STRING: Final = parse_sql_type("STRING")
INT: Final = parse_sql_type("INT")


class ComputedColumn(Frozen):
    """One call; `column` is None for a constant."""

    function: str
    column: str | None
    arguments: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> ComputedColumn:
        """Raises `ValueError` saying what is wrong."""
        match = _CALL.fullmatch(text)
        if match is None:
            raise ValueError(f"wants a function of a column such as year(created), not {text!r}")
        function, arguments = match[1].lower(), _arguments(match[2])
        if function == "cast":
            _want(function, arguments, 2, 2)
            _want_constant(arguments[0], parse_sql_type(arguments[1]))
            return cls(function, None, tuple(arguments))
        least, most = {"date_format": (2, 2), "substring": (2, 3), "truncate": (2, 2)}.get(function, (1, 1))
        if function not in (*PARTS, *TEXT_FUNCTIONS, "date_format", "substring", "truncate"):
            raise ValueError(f"there is no function {match[1]}; known are {', '.join(FUNCTIONS)}")
        _want(function, arguments, least, most)
        if function == "date_format":
            strftime_pattern(arguments[1])
        if function in ("substring", "truncate") and not all(each.strip().isdecimal() for each in arguments[1:]):
            raise ValueError(f"{function} wants whole numbers behind the column")
        if function == "truncate" and not int(arguments[1]):
            raise ValueError("truncate wants a width above 0")
        if "(" in arguments[0]:
            raise ValueError(f"{function} wants a column, not {arguments[0]}: functions are not nested")
        return cls(function, arguments[0], tuple(arguments[1:]))

    def type_over(self, data_type: DataType | None) -> DataType:
        """The type of the result over a column of this type. Raises `ValueError` where the function has none."""
        root = None if data_type is None else data_type.root
        if self.function == "cast":
            return with_nullable(parse_sql_type(self.arguments[1]), True)
        if self.function in (*PARTS, "date_format"):
            if root not in _TIMES | _TEXT_ROOTS:
                raise ValueError(f"{self.function} wants a date or a time, and {self.column} is {data_type}")
            return STRING if self.function == "date_format" else INT
        if self.function == "truncate":
            if root not in _INTEGERS | _TEXT_ROOTS:
                raise ValueError(f"truncate wants a text or a whole number, and {self.column} is {data_type}")
            assert data_type is not None
            return with_nullable(data_type, True)
        if root not in _TEXT_ROOTS:
            raise ValueError(f"{self.function} wants a text, and {self.column} is {data_type}")
        return STRING


FUNCTIONS: Final = (*PARTS, "date_format", "substring", "truncate", *TEXT_FUNCTIONS, "cast")


def _arguments(text: str) -> list[str]:
    found, start = [], 0
    while start < len(text):
        match = _ARGUMENT.match(text, start)
        if match is None:
            raise ValueError(f"cannot be read: {text[start:]!r}")
        found.append(_unquoted(match[1].strip()))
        start = match.end()
    return found


def _unquoted(text: str) -> str:
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    return text.strip("`")


def _want(function: str, arguments: list[str], least: int, most: int) -> None:
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"{least} or {most}"
        raise ValueError(f"{function} wants {wanted} arguments, not {len(arguments)}")


def _want_constant(text: str, data_type: DataType) -> None:
    if not isinstance(data_type, ScalarType):
        raise ValueError(f"cast gives numbers, texts, dates and times, not {data_type}")
    if data_type.root in _READ_LATER:
        return
    try:
        pa.array([text]).cast(arrow_type(data_type))
    except pa.ArrowInvalid as error:
        raise ValueError(f"cast wants a constant of type {data_type}, not {text!r}") from error


def strftime_pattern(pattern: str) -> str:
    """A pattern of Java's for Arrow. Raises `ValueError` for letters that are not taken."""
    found = []
    if pattern.count("'") % 2:
        raise ValueError(f"date_format has a quote that does not end: {pattern}")
    for match in re.finditer(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']", pattern):
        letter = match[2]
        if letter is None:
            plain = match[0] if match[1] is None else match[1].replace("''", "'") or "'"
            found.append(plain.replace("%", "%%"))
            continue
        if letter not in _FORMATS or len(match[0]) != _WIDTHS.get(letter, 2):
            raise ValueError(f"date_format takes yyyy MM dd HH mm ss, not {match[0]}")
        found.append(_FORMATS[letter])
    return "".join(found)
