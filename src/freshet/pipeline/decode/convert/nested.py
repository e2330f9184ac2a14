"""ARRAY, MAP and ROW: JSON arrays and objects, or a text holding one; refused as a whole if any part does not fit."""

from __future__ import annotations

from typing import Any

from freshet.pipeline.decode.convert.converter import LOST, Converter
from freshet.pipeline.decode.json_value import JsonNumber, JsonValue, parse_json
from freshet.storage.model.data_type import ArrayType, MapType, RowType


class ArrayConverter(Converter):
    """ARRAY."""

    def __init__(self, data_type: ArrayType, element: Converter) -> None:
        super().__init__(data_type)
        self._element = element

    def one(self, value: JsonValue) -> Any:
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

    def one(self, value: JsonValue) -> Any:
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

    def one(self, value: JsonValue) -> Any:
        members = _opened(value)
        if not isinstance(members, dict):
            return LOST
        converted = {name: part(field, members.get(name)) for name, field in self._fields.items()}
        return LOST if LOST in converted.values() else converted


def part(converter: Converter, value: JsonValue) -> Any:
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
