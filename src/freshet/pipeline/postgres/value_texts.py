"""Texts of PostgreSQL as columns: what COPY and the stream bring of a column, in the carrier of a column's type.

    converter = text_converter(types.source_type(1700, modifier), data_type)
    array, bad = converter.of_array(texts)         `bad`: the rows whose value the type does not hold

The texts are those of sessions with `SETTINGS`. Arrow casts a column as a whole; where it refuses, the rows of the
plain form are cast and the others marked. A column of another type than its source's (a target that was there before,
a `select`) is read as any text is: by the converters of `decode`, of the forms that those know.
"""

from __future__ import annotations

import binascii
from abc import abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode.carriers import CARRIED_PRECISION_MAX, carrier_arrow_type
from freshet.pipeline.decode.convert.by_type import converter_for
from freshet.pipeline.decode.convert.converter import LOST, Cell, Converted, Converter, Mask, null_mask
from freshet.pipeline.decode.dialect import PLAIN_TEXT
from freshet.pipeline.decode.json_value import STRING, JsonValue, text_of
from freshet.pipeline.postgres.array_texts import element_texts
from freshet.pipeline.postgres.source_types import Form, SourceType
from freshet.storage.model.data_type import (
    BYTES_ROOTS,
    INTEGER_ROOTS,
    LENGTH_MAX,
    TEXT_ROOTS,
    ArrayType,
    DataType,
    ScalarType,
    TypeRoot,
)
from freshet.storage.model.sql_type import parse_sql_type

SETTINGS: Final = {
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "TimeZone": "UTC",
    "lc_monetary": "C",
}
"""Of each session that reads values: others change the texts, of the stream too."""
SETTINGS_OPTION: Final = " ".join(f"-c {name}={value}" for name, value in {**SETTINGS, "row_security": "off"}.items())
"""The same as libpq's `options`; a policy that would hide rows of a copy is an error."""

_HINTS: Final = {
    Form.DECIMAL: " (exactly; NaN is none)",
    Form.DATE: " (infinity and years BC or after 9999 do not)",
    Form.STAMP: " (infinity and years BC or after 9999 do not)",
    Form.ZONED: " (infinity and years BC or after 9999 do not)",
    Form.TIME: " (24:00:00 does not)",
}
_NO_BYTES: Final = r"\x"
_MIDNIGHT: Final = "1970-01-01"
_TRUE: Final = "t"

Cast = Callable[[pa.Array], pa.Array]


@lru_cache(4096)
def text_converter(source: SourceType, data_type: DataType) -> TextsConverter:
    """From texts of a type of PostgreSQL into a column's type."""
    if source.is_array and isinstance(data_type, ArrayType):
        return ArrayTextConverter(source, data_type)
    if source.is_array:
        return OtherTextConverter(source, data_type)
    if source.of.form is Form.BYTES and data_type.root in BYTES_ROOTS:
        return BytesTextConverter(source, data_type)
    cast = _cast_of(source, data_type)
    return OtherTextConverter(source, data_type) if cast is None else CastTextConverter(source, data_type, cast)


def misfit_reason(field: str, source: SourceType, data_type: DataType) -> str:
    """Why a value of a field is a dead letter."""
    hint = _HINTS.get(source.of.form, "")
    if source.is_array:
        hint = " (one dimension that begins at 1 does" + (hint.replace(" (", "; ", 1) or ")")
    return f"the value of field {field} does not fit {data_type}{hint}"


class TextsConverter(Converter):
    """From texts of PostgreSQL."""

    def __init__(self, source: SourceType, data_type: DataType) -> None:
        super().__init__(data_type)
        self._source = source

    def one(self, value: JsonValue) -> Cell:
        array, bad = self.of_texts(pa.array([text_of(value)], pa.string()))
        return array[0].as_py() if bad is None else LOST

    def of_array(self, array: pa.Array) -> Converted | None:
        return self.of_texts(array)

    @abstractmethod
    def of_texts(self, texts: pa.Array) -> Converted:
        """A string array in the carrier of the column's type."""


class CastTextConverter(TextsConverter):
    """Into a type that holds what the source's holds: by Arrow, unless it refuses a value."""

    def __init__(self, source: SourceType, data_type: DataType, cast: Cast) -> None:
        super().__init__(source, data_type)
        self._cast = cast
        self._others = OtherTextConverter(source, data_type)

    def of_texts(self, texts: pa.Array) -> Converted:
        try:
            return self._cast(texts).cast(self.arrow), None
        except pa.ArrowInvalid:
            return self._others.of_texts(texts)


class OtherTextConverter(TextsConverter):
    """By the converters of other texts, in whose form PostgreSQL's are written first."""

    def __init__(self, source: SourceType, data_type: DataType) -> None:
        super().__init__(source, data_type)
        self._plain = converter_for(data_type, PLAIN_TEXT)
        conversion = self._plain.conversion(frozenset({STRING}))
        self._convert_values = (
            self._plain.one_by_one if conversion is self._plain.raw_conversion else conversion.convert
        )

    def of_texts(self, texts: pa.Array) -> Converted:
        form = self._source.of.form
        if form is Form.BOOLEAN and not self._source.is_array:
            texts = pc.if_else(_booleans(texts), "true", "false")
        if self.data_type.root in TEXT_ROOTS:
            converted = self._plain.of_array(texts)
            assert converted is not None
            return converted
        if form is Form.MONEY:
            texts = _without_signs(texts)
        if form is Form.ZONED:
            texts = pc.replace_substring_regex(texts, r"\+00$", "Z")
        return self._convert_values(texts.to_pylist())


class BytesTextConverter(TextsConverter):
    """Texts of bytea into BINARY and VARBINARY."""

    def __init__(self, source: SourceType, data_type: DataType) -> None:
        super().__init__(source, data_type)
        self._checked = converter_for(data_type, PLAIN_TEXT)

    def of_texts(self, texts: pa.Array) -> Converted:
        # Of no end, and of a text that is shorter than what is cut off, Arrow's slice makes a negative length.
        digits = pc.binary_slice(texts.fill_null(_NO_BYTES).cast(pa.binary()), len(_NO_BYTES), LENGTH_MAX)
        _, offsets, content = digits.buffers()
        octets = binascii.unhexlify(content or b"")
        halves = np.frombuffer(offsets, np.int32, len(digits) + 1) // 2
        validity = pa.py_buffer(np.packbits(~null_mask(texts), bitorder="little")) if texts.null_count else None
        parts = [validity, pa.py_buffer(halves), pa.py_buffer(octets)]
        converted = self._checked.of_array(pa.Array.from_buffers(pa.binary(), len(digits), parts))
        assert converted is not None
        return converted


class ArrayTextConverter(TextsConverter):
    """Texts of arrays into ARRAY."""

    def __init__(self, source: SourceType, data_type: ArrayType) -> None:
        super().__init__(source, data_type)
        self._element = text_converter(source.element, data_type.element)
        self._takes_nulls = data_type.element.nullable

    def of_texts(self, texts: pa.Array) -> Converted:
        found = element_texts(texts, self._source.delimiter)
        elements = self._element.of_array(found.texts)
        assert elements is not None
        values, wrong = elements
        if not self._takes_nulls and found.texts.null_count:
            wrong = null_mask(found.texts) if wrong is None else wrong | null_mask(found.texts)
        offsets = pa.array(found.offsets.astype(np.int32))
        nulls = pa.array(found.nulls if found.bad is None else found.nulls | found.bad)
        arrays = pa.ListArray.from_arrays(offsets, values, self.arrow, mask=nulls)
        return arrays, _rows_of(wrong, found.offsets, found.bad)


def _rows_of(wrong: Mask | None, offsets: npt.NDArray[np.int64], bad: Mask | None) -> Mask | None:
    """The rows that are bad, or have an element that is wrong."""
    if wrong is None or not wrong.any():
        return bad
    counts = np.concatenate([[0], np.cumsum(wrong)])
    rows: Mask = counts[offsets[1:]] > counts[offsets[:-1]]
    return rows if bad is None else rows | bad


def _cast_of(source: SourceType, data_type: DataType) -> Cast | None:
    """Arrow's cast, where it takes what the source's type holds and nothing else."""
    root, form = data_type.root, source.of.form
    if form is Form.BOOLEAN and root is TypeRoot.BOOLEAN:
        return _booleans
    if (form is Form.WHOLE and root in INTEGER_ROOTS) or (form is Form.FLOAT and root is TypeRoot.DOUBLE):
        return _cast_to(carrier_arrow_type(data_type))
    natural = parse_sql_type(source.sql_type)
    if natural.root in TEXT_ROOTS:
        return None
    if not (isinstance(natural, ScalarType) and isinstance(data_type, ScalarType) and _holds(data_type, natural)):
        return None
    match form:
        case Form.FLOAT | Form.DECIMAL | Form.DATE:
            return _cast_to(carrier_arrow_type(data_type))
        case Form.MONEY:
            return lambda texts: _without_signs(texts).cast(carrier_arrow_type(data_type))
        case Form.TIME:
            return _millis
        case Form.STAMP | Form.ZONED:
            return _cast_to(carrier_arrow_type(data_type))
    return None


def _holds(wider: ScalarType, narrower: ScalarType) -> bool:
    if wider.root is not narrower.root:
        return False
    if wider.root is TypeRoot.DECIMAL:
        more = (wider.scale or 0) - (narrower.scale or 0)
        return more >= 0 and (wider.precision or 0) - (narrower.precision or 0) >= more
    return (narrower.precision or 0) <= (wider.precision or 0) <= CARRIED_PRECISION_MAX


def _cast_to(arrow: pa.DataType) -> Cast:
    return lambda texts: texts.cast(arrow)


def _booleans(texts: pa.Array) -> pa.Array:
    return pc.equal(texts, _TRUE)


def _without_signs(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, "[$,]", "")


def _millis(texts: pa.Array) -> pa.Array:
    stamps = pc.binary_join_element_wise(_MIDNIGHT, texts, " ")
    return stamps.cast(pa.timestamp("ms")).cast(pa.int64())
