"""JSON objects as Arrow rows, as a consumer would read them: the inverse of `object_texts`, exact for every value.

Numbers with a point or an exponent are kept as texts until the type of their column is known: a decimal has more digits
than a float holds.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from freshet.logstore.writing.json_records import is_text

_DECODER: Final = msgspec.json.Decoder(float_hook=str)


def parsed(values: Iterable[bytes]) -> list[Any]:
    """What these JSON texts hold."""
    return list(_DECODER.decode(b"[" + b",".join(values) + b"]"))


def rows_of(objects: Sequence[Any], fields: Iterable[pa.Field]) -> list[pa.Array]:
    """A column for each field."""
    return [_column([row[field.name] for row in objects], field.type) for field in fields]


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    for is_of, to_array in _BY_TYPE:
        if is_of(kind):
            return to_array(values, kind)
    return pa.array(values, kind)


def _numbers(values: list[Any], kind: pa.DataType) -> pa.Array:
    """From texts: fractions are texts, whole numbers of any size are not."""
    return pa.array([None if each is None else str(each) for each in values], pa.string()).cast(kind)


def _texts(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.string()).cast(kind)


def _binary(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array([None if each is None else binascii.a2b_base64(each, strict_mode=True) for each in values], kind)


def _time(values: list[Any], kind: pa.DataType) -> pa.Array:
    days = pc.binary_join_element_wise("1970-01-01 ", pa.array(values, pa.string()), "")
    return days.cast(pa.timestamp("ms")).cast(kind)


def _list(values: list[Any], kind: pa.DataType) -> pa.Array:
    elements = _column([each for value in values if value is not None for each in value], kind.value_type)
    return pa.ListArray.from_arrays(_offsets(values), elements, type=kind)


def _map(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Keys that are not texts are the text of their JSON."""
    keys = [key for value in values if value is not None for key in value]
    items = [item for value in values if value is not None for item in value.values()]
    arrays = _keys(keys, kind.key_type), _column(items, kind.item_type)
    return pa.MapArray.from_arrays(_offsets(values), *arrays, type=kind)


def _keys(keys: list[str], kind: pa.DataType) -> pa.Array:
    if is_text(kind):
        return _column(keys, kind)
    if pt.is_nested(kind):
        return _column(parsed(key.encode() for key in keys), kind)
    return _texts(keys, kind)


def _offsets(values: list[Any]) -> pa.Array:
    """With nulls where a value is null, which `from_arrays` takes as a null list."""
    offsets: list[int | None] = []
    end = 0
    for value in values:
        offsets.append(None if value is None else end)
        end += 0 if value is None else len(value)
    return pa.array([*offsets, end], pa.int32())


def _struct(values: list[Any], kind: pa.DataType) -> pa.Array:
    fields = list(kind)
    nulls = dict.fromkeys((field.name for field in fields), None)
    children = rows_of([nulls if value is None else value for value in values], fields)
    is_null = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=fields, mask=is_null)


_BY_TYPE: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[list[Any], pa.DataType], pa.Array]], ...]] = (
    (pt.is_floating, _numbers),
    (pt.is_decimal, _numbers),
    (pt.is_binary, _binary),
    (pt.is_time, _time),
    (pt.is_temporal, _texts),
    (pt.is_map, _map),
    (pt.is_list, _list),
    (pt.is_struct, _struct),
)
