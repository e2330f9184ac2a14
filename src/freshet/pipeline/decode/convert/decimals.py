"""DECIMAL(p, s): exact at scale s, or refused.

| arrives as | is |
|---|---|
| number, text of a number | the number, by its digits |
| base64 text | the unscaled number, big-endian two's complement; its scale is the schema's, else the column's |
| `{scale, value}` | the same with its own scale |
| NaN, Infinity, over p digits, digits beyond the scale | refused |

A text without a schema is base64 only where `decimal.handling.mode` is precise, and if it looks so: a multiple of four
characters without point and sign.

Columns of base64 up to 8 bytes are converted with numpy, text by text length: 0.05 µs a value, against 2 µs one by one.
Columns of numbers as texts are cast by Arrow: 0.3 µs a value, with the check that all of them are numbers.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode.convert.converter import (
    LOST,
    NO_RAW,
    Cell,
    Converted,
    Converter,
    FieldConversion,
    Mask,
    Values,
    null_mask,
    partly,
    with_nulls,
)
from freshet.pipeline.decode.convert.scalars import TextConverter, WrittenNumber, unscaled_number, written_number
from freshet.pipeline.decode.dialect import Dialect, Fact
from freshet.pipeline.decode.json_value import INT, NUMBER, STRING, JsonNumber, JsonValue, text_of
from freshet.storage.model.data_type import ScalarType

CONNECT_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
DECIMALS: Final = frozenset({CONNECT_DECIMAL, "io.debezium.data.VariableScaleDecimal"})
"""Names of types whose values are unscaled numbers."""

_NUMBER: Final = re.compile(r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?")
_BY_ARROW: Final = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9])?$"
"""Numbers for Arrow's cast, if they are short enough: with more than 38 digits on the way it wraps around silently."""
_DIGITS_MAX: Final = 38
_SCALE: Final = re.compile(r"-?[0-9]{1,4}")
_EXPONENT_MAX: Final = 9
_EXACT: Final = Context(prec=20_000, Emax=999_999, Emin=-999_999)
_OCTETS_MAX: Final = 16
UNSCALED_BYTES_MAX: Final = 1024
"""A longer number fits no type, and Python refuses to write it."""
_NARROW_TEXT_MAX: Final = 12
"""Characters of the base64 of at most 8 bytes."""

_INVALID: Final = 255
_SEXTETS: Final = np.full(256, _INVALID, np.uint8)
_SEXTETS[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = np.arange(64)
_PAD: Final = ord("=")


class DecimalTextConverter(TextConverter):
    """A text of what the schema of the record calls a decimal: the number, where it comes as its unscaled octets."""

    def __init__(self, data_type: ScalarType, fact: Fact) -> None:
        super().__init__(data_type)
        self._scale = fact.scale or 0

    def one(self, value: JsonValue) -> Cell:
        scale: JsonValue = JsonNumber(self._scale)
        text = value
        if isinstance(value, dict):
            scale, text = value.get("scale"), value.get("value")
        is_coded = isinstance(text, str) and not isinstance(text, JsonNumber)
        if not is_coded or not isinstance(scale, JsonNumber) or not _SCALE.fullmatch(scale):
            return super().one(value)
        try:
            octets = binascii.a2b_base64(str(text), strict_mode=True)
        except (binascii.Error, ValueError):
            return super().one(value)
        if not 1 <= len(octets) <= UNSCALED_BYTES_MAX:
            return LOST
        number = Decimal(int.from_bytes(octets, "big", signed=True)).scaleb(-int(scale), _EXACT)
        return super().one(f"{number:f}")

    def conversion(self, kinds: frozenset[str]) -> FieldConversion:
        return FieldConversion(str | None, self.one_by_one) if kinds <= {STRING} else self.raw_conversion


class DecimalConverter(Converter):
    """DECIMAL of one source's dialect and, where the record brings one, its schema's fact."""

    def __init__(self, data_type: ScalarType, dialect: Dialect, fact: Fact | None) -> None:
        super().__init__(data_type)
        self._precision, self._scale = data_type.precision or 10, data_type.scale or 0
        self._dialect, self._fact = dialect, fact
        own = fact.scale if fact is not None else None
        self._coded_scale = self._scale if own is None else own
        whole = f"[0-9]{{1,{self._precision - self._scale}}}" if self._precision > self._scale else "0"
        point = f"[.][0-9]{{1,{self._scale}}}" if self._scale else "[.]"
        self._fits = f"^-?{whole}(?:{point})?$"
        """Numbers that need no check: they have no more digits than the type."""
        self._fits_pointed = f"^-?{whole}{point}$"
        """The same with a point, which base64 never has."""

    def one(self, value: JsonValue) -> Cell:
        coded = self._coded(value)
        if coded is not None:
            return self._fitted(unscaled_number(*coded))
        text = text_of(value) or ""
        number = written_number(text) if _NUMBER.fullmatch(text) else None
        return LOST if number is None else self._fitted(number)

    def conversion(self, kinds: frozenset[str]) -> FieldConversion:
        if kinds <= {STRING}:
            return FieldConversion(str | None, self._convert_texts)
        if kinds <= {INT, NUMBER}:
            return FieldConversion(msgspec.Raw, self._convert_numbers, NO_RAW)
        return self.raw_conversion

    def _coded(self, value: JsonValue) -> tuple[int, int] | None:
        """The unscaled number and its scale, if the value is base64."""
        if not self._dialect.coded_decimals:
            return None
        scale = self._coded_scale
        if isinstance(value, dict):
            own, text = value.get("scale"), value.get("value")
            if not isinstance(own, JsonNumber) or not own.lstrip("-").isdecimal() or not isinstance(text, str):
                return None
            if len(own) > 5:
                return None
            scale = int(own)
        elif not isinstance(value, str) or isinstance(value, JsonNumber) or not self._looks_coded(value):
            return None
        else:
            text = value
        try:
            octets = binascii.a2b_base64(text, strict_mode=True)
        except (binascii.Error, ValueError):
            return None
        if not 1 <= len(octets) <= _OCTETS_MAX:
            return None
        return int.from_bytes(octets, "big", signed=True), scale

    def _looks_coded(self, text: str) -> bool:
        if self._fact is not None:
            return self._fact.name == CONNECT_DECIMAL
        is_none = len(text) % 4 or "." in text or "-" in text or text == "Infinity"
        return self._dialect.digits_are_coded and not is_none

    def _fitted(self, number: WrittenNumber) -> Cell:
        unscaled = number.unscaled(self._scale, self._precision)
        if unscaled is None:
            return LOST
        return Decimal((int(number.is_negative), tuple(map(int, unscaled)), -self._scale))

    def _convert_numbers(self, values: Sequence[msgspec.Raw]) -> Converted:
        texts = pa.array([bytes(value) or None for value in values], pa.binary()).cast(pa.string())
        texts = pc.if_else(pc.equal(texts, "null"), pa.scalar(None, pa.string()), texts)
        converted = self._cast(texts)
        if converted is not None:
            return converted, None
        return partly(values, texts, self._fits, self._cast_fitting, self._convert_raw)

    def _is_pointed(self, texts: pa.Array, values: Sequence[str | None]) -> bool:
        """True where all are numbers with a point that fit: a search for base64 would cost as much as all the rest."""
        if self._fact is not None or "." not in (next(filter(None, values), None) or ""):
            return False
        return pc.all(pc.match_substring_regex(texts, self._fits_pointed)).as_py() is not False

    def _convert_plain(self, values: Values) -> Converted:
        """Texts that are no base64."""
        texts = pa.array(values, pa.string())
        return partly(values, texts, self._fits, self._cast_fitting, self._cast_or_each)

    def _convert_rest(self, values: Values) -> Converted:
        """Texts that are no base64 of few bytes: by Arrow what has a point or a sign, without a schema."""
        if self._fact is not None:
            return self.one_by_one(values)
        texts = pa.array(values, pa.string())
        return partly(values, texts, self._fits_pointed, self._cast_fitting, self._pointed_or_each)

    def _pointed_or_each(self, values: Values) -> Converted:
        pointed = pc.all(pc.match_substring_regex(pa.array(values, pa.string()), "[-.]")).as_py()
        return self._cast_or_each(values) if pointed else self.one_by_one(values)

    def _cast_or_each(self, values: Values) -> Converted:
        converted = self._cast(pa.array(values, pa.string()))
        return (converted, None) if converted is not None else self.one_by_one(values)

    def _cast(self, texts: pa.Array) -> pa.Array | None:
        """Texts of numbers, by Arrow; None where it takes one of them otherwise than `one` does."""
        if pc.all(pc.match_substring_regex(texts, _BY_ARROW)).as_py() is False:
            return None
        if (pc.max(pc.utf8_length(texts)).as_py() or 0) > _DIGITS_MAX - _EXPONENT_MAX - self._scale:
            return None
        try:
            return texts.cast(self.arrow)
        except pa.ArrowInvalid:
            return None

    def of_unscaled(self, octets: pa.Array, scale: int) -> Converted:
        """A column of unscaled numbers, big-endian two's complement."""
        unscaled, done = _unscaled_octets(octets)
        return self._scaled(
            unscaled, done, null_mask(octets), scale, lambda indexes: self._each(octets, scale, indexes)
        )

    def _each(self, octets: pa.Array, scale: int, indexes: Sequence[int]) -> Converted:
        return self._array([self._of_octets(octets[index].as_py(), scale) for index in indexes])

    def _of_octets(self, octets: bytes, scale: int) -> Cell:
        if not 1 <= len(octets) <= UNSCALED_BYTES_MAX:
            return LOST
        return self._fitted(unscaled_number(int.from_bytes(octets, "big", signed=True), scale))

    def _convert_texts(self, values: Values) -> Converted:
        is_coded = self._dialect.digits_are_coded if self._fact is None else self._fact.name == CONNECT_DECIMAL
        if not is_coded:
            return self._convert_plain(values)
        texts = pa.array(values, pa.string())
        if self._is_pointed(texts, values):
            return self._cast_fitting(texts), None
        unscaled, done = _unscaled(texts)
        if self._fact is None:
            # Eight letters that could be base64, and what Debezium writes for an infinite number.
            done &= ~pc.equal(texts, "Infinity").fill_null(False).to_numpy(zero_copy_only=False)
        return self._scaled(
            unscaled,
            done,
            null_mask(texts),
            self._coded_scale,
            lambda indexes: self._convert_rest([values[index] for index in indexes]),
        )

    def _scaled(
        self,
        unscaled: npt.NDArray[np.int64],
        done: Mask,
        nulls: Mask,
        scale: int,
        rest_by: Callable[[Sequence[int]], Converted],
    ) -> Converted:
        """The numbers of this scale, where they are `done`; the others, by their indexes, by `rest_by`."""
        shift = self._scale - scale
        bound = 10 ** min(self._precision, 18)
        if shift < 0 or shift > 18:
            done[:] = False
        elif shift:
            limit = (2**63 - 1) // 10**shift
            done &= (unscaled <= limit) & (unscaled >= -limit)
            unscaled = np.where(done, unscaled, 0) * 10**shift
        if self._precision < 19:
            done &= (unscaled < bound) & (unscaled > -bound)
        rest = np.flatnonzero(~done & ~nulls)
        if len(rest) == 0:
            return _decimals(unscaled, nulls, self.arrow), None
        others, bad = rest_by(rest.tolist())
        all_bad = None
        if bad is not None:
            all_bad = np.zeros(len(done), bool)
            all_bad[rest[bad]] = True
        whole = _decimals(np.where(done, unscaled, 0), ~done, self.arrow)
        return pc.replace_with_mask(whole, pa.array(~done & ~nulls), others), all_bad


def _decimals(unscaled: npt.NDArray[np.int64], nulls: Mask, arrow: pa.DataType) -> pa.Array:
    words = np.empty((len(unscaled), 2), np.int64)
    words[:, 0] = unscaled
    words[:, 1] = unscaled >> 63
    return with_nulls(words, nulls, arrow)


def _unscaled_octets(values: pa.Array) -> tuple[npt.NDArray[np.int64], Mask]:
    """The numbers of 1 to 8 bytes, and where there is one."""
    count = len(values)
    numbers, done = np.zeros(count, np.int64), np.zeros(count, bool)
    _, offset_buffer, data_buffer = values.buffers()
    if data_buffer is None:
        return numbers, done
    offsets = np.frombuffer(offset_buffer, np.int32, count + 1 + values.offset)[values.offset :].astype(np.int64)
    octets = np.frombuffer(data_buffer, np.uint8)
    lengths = np.where(null_mask(values), 0, np.diff(offsets))
    for length in range(1, 9):
        indexes = np.flatnonzero(lengths == length)
        if not len(indexes):
            continue
        wide = np.zeros((len(indexes), 8), np.uint8)
        wide[:, :length] = octets[offsets[indexes][:, None] + np.arange(length)]
        numbers[indexes] = wide.view(">i8")[:, 0] >> (64 - 8 * length)
        done[indexes] = True
    return numbers, done


def _unscaled(texts: pa.Array) -> tuple[npt.NDArray[np.int64], Mask]:
    """The numbers of base64 texts of 1 to 8 bytes, and where there is one."""
    count = len(texts)
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, count + 1 + texts.offset)[texts.offset :]
    numbers, done = np.zeros(count, np.int64), np.zeros(count, bool)
    if data_buffer is None:
        return numbers, done
    octets = np.frombuffer(data_buffer, np.uint8)
    lengths = np.diff(offsets)
    for length in range(4, _NARROW_TEXT_MAX + 1, 4):
        indexes = np.flatnonzero(lengths == length)
        if not len(indexes):
            continue
        symbols = octets[offsets[indexes][:, None] + np.arange(length)]
        pads = (symbols[:, -1] == _PAD).astype(np.int64) + ((symbols[:, -1] == _PAD) & (symbols[:, -2] == _PAD))
        sextets = _SEXTETS[symbols]
        for pad in (1, 2):
            sextets[pads >= pad, -pad] = 0
        size = length // 4 * 3 - pads
        is_valid = (sextets != _INVALID).all(axis=1) & (size <= 8)
        # 9 bytes hold 72 bits: the top sextets go first, the padding is shifted out at the end.
        bits = np.zeros(len(indexes), np.uint64)
        for column in range(length - 2):
            bits = (bits << np.uint64(6)) | sextets[:, column].astype(np.uint64)
        # The last two sextets hold what the padding leaves of them: 12 bits, 4 after one `=`, none after two.
        tail = (sextets[:, -2].astype(np.uint64) << np.uint64(6)) | sextets[:, -1].astype(np.uint64)
        dropped = (pads * 8).astype(np.uint64)
        kept = np.uint64(12) - np.minimum(dropped, np.uint64(12))
        whole = np.where(
            dropped > 12, bits >> np.uint64(4), (bits << kept) | (tail >> np.minimum(dropped, np.uint64(12)))
        )
        shift = (np.uint64(64) - (size * 8).astype(np.uint64)) % np.uint64(64)
        signed = (whole << shift).view(np.int64) >> shift.view(np.int64)
        numbers[indexes] = np.where(is_valid, signed, 0)
        done[indexes] = is_valid
    return numbers, done
