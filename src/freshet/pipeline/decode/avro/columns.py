"""Columns of datums as columns of the table: what `values.value_of` and a converter make of each value, by the column.

Types that Arrow has (whole numbers, texts, bytes, decimals, times) are converted as arrays (`Converter.of_array`);
texts in other columns by the conversions of the JSON formats; all else value by value.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode.avro.values import DatumError, value_of
from freshet.pipeline.decode.avro.writer_schema import Node
from freshet.pipeline.decode.convert.converter import Converted, Converter, Mask
from freshet.pipeline.decode.convert.decimals import DecimalConverter
from freshet.pipeline.decode.json_value import STRING, JsonValue


def member(records: Any, node: Node, name: str) -> Any:
    """A column of records' fields of a name; NULL where the record is."""
    return pc.struct_field(records, [list(node.fields).index(name)])


def converted(array: Any, node: Node, converter: Converter) -> Converted:
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


def values(array: Any, node: Node) -> list[JsonValue]:
    """The values of a column; an enum is its texts here."""
    if node.kind == "enum" and pa.types.is_string(array.type):
        found: list[JsonValue] = array.to_pylist()
        return found
    return [value_of(node, each) for each in array.to_pylist()]


def symbols_of(array: Any, node: Node) -> Any:
    """The texts of an enum's indexes; raises `DatumError` for one that it does not have."""
    numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(node.symbols)):
        raise DatumError("an enum has no such symbol")
    return pa.array(node.symbols, pa.string()).take(array)


def equal_rows(left: Any, right: Any) -> Mask:
    """Where two columns of one type have equal values, as a mask; false where either is NULL."""
    mask: Mask = pc.equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)
    return mask
