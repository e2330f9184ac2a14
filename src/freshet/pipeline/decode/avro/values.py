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

Columns of datums become columns of the table, as `value_of` and a converter make them of each value. Types that Arrow
has (whole numbers, texts, bytes, decimals, times) are converted as arrays (`Converter.of_array`); texts in other
columns by the conversions of the JSON formats; all else value by value.
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode.avro.writer_schema import BRANCH, Node
from freshet.pipeline.decode.convert.converter import Converted, Converter, Mask
from freshet.pipeline.decode.convert.decimals import UNSCALED_BYTES_MAX, DecimalConverter
from freshet.pipeline.decode.json_value import STRING, JsonNumber, JsonValue, Octets


class DatumError(ValueError):
    """What a datum holds is no value of its type."""


def value_of(node: Node, raw: object) -> JsonValue:
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


def _array(node: Node, raw: Sequence[object]) -> JsonValue:
    assert node.item is not None
    return [value_of(node.item, each) for each in raw]


def _map(node: Node, raw: Any) -> JsonValue:
    assert node.item is not None
    pairs = raw.items() if isinstance(raw, Mapping) else raw  # Arrow gives pairs
    return {key: value_of(node.item, each) for key, each in pairs}


def _record(node: Node, raw: Mapping[str, object]) -> JsonValue:
    return {name: value_of(each, value) for (name, each), value in zip(node.fields.items(), raw.values(), strict=True)}


def _union(node: Node, raw: Mapping[str, object]) -> JsonValue:
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


def member(records: pa.StructArray, node: Node, name: str) -> pa.Array:
    """A column of records' fields of a name; NULL where the record is."""
    return pc.struct_field(records, [list(node.fields).index(name)])


def converted(array: pa.Array, node: Node, converter: Converter) -> Converted:
    """A column in the carrier of the converter's type, and the flags of those that it does not take."""
    if node.kind == "null":
        return pa.nulls(len(array), converter.arrow), None
    if node.kind == "enum":
        array = symbols_of(array, node)
    if node.is_decimal:
        if isinstance(converter, DecimalConverter) and node.kind == "bytes" and node.scale is not None:
            return converter.of_unscaled(array, node.scale)
    elif not node.is_uuid:
        done = converter.of_array(array.cast(pa.binary()) if node.kind == "fixed" else array)
        if done is not None:
            return done
        if pa.types.is_string(array.type):
            conversion = converter.conversion(frozenset({STRING}))
            if conversion.annotation is not msgspec.Raw:
                return conversion.convert(array.to_pylist())
    return converter.one_by_one(values(array, node))


def values(array: pa.Array, node: Node) -> list[JsonValue]:
    """The values of a column; an enum is its texts here."""
    if node.kind == "enum" and pa.types.is_string(array.type):
        found: list[JsonValue] = array.to_pylist()
        return found
    return [value_of(node, each) for each in array.to_pylist()]


def symbols_of(array: pa.Array, node: Node) -> pa.Array:
    """The texts of an enum's indexes; raises `DatumError` for one that it does not have."""
    numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(node.symbols)):
        raise DatumError("an enum has no such symbol")
    return pa.array(node.symbols, pa.string()).take(array)


def equal_rows(left: pa.Array, right: pa.Array) -> Mask:
    """Where two columns of one type have equal values, as a mask; false where either is NULL."""
    mask: Mask = pc.equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)
    return mask
