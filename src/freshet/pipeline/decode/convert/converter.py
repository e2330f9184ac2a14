"""What a converter is: it turns JSON values into the carrier of a column's type, value by value or by the column.

`one` takes a value in every form that the type has. A `FieldConversion` takes a column of values of the JSON types that
really arrive: it names the type that msgspec reads them into. A value that it does not take is marked, and its record
takes the careful path, where `one` decides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.pipeline.decode.carriers import carrier_arrow_type
from freshet.pipeline.decode.json_value import JsonValue, parse_json
from freshet.storage.model.arrow_types import numpy_type
from freshet.storage.model.data_type import DataType

Mask = npt.NDArray[np.bool_]
Cell = Any
"""A value as Arrow takes it for the type of a carrier, or `LOST`."""
Values = Sequence[Any]
"""A column of values as msgspec has decoded them."""
Converted = tuple[pa.Array, Mask | None]
"""An Arrow array in the carrier's type, and the flags of those that did not convert (None: all did)."""


class _Lost(Enum):
    LOST = "lost"


LOST: Final = _Lost.LOST
"""Instead of a value that does not fit its type."""

NO_RAW: Final = msgspec.Raw(b"")


class FieldConversion(Frozen):
    """A field's way from JSON to an Arrow column: the type of its attribute, the conversion of a column, and the value
    where the field is missing."""

    annotation: Any
    convert: Callable[[Values], Converted]
    default: pa.Array = None


class Converter(ABC):
    """Conversion into one type."""

    def __init__(self, data_type: DataType) -> None:
        self.data_type = data_type
        self.arrow: pa.DataType = carrier_arrow_type(data_type)
        self.raw_conversion = FieldConversion(msgspec.Raw, self._convert_raw, NO_RAW)

    @abstractmethod
    def one(self, value: JsonValue) -> Cell:
        """A value that is not null, as Arrow takes it for the carrier's type; `LOST` where it does not fit."""

    def conversion(self, kinds: frozenset[str]) -> FieldConversion:
        """The conversion for these kinds of values; none seen yet: the one to try first."""
        return self.raw_conversion

    def of_array(self, array: pa.Array) -> Converted | None:
        """A column that has an Arrow type already, with what `one` makes of its values; None where it has to be read
        value by value. Whole numbers are int32 or int64, texts string, bytes binary."""
        return None

    def one_by_one(self, values: Sequence[JsonValue]) -> Converted:
        """A column by `one`."""
        return self._array([None if value is None else self.one(value) for value in values])

    def _cast_fitting(self, texts: pa.Array) -> pa.Array:
        return texts.cast(self.arrow)

    def _convert_raw(self, values: Sequence[msgspec.Raw]) -> Converted:
        seen: dict[bytes, Cell] = {b"": None, b"null": None}
        converted = []
        for raw in values:
            octets = bytes(raw)
            if octets not in seen:
                seen[octets] = self._one_raw(octets)
            converted.append(seen[octets])
        return self._array(converted)

    def _one_raw(self, octets: bytes) -> Cell:
        try:
            return self.one(parse_json(octets.decode()))
        except RecursionError:
            return LOST  # The careful path decides what becomes of the record.

    def _array(self, converted: Sequence[Cell]) -> Converted:
        if LOST not in converted:
            return pa.array(converted, self.arrow), None
        bad = np.fromiter((value is LOST for value in converted), bool, len(converted))
        return pa.array([None if value is LOST else value for value in converted], self.arrow), bad


class RefusedConverter(Converter):
    """For values that cannot be of the type, by what the record's schema calls them."""

    def one(self, value: JsonValue) -> Cell:
        return LOST


def partly(
    values: Values,
    texts: pa.Array,
    pattern: str,
    cast: Callable[[pa.Array], pa.Array],
    rest: Callable[[Values], Converted],
) -> Converted:
    """A column of texts: those of the pattern by `cast`, which must take all of them, the others by `rest`.

    A value of another form costs itself, and not its whole column.
    """
    plain = pc.match_substring_regex(texts, pattern)
    others = np.flatnonzero(~plain.fill_null(True).to_numpy(zero_copy_only=False))
    if not len(others):
        return cast(texts), None
    if len(others) == len(values):
        return rest(values)
    array = cast(pc.if_else(plain, texts, pa.scalar(None, texts.type)))
    return scattered(array, others, *rest([values[index] for index in others.tolist()]))


def raw_octets(values: Sequence[msgspec.Raw]) -> pa.Array:
    """The JSON of values as a binary array: what a list of `bytes` gives, in a quarter of the time."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=offsets[1:])
    content = pa.py_buffer(b"".join(values))  # type: ignore[arg-type]  # it has the bytes of a buffer
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), content])


def scattered(array: pa.Array, indexes: npt.NDArray[np.int64], others: pa.Array, bad: Mask | None) -> Converted:
    """The array with `others` at these indexes; `bad` says which of those did not convert."""
    take = np.arange(len(array))
    take[indexes] = np.arange(len(array), len(array) + len(indexes))
    all_bad = None
    if bad is not None:
        all_bad = np.zeros(len(array), bool)
        all_bad[indexes] = bad
    return pa.concat_arrays([array, others]).take(pa.array(take)), all_bad


def whole_array(values: Sequence[int | None], arrow: pa.DataType) -> pa.Array:
    """An array of whole numbers, which must fit; without NULL by numpy, in two thirds of the time of `pa.array`."""
    try:
        numbers = np.fromiter(values, numpy_type(arrow), len(values))
    except TypeError:
        return pa.array(values, arrow)
    return pa.array(numbers)


def with_nulls(numbers: npt.NDArray[Any], nulls: Mask | None, data_type: pa.DataType) -> pa.Array:
    """An Arrow array of fixed width over `numbers`, NULL where `nulls` is true."""
    if nulls is None or not nulls.any():
        return pa.Array.from_buffers(data_type, len(nulls) if nulls is not None else -1, [None, pa.py_buffer(numbers)])
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(data_type, len(nulls), [validity, pa.py_buffer(numbers)])


def ranged(array: pa.Array, low: int, high: int, arrow: pa.DataType) -> Converted:
    """Whole numbers in an integer type of Arrow; marked are those outside of these bounds."""
    numbers = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    bad = (numbers < low) | (numbers > high)
    if not bad.any():
        return array.cast(arrow), None
    return pc.if_else(pa.array(bad), pa.scalar(None, array.type), array).cast(arrow), bad


def null_mask(array: pa.Array) -> Mask:
    """True where the array is NULL."""
    if not array.null_count:
        return np.zeros(len(array), bool)
    mask: Mask = array.is_null().to_numpy(zero_copy_only=False)
    return mask
