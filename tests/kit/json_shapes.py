"""The forms of JSON output, read from the page that documents them, and what of a value is not of its form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json-output.md"
_SECTION = re.compile(r"^### (.+?)$(.*?)^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


@cache
def json_shapes() -> dict[str, Any]:
    """The form of each call that the page names, such as `freshet repair lost-commit`."""
    found: dict[str, Any] = {}
    for heading, _, text in _SECTION.findall(PAGE.read_text()):
        for name in re.findall(r"`([^`]+)`", heading):
            found[name] = json.loads(text)
    return found


def shape_of(arguments: Sequence[str]) -> Any | None:
    """The form of what a call prints: of the names whose words it has, the one of most words."""
    words = ["freshet", *arguments]
    names = [name for name in json_shapes() if name.split()[:2] == words[:2] and set(name.split()) <= set(words)]
    return json_shapes()[max(names, key=lambda name: len(name.split()))] if names else None


def misfits(value: Any, shape: Any) -> list[str]:
    """Where a value is not of a form, and what is there instead."""
    return list(_misfits(value, shape, "$"))


def _misfits(value: Any, shape: Any, place: str) -> Iterator[str]:
    match shape:
        case str():
            if not any(_is_a(value, each) for each in shape.split(" or ")):
                yield f"{place}: {value!r} is no {shape}"
        case [item]:
            if not isinstance(value, list):
                yield f"{place}: {value!r} is no list"
            else:
                for number, each in enumerate(value):
                    yield from _misfits(each, item, f"{place}[{number}]")
        case {"null or": inner}:
            if value is not None:
                yield from _misfits(value, inner, place)
        case dict():
            yield from _misfits_of_object(value, shape, place)


def _misfits_of_object(value: Any, shape: dict[str, Any], place: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{place}: {value!r} is no object"
        return
    wild = next((key for key in shape if key.startswith("<")), None)
    named = shape.keys() - {wild}
    if missing := named - value.keys():
        yield f"{place}: lacks {sorted(missing)}"
    if wild is None and (more := value.keys() - named):
        yield f"{place}: has also {sorted(more)}"
    for key, each in value.items():
        if key in named or wild is not None:
            yield from _misfits(each, shape[key] if key in named else shape[str(wild)], f"{place}.{key}")


def _is_a(value: Any, kind: str) -> bool:
    match kind:
        case "null":
            return value is None
        case "text":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "time":
            return isinstance(value, str) and bool(_TIME.fullmatch(value)) and bool(datetime.fromisoformat(value))
        case "anything":
            return True
    raise AssertionError(f"the page knows no {kind!r}")
