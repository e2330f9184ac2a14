"""JSON as the careful path reads it: exact numbers, the last of several members of one name, nothing but strict JSON.

A value is None, a bool, a `str`, a `JsonNumber` (the text of a number as the record has it), a list or a dict. Records
that are not JSON have values of the same form; their bytes are `Octets`.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

JsonValue = Any

STRING, INT, NUMBER, BOOL, NESTED = "string", "int", "number", "bool", "nested"
"""Kinds of values; `INT` is a number without point and exponent."""
ALL_KINDS: Final = frozenset({STRING, INT, NUMBER, BOOL, NESTED})


class JsonNumber(str):
    """The text of a number."""

    __slots__ = ()


class Octets(str):
    """Bytes of a format that has them, in base64."""

    __slots__ = ()


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_float=JsonNumber, parse_int=JsonNumber, parse_constant=_refuse)


def parse_json(text: str) -> JsonValue:
    """The value of a text; raises `ValueError` (no JSON) or `RecursionError` (nested about a thousand deep)."""
    return _DECODER.decode(text)


def kind_of(value: JsonValue) -> str:
    """The kind of a value that is not null."""
    if isinstance(value, JsonNumber):
        return INT if value.lstrip("-").isdecimal() else NUMBER
    if isinstance(value, str):
        return STRING
    return BOOL if isinstance(value, bool) else NESTED


def text_of(value: JsonValue) -> str | None:
    """A value as text: strings and numbers as they are, objects and arrays as compact JSON; None for null."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return compact_json(value)


def encodable(text: str) -> str:
    """The text with `?` in place of what UTF-8 cannot write: lone surrogates."""
    return text.encode(errors="replace").decode()


def compact_json(value: JsonValue) -> str:
    """The JSON of a value without blanks, numbers as they were written, however deep it is nested."""
    written: list[str] = []
    left = [value]
    while left:
        match left.pop():
            case JsonNumber() as text:
                written.append(text)
            case list() as items:
                written.append("[")
                left.append(_AS_IT_IS("]"))
                for number, item in reversed(list(enumerate(items))):
                    left += (item, _AS_IT_IS(",")) if number else (item,)
            case dict() as members:
                written.append("{")
                left.append(_AS_IT_IS("}"))
                for number, (name, item) in reversed(list(enumerate(members.items()))):
                    left += (item, _AS_IT_IS(f"{',' if number else ''}{json.dumps(name, ensure_ascii=False)}:"))
            case other:
                written.append(json.dumps(other, ensure_ascii=False))
    return "".join(written)


_AS_IT_IS: Final = JsonNumber
"""Marks what stands between values, too: it is written without quotes."""
