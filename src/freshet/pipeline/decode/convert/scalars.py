"""Booleans, whole numbers, floating point, texts and bytes.

| type | accepted | refused |
|---|---|---|
| BOOLEAN | true, false, 0, 1, also as text | all else |
| TINYINT … BIGINT | whole numbers in range, as number or text; 5.0 is 5 | fractions, out of range |
| FLOAT, DOUBLE | numbers, NaN, Infinity by any of their usual names | text; finite numbers that overflow |
| CHAR, VARCHAR(n) | everything; objects and arrays as JSON text | longer than n characters; lone surrogates |
| BINARY, VARBINARY(n) | bytes, base64, url-safe base64, hex, a byte per character | all else, longer than n bytes |

Numbers are taken as texts write them: exact, and without arithmetic whose cost the text chooses. `1e-99999999` has ten
characters and, as a fraction, 33 megabytes; `int` and `Fraction` refuse texts of more than 4300 digits. Digits and
exponent say of both whether they can fit a type, before anything is computed.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.pipeline.decode.convert.converter import (
    LOST,
    Cell,
    Converted,
    Converter,
    FieldConversion,
    Values,
    null_mask,
    partly,
    ranged,
    raw_octets,
    scattered,
    whole_array,
)
from freshet.pipeline.decode.dialect import BYTES, Dialect, Fact
from freshet.pipeline.decode.json_value import BOOL, INT, NUMBER, STRING, JsonNumber, JsonValue, Octets, text_of
from freshet.storage.model.data_type import LENGTH_MAX, ScalarType, TypeRoot

_FORM: Final = re.compile(r"\s*([+-]?)(?=[.]?[0-9])([0-9]*)(?:[.]([0-9]*))?(?:[eE]([+-]?)([0-9]+))?\s*")
_EXPONENT_DIGITS_MAX: Final = 18
"""A longer exponent is as good as this one: no text has as many digits."""


class WrittenNumber(Frozen):
    """`digits` times ten to the `exponent`; the digits have no zeros at their ends, and zero has none at all."""

    is_negative: bool
    digits: str
    exponent: int

    @classmethod
    def of(cls, is_negative: bool, digits: str, exponent: int) -> WrittenNumber:
        """The same of digits with zeros."""
        significant = digits.rstrip("0")
        exponent += len(digits) - len(significant)
        significant = significant.lstrip("0")
        return cls(is_negative and bool(significant), significant, exponent if significant else 0)

    @property
    def magnitude(self) -> int:
        """How many digits stand before the point; of a number below 0.1 minus the zeros behind it."""
        return len(self.digits) + self.exponent

    def unscaled(self, scale: int, digits_max: int) -> str | None:
        """The digits of the number times ten to the scale; None where that has a fraction or more digits than these."""
        if not self.digits:
            return "0"
        zeros = self.exponent + scale
        if zeros < 0 or self.magnitude + scale > digits_max:
            return None
        return self.digits + "0" * zeros


def written_number(text: str) -> WrittenNumber | None:
    """The number that a text writes in decimals, blanks around it; None where it writes none."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    sign, whole, fraction, exponent_sign, exponent = found.groups()
    fraction = fraction or ""
    power = (exponent or "").lstrip("0")
    size = int(power or "0") if len(power) <= _EXPONENT_DIGITS_MAX else 10**_EXPONENT_DIGITS_MAX
    shift = -size if exponent_sign == "-" else size
    return WrittenNumber.of(sign == "-", whole + fraction, shift - len(fraction))


def unscaled_number(unscaled: int, scale: int) -> WrittenNumber:
    """A number by its unscaled one, which has no more than 4300 digits, and its scale."""
    return WrittenNumber.of(unscaled < 0, str(abs(unscaled)), -scale)


_BITS: Final = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.BIGINT: 64}
_BOOLEANS: Final = {
    "true": True, "1": True, "TRUE": True, "True": True, "false": False, "0": False, "FALSE": False, "False": False,
}  # fmt: skip
_BOOLEAN_TEXTS: Final = pa.array(list(_BOOLEANS))
_TRUE_TEXTS: Final = pa.array([text for text, is_true in _BOOLEANS.items() if is_true])
_WHOLE_DIGITS_MAX: Final = 40
_WHOLE: Final = re.compile(rf"\s*([+-]?[0-9]{{1,{_WHOLE_DIGITS_MAX}}})(?:[.]0+)?\s*")
_FLOAT: Final = re.compile(r"\s*[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?\s*")
_SPECIAL: Final = {
    "NaN": math.nan, "NAN": math.nan, "Infinity": math.inf, "+Infinity": math.inf, "POSITIVE_INFINITY": math.inf,
    "-Infinity": -math.inf, "NEGATIVE_INFINITY": -math.inf,
}  # fmt: skip
_PLAIN_FLOAT: Final = "^(?:0|-?[1-9][0-9]{0,14}|-?[0-9]{1,15}[.][0-9]{1,15})$"
"""Texts of numbers that Arrow reads as `one` does: without exponent, and no -0."""
_URL_SAFE: Final = re.compile(r"[A-Za-z0-9_-]*={0,2}")
_NO_VALUE: Final = 0
"""In place of the first byte of a member that is missing."""
_SINGLE_MIN: Final = 1e-60
"""Smaller ones are zero as a float."""
_SINGLE_DIGITS: Final = 120
"""No number half way between two floats has more."""
_LOST_BITS: Final = 29
"""Bits of a double's fraction that a float does not have."""


class BooleanConverter(Converter):
    """BOOLEAN."""

    def one(self, value: JsonValue) -> Cell:
        return _BOOLEANS.get(text_of(value) or "", LOST)

    def conversion(self, kinds: frozenset[str]) -> FieldConversion:
        if kinds <= {BOOL}:
            return FieldConversion(bool | None, lambda values: (pa.array(values, pa.bool_()), None))
        if kinds == {INT}:
            bit = Annotated[int, msgspec.Meta(ge=0, le=1)]
            return FieldConversion(bit | None, lambda values: (pa.array(values, pa.int8()).cast(pa.bool_()), None))
        if kinds == {STRING}:
            return FieldConversion(str | None, self._convert_texts)
        return self.raw_conversion

    def of_array(self, array: pa.Array) -> Converted | None:
        return (array, None) if pa.types.is_boolean(array.type) else None

    def _convert_texts(self, values: Values) -> Converted:
        texts = pa.array(values, pa.string())
        bad = pc.and_(texts.is_valid(), pc.invert(pc.is_in(texts, _BOOLEAN_TEXTS))).to_numpy(zero_copy_only=False)
        found = pc.if_else(pc.is_in(texts, _BOOLEAN_TEXTS), pc.is_in(texts, _TRUE_TEXTS), pa.scalar(None, pa.bool_()))
        return found, bad if bad.any() else None


class IntegerConverter(Converter):
    """TINYINT, SMALLINT, INT, BIGINT."""

    def __init__(self, data_type: ScalarType) -> None:
        super().__init__(data_type)
        bits = _BITS[data_type.root]
        self._low, self._high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def one(self, value: JsonValue) -> Cell:
        number = whole_number(value)
        return number if number is not None and self._low <= number <= self._high else LOST

    def conversion(self, kinds: frozenset[str]) -> FieldConversion:
        if kinds <= {INT}:
            whole = Annotated[int, msgspec.Meta(ge=self._low, le=self._high)]
            return FieldConversion(whole | None, lambda values: (whole_array(values, self.arrow), None))
        if kinds == {STRING}:
            return FieldConversion(str | None, self._convert_texts)
        return self.raw_conversion

    def of_array(self, array: pa.Array) -> Converted | None:
        return ranged(array, self._low, self._high, self.arrow) if pa.types.is_integer(array.type) else None

    def _convert_texts(self, values: Values) -> Converted:
        """Texts that have a digit less than the largest number, by Arrow."""
        pattern = f"^-?[0-9]{{1,{len(str(self._high)) - 1}}}$"
        return partly(values, pa.array(values, pa.string()), pattern, self._cast_fitting, self.one_by_one)


def whole_number(value: JsonValue) -> int | None:
    """The whole number that a value writes; None when it writes none."""
    text = text_of(value) or ""
    found = _WHOLE.fullmatch(text)
    if found:
        return int(found[1])
    number = written_number(text) if isinstance(value, JsonNumber) else None
    digits = None if number is None else number.unscaled(0, _WHOLE_DIGITS_MAX)
    if number is None or digits is None:
        return None
    return int(f"-{digits}" if number.is_negative else digits)


class FloatConverter(Converter):
    """FLOAT and DOUBLE; a FLOAT is the one nearest to the text, not to the double nearest to the text."""

    def __init__(self, data_type: ScalarType) -> None:
        super().__init__(data_type)
        self._is_single = data_type.root is TypeRoot.FLOAT

    def one(self, value: JsonValue) -> Cell:
        text = text_of(value) or ""
        if text in _SPECIAL:
            return _SPECIAL[text]
        if not _FLOAT.fullmatch(text):
            return LOST
        number = _single(text) if self._is_single else float(text)
        number = 0.0 if text == "-0" else number  # JSON has no integer of that name
        return number if math.isfinite(number) else LOST

    def conversion(self, kinds: frozenset[str]) -> FieldConversion:
        if kinds == {STRING}:
            return FieldConversion(str | None, self._convert_texts)
        return FieldConversion(float | None, self._convert) if kinds <= {INT, NUMBER} else self.raw_conversion

    def of_array(self, array: pa.Array) -> Converted | None:
        return (array, None) if array.type == self.arrow else None

    def _convert_texts(self, values: Values) -> Converted:
        return partly(values, pa.array(values, pa.string()), _PLAIN_FLOAT, self._cast_fitting, self.one_by_one)

    def _convert(self, values: Values) -> Converted:
        doubles = pa.array(values, pa.float64())
        if not self._is_single:
            return doubles, None
        numbers = doubles.fill_null(0.0).to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):
            singles = numbers.astype(np.float32)
        # Half way between two floats: the digits behind the double decide, which the careful path still has.
        half_way = (numbers.view(np.int64) & ((1 << _LOST_BITS) - 1)) == 1 << (_LOST_BITS - 1)
        bad = ~np.isfinite(singles) | half_way | ((np.abs(numbers) < np.finfo(np.float32).tiny) & (numbers != 0))
        return pa.array(singles, pa.float32(), mask=null_mask(doubles) if doubles.null_count else None), (
            bad if bad.any() else None
        )


def _single(text: str) -> float:
    double = float(text)
    with np.errstate(over="ignore"):
        nearest = np.float32(double)
    number = written_number(text)
    if number is None or not math.isfinite(double) or not np.isfinite(nearest) or abs(double) < _SINGLE_MIN:
        return float(nearest)
    digits = number.digits[:_SINGLE_DIGITS]
    cut = len(number.digits) - len(digits)
    # The digits that are cut off make the number larger than one that ends there, and no more than that.
    exact = Fraction(int(f"-{digits}{1 if cut else 0}" if number.is_negative else f"{digits}{1 if cut else 0}"))
    exact *= Fraction(10) ** (number.exponent + cut - 1)
    with np.errstate(over="ignore"):
        around = (np.nextafter(nearest, np.float32(-np.inf)), nearest, np.nextafter(nearest, np.float32(np.inf)))
    candidates = [each for each in around if np.isfinite(each)]
    return float(min(candidates, key=lambda each: (abs(Fraction(float(each)) - exact), int(each.view(np.int32)) & 1)))


class TextConverter(Converter):
    """CHAR, VARCHAR, STRING."""

    def __init__(self, data_type: ScalarType) -> None:
        super().__init__(data_type)
        self._length_max = data_type.length if data_type.length != LENGTH_MAX else None

    def one(self, value: JsonValue) -> Cell:
        text = text_of(value)
        assert text is not None
        if self._length_max is not None and len(text) > self._length_max:
            return LOST
        return text if is_writable(text) else LOST

    def conversion(self, kinds: frozenset[str]) -> FieldConversion:
        return FieldConversion(str | None, self._convert) if kinds <= {STRING} else self.raw_conversion

    def of_array(self, array: pa.Array) -> Converted | None:
        if pa.types.is_string(array.type):
            return self._checked(array)
        return self._checked(array.cast(pa.string())) if pa.types.is_integer(array.type) else None

    def _convert(self, values: Values) -> Converted:
        return self._checked(pa.array(values, pa.string()))

    def _convert_raw(self, values: Sequence[msgspec.Raw]) -> Converted:
        """Numbers are the text that they are written as, and so are texts without escapes, by Arrow; the others one by
        one. A column of numbers takes 0.2 µs a value, one by one 1.5."""
        octets = raw_octets(values)
        _, starts, content = octets.buffers()
        firsts = np.full(len(octets), _NO_VALUE, np.uint8)
        is_there = pc.binary_length(octets).to_numpy() > 0
        begins = np.frombuffer(starts, np.int32, len(octets))[is_there]
        firsts[is_there] = np.frombuffer(content, np.uint8)[begins]
        is_text, is_null = firsts == ord('"'), (firsts == _NO_VALUE) | (firsts == ord("n"))
        is_number = (firsts == ord("-")) | ((firsts >= ord("0")) & (firsts <= ord("9")))
        if is_text.any():
            if b"\\" in content.to_pybytes():
                is_text &= ~pc.match_substring(octets, b"\\").to_numpy(zero_copy_only=False)
            octets = pc.if_else(pa.array(is_text), pc.binary_slice(octets, 1, -1), octets)
        is_plain = is_text | is_number
        if not is_plain.all():
            octets = pc.if_else(pa.array(is_plain), octets, pa.scalar(None, octets.type))
        texts, bad = self._checked(octets.cast(pa.string()))
        others = np.flatnonzero(~(is_plain | is_null))
        if not len(others):
            return texts, bad
        rest = super()._convert_raw([values[index] for index in others.tolist()])
        array, bad_others = scattered(texts, others, *rest)
        return array, bad_others if bad is None else bad if bad_others is None else bad | bad_others

    def _checked(self, texts: pa.Array) -> Converted:
        if self._length_max is None:
            return texts, None
        too_long = pc.greater(pc.utf8_length(texts), self._length_max).fill_null(False)
        return texts, too_long.to_numpy(zero_copy_only=False) if pc.any(too_long).as_py() else None


def is_writable(text: str) -> bool:
    """False for lone surrogates: UTF-8 cannot write them."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class BytesConverter(Converter):
    """BINARY, VARBINARY, BYTES."""

    def __init__(self, data_type: ScalarType, dialect: Dialect, fact: Fact | None) -> None:
        super().__init__(data_type)
        self._length_max = data_type.length if data_type.length is not None else LENGTH_MAX
        self._mode = BYTES if fact is not None and fact.kind == BYTES else dialect.binary_mode

    def one(self, value: JsonValue) -> Cell:
        if isinstance(value, JsonNumber) or not isinstance(value, str):
            return LOST  # 1234 and true are base64 to look at
        try:
            octets = binascii.a2b_base64(value) if isinstance(value, Octets) else self._octets(value)
        except (binascii.Error, ValueError):
            return LOST
        return octets if len(octets) <= self._length_max else LOST

    def conversion(self, kinds: frozenset[str]) -> FieldConversion:
        return FieldConversion(str | None, self.one_by_one) if kinds <= {STRING} else self.raw_conversion

    def of_array(self, array: pa.Array) -> Converted | None:
        if not pa.types.is_binary(array.type):
            return None
        too_long = pc.greater(pc.binary_length(array), self._length_max).fill_null(False)
        return array, too_long.to_numpy(zero_copy_only=False) if pc.any(too_long).as_py() else None

    def _octets(self, text: str) -> bytes:
        match self._mode:
            case "latin1":
                return text.encode("latin-1")
            case "hex":
                return binascii.unhexlify(text)
            case "base64-url-safe":
                if not _URL_SAFE.fullmatch(text):
                    raise ValueError("not base64")
                plain = text.replace("-", "+").replace("_", "/")
                return binascii.a2b_base64(plain + "=" * (-len(plain) % 4), strict_mode=True)
            case _:
                return binascii.a2b_base64(text, strict_mode=True)
