"""Values of datums in the form that the careful path takes (`json_value`), by the node of their type.

| type | value |
|---|---|
| int, long, float, double | the number, by its shortest text; NaN and infinities as texts |
| decimal | the number, by its digits: never bytes or base64 |
| bytes, fixed | base64, marked as bytes: no `binary_handling_mode` is needed |
| uuid (fixed), enum | text |
| record, map; array | object; array |
| the union of null and others | the value, whichever branch it is in |

So a change is what it is in JSON with the schema next to it, and the same converters take it.
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import numpy as np

from freshet.pipeline.decode.avro.writer_schema import BRANCH, Node
from freshet.pipeline.decode.convert.decimals import UNSCALED_BYTES_MAX
from freshet.pipeline.decode.json_value import JsonNumber, JsonValue, Octets


class DatumError(ValueError):
    """What a datum holds is no value of its type."""


def value_of(node: Node, raw: Any) -> JsonValue:
    """The value of what a datum holds by the physical schema; raises `DatumError` where it is none of the type."""
    return None if raw is None else _READERS[node.kind](node, raw)


def decimal_text(octets: bytes, scale: int) -> str | None:
    """The digits of an unscaled number; None where there is none, or a number beyond all types."""
    if not 1 <= len(octets) <= UNSCALED_BYTES_MAX:
        return None
    unscaled = int.from_bytes(octets, "big", signed=True)
    digits = tuple(map(int, str(abs(unscaled))))
    return f"{Decimal((int(unscaled < 0), digits, -scale)):f}"


def float_text(number: float, single: bool) -> JsonValue:
    """A floating-point number by its shortest text."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    return JsonNumber(str(np.float32(number)) if single else repr(number))


def _number(node: Node, raw: int) -> JsonValue:
    return JsonNumber(raw)


def _octets(node: Node, raw: bytes) -> JsonValue:
    if node.scale is not None:
        text = decimal_text(raw, node.scale)
        if text is not None:
            return JsonNumber(text)
    if node.is_uuid:
        return str(UUID(bytes=raw))
    return Octets(binascii.b2a_base64(raw, newline=False).decode())


def _symbol(node: Node, raw: int) -> JsonValue:
    if not 0 <= raw < len(node.symbols):
        raise DatumError(f"an enum of {len(node.symbols)} symbols has none of index {raw}")
    return node.symbols[raw]


def _array(node: Node, raw: Any) -> JsonValue:
    assert node.item is not None
    return [value_of(node.item, each) for each in raw]


def _map(node: Node, raw: Any) -> JsonValue:
    assert node.item is not None
    pairs = raw.items() if isinstance(raw, Mapping) else raw  # Arrow gives pairs
    return {key: value_of(node.item, each) for key, each in pairs}


def _record(node: Node, raw: Mapping[str, Any]) -> JsonValue:
    return {name: value_of(each, value) for (name, each), value in zip(node.fields.items(), raw.values(), strict=True)}


def _union(node: Node, raw: Mapping[str, Any]) -> JsonValue:
    ((name, value),) = raw.items()
    return value_of(node.branches[int(name.removeprefix(BRANCH))], value)


_READERS: Final[Mapping[str, Callable[[Node, Any], JsonValue]]] = {
    "null": lambda node, raw: None,
    "boolean": lambda node, raw: bool(raw),
    "int": _number,
    "long": _number,
    "float": lambda node, raw: float_text(raw, single=True),
    "double": lambda node, raw: float_text(raw, single=False),
    "string": lambda node, raw: raw,
    "bytes": _octets,
    "fixed": _octets,
    "enum": _symbol,
    "array": _array,
    "map": _map,
    "record": _record,
    "union": _union,
}
