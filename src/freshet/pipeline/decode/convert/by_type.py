"""The converter of a type, for a dialect and what the record's schema says of the field.

ARRAY, MAP and ROW take JSON arrays and objects, or a text holding one, and are refused as a whole if any part does not
fit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode.convert.converter import LOST, Cell, Converter, RefusedConverter
from freshet.pipeline.decode.convert.decimals import DECIMALS, DecimalConverter, DecimalTextConverter
from freshet.pipeline.decode.convert.scalars import (
    BooleanConverter,
    BytesConverter,
    FloatConverter,
    IntegerConverter,
    TextConverter,
)
from freshet.pipeline.decode.convert.times import (
    TIMES_OF_DAY,
    DateConverter,
    TimeConverter,
    TimestampConverter,
    TimeTextConverter,
)
from freshet.pipeline.decode.dialect import BYTES, PLAIN_TEXT, STRING, Dialect, Fact
from freshet.pipeline.decode.json_value import JsonNumber, JsonValue, parse_json
from freshet.storage.model.data_type import ArrayType, DataType, MapType, RowType, TypeRoot, with_nullable


class ArrayConverter(Converter):
    """ARRAY."""

    def __init__(self, data_type: ArrayType, element: Converter) -> None:
        super().__init__(data_type)
        self._element = element

    def one(self, value: JsonValue) -> Cell:
        items = _opened(value)
        if not isinstance(items, list):
            return LOST
        converted = [part(self._element, item) for item in items]
        return LOST if LOST in converted else converted


class MapConverter(Converter):
    """MAP; two members whose keys convert into the same one are refused."""

    def __init__(self, data_type: MapType, key: Converter, value: Converter) -> None:
        super().__init__(data_type)
        self._key, self._value = key, value

    def one(self, value: JsonValue) -> Cell:
        members = _opened(value)
        if not isinstance(members, dict):
            return LOST
        keys = [self._key.one(key) for key in members]
        values = [part(self._value, item) for item in members.values()]
        if LOST in keys or LOST in values or len(set(map(repr, keys))) < len(keys):
            return LOST
        return list(zip(keys, values, strict=True))


class RowConverter(Converter):
    """ROW; members that it does not have are left out."""

    def __init__(self, data_type: RowType, fields: dict[str, Converter]) -> None:
        super().__init__(data_type)
        self._fields = fields

    def one(self, value: JsonValue) -> Cell:
        members = _opened(value)
        if not isinstance(members, dict):
            return LOST
        converted = {name: part(field, members.get(name)) for name, field in self._fields.items()}
        return LOST if LOST in converted.values() else converted


def part(converter: Converter, value: JsonValue) -> Cell:
    """A value inside another one; null is lost where the type is NOT NULL."""
    if value is None:
        return None if converter.data_type.nullable else LOST
    return converter.one(value)


def _opened(value: JsonValue) -> JsonValue:
    if isinstance(value, str) and not isinstance(value, JsonNumber):
        try:
            return parse_json(value)
        except (ValueError, RecursionError):
            return None
    return value


NUMBERS: Final = frozenset(
    {
        TypeRoot.BOOLEAN, TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.FLOAT,
        TypeRoot.DOUBLE, TypeRoot.DECIMAL,
    }
)  # fmt: skip
"""Types whose values are no bytes."""


@lru_cache(1024)
def converter_for(data_type: DataType, dialect: Dialect, fact: Fact | None = None) -> Converter:
    """The converter; of values inside others, only the items of an array have a fact."""
    match data_type:
        case ArrayType(element=element):
            return ArrayConverter(data_type, converter_for(element, dialect, None if fact is None else fact.items))
        case MapType(key=key, value=value):
            return MapConverter(
                data_type, converter_for(with_nullable(key, False), dialect), converter_for(value, dialect)
            )
        case RowType(fields=fields):
            return RowConverter(data_type, {field.name: converter_for(field.type, dialect) for field in fields})
    if fact is not None and is_refused(data_type, dialect, fact):
        return RefusedConverter(data_type)
    match data_type.root:
        case TypeRoot.BOOLEAN:
            return BooleanConverter(data_type)
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return FloatConverter(data_type)
        case TypeRoot.DECIMAL:
            return DecimalConverter(data_type, dialect, fact)
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            if fact is not None and fact.name in DECIMALS:
                return DecimalTextConverter(data_type, fact)
            if fact is not None and dialect.writes_times and fact.name in TIMES_OF_DAY:
                return TimeTextConverter(data_type, fact)
            return TextConverter(data_type)
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return BytesConverter(data_type, dialect, fact)
        case TypeRoot.DATE:
            return DateConverter(data_type, dialect, fact)
        case TypeRoot.TIME:
            return TimeConverter(data_type, dialect, fact)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return TimestampConverter(data_type, dialect, fact)
        case TypeRoot.TINYINT | TypeRoot.SMALLINT | TypeRoot.INT | TypeRoot.BIGINT:
            return IntegerConverter(data_type)
        case unknown:
            raise AssertionError(f"{unknown} has no converter")


def is_refused(data_type: DataType, dialect: Dialect, fact: Fact) -> bool:
    """Whether no value of what the schema calls a field is one of the type: the text of bytes may look like a number,
    and a text like that of bytes."""
    if data_type.root in (TypeRoot.BINARY, TypeRoot.VARBINARY):
        return fact.kind == STRING and dialect.binary_mode == BYTES
    return data_type.root in NUMBERS and fact.kind == BYTES and fact.name not in DECIMALS


def convert_texts(data_type: DataType, texts: pa.Array) -> pa.Array:
    """A string array in the carrier of a type, read as plain texts; NULL where one does not fit."""
    array, bad = converter_for(data_type, PLAIN_TEXT).one_by_one(texts.to_pylist())
    return array if bad is None else pc.if_else(pa.array(bad), pa.scalar(None, array.type), array)
