"""Casts to and from text, as the format renders and reads values.

| type | text |
|---|---|
| BOOLEAN | `true`, `false`; read: t, true, y, yes, 1, f, false, n, no, 0 in any case |
| integers | `-12`; read with sign and with a fraction, which is cut |
| FLOAT, DOUBLE | as Java prints them: `1.5`, `1.0E7`, `1.0E-4`, `NaN`, `Infinity` |
| DECIMAL | plain, `-1.50` |
| DATE | `2024-01-31`; read also with short parts, or as epoch days |
| TIME(p) | `12:34:56`, p > 0 with a fraction whose trailing zeros are cut to one digit |
| TIMESTAMP(p) | `2024-01-31 12:34:56.123`, exactly p digits; LTZ in UTC; read also as ticks since the epoch |
| BINARY | the bytes as UTF-8 |
| ARRAY, MAP, ROW | `[a, null]`, `{k -> v}`, `{a, b}`, parts by these same rules |

CHAR(n) and VARCHAR(n) are cut at n characters, CHAR is padded with blanks; BINARY(n) alike with zero bytes. Text that
does not read as the type is refused with the text: a wrong value must not pass as NULL.

Regular text is converted by Arrow for the whole array; only forms that Arrow does not know are looked at one by one,
each distinct text once. Source: FORMAT.md §13.

Casts from and to DECIMAL on whole arrays: rounded half up, NULL where a value does not fit.

Rounding happens in 256 bits, where no value of 38 digits overflows. Source: FORMAT.md §13.
"""

from __future__ import annotations

import calendar
import contextlib
import datetime
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.codec.binary_row import EPOCH_DAY_ORDINAL
from freshet.storage.codec.partition_path import float_text
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.arrow_types import arrow_type, decimal_texts
from freshet.storage.model.data_type import (
    FLOAT_ROOTS,
    INTEGER_ROOTS,
    LENGTH_MAX,
    TIMESTAMP_ROOTS,
    ArrayType,
    DataType,
    MapType,
    RowType,
    ScalarType,
    TypeRoot,
    child_types,
)
from freshet.storage.model.nested_arrays import Nested

NESTED_TO_TEXT_ROOTS: Final = frozenset({TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW})

_R = TypeRoot
_PLAIN_FLOAT_MIN: Final = 1e-3
_PLAIN_FLOAT_MAX: Final = 1e7
_TRUE_TEXTS: Final = pa.array(["t", "true", "y", "yes", "1"])
_FALSE_TEXTS: Final = pa.array(["f", "false", "n", "no", "0"])
_INTEGER_TEXT: Final = r"^[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]*)$"
_DECIMAL_TEXT: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$", re.ASCII)
_REGULAR_DATE: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_REGULAR_TIMESTAMP: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(?: [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?)?$"
_LOOSE_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?)?$", re.ASCII
)
_LOOSE_DATE: Final = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*(?:-\s*(\d+)\s*)?)?$", re.ASCII)
_LOOSE_TIME: Final = re.compile(
    r"\s*(\d+)\s*(?::\s*(\d+)\s*(?::\s*(\d+)\s*(?:\.(\d*)\s*)?)?)?(?:([+-])\s*(\d+)\s*(?::\s*(\d+)\s*)?)?$", re.ASCII
)

_WIDE: Final = 76
_EXACT_DIGITS: Final = 18
"""Digits that a double quotient of two exact doubles renders as well as the decimal itself: the format's own rule."""
_SIGNIFICANT: Final = 18
"""More decimal digits than the shortest text of a double has."""


def to_text(array: pa.Array[Any], source: DataType, target: ScalarType) -> pa.Array[Any]:
    """Any column as CHAR or VARCHAR."""
    text = _rendered(array, source)
    length = target.length or 0
    if source.root in (*NESTED_TO_TEXT_ROOTS, _R.BINARY, _R.VARBINARY, _R.DATE, _R.TIME, *TIMESTAMP_ROOTS):
        return text
    if length < LENGTH_MAX:
        text = pc.utf8_slice_codeunits(text, 0, length)
    return pc.utf8_rpad(text, width=length) if target.root is _R.CHAR else text


def from_text(array: pa.Array[Any], target: ScalarType) -> pa.Array[Any]:
    """CHAR or VARCHAR as any scalar; raises `InvalidRequestError` with the first text that does not read."""
    goal = arrow_type(target)
    try:
        if target.root is _R.BOOLEAN:
            return _booleans(array)
        if target.root in INTEGER_ROOTS:
            return _integers(array, goal)
        if target.root in FLOAT_ROOTS:
            return _floats(array, goal)
        if target.root is _R.DECIMAL:
            return _decimals(array, target)
        if target.root in (_R.BINARY, _R.VARBINARY):
            return fit_binary(array.cast(pa.binary()), target)
        if target.root is _R.DATE:
            if pc.all(pc.match_substring_regex(array, _REGULAR_DATE), min_count=0).as_py() is not False:
                return array.cast(goal)
            return _one_by_one(array, _epoch_day, pa.int32()).cast(goal)
        if target.root is _R.TIME:
            return _one_by_one(array, _milli_of_day, pa.int32()).cast(goal)
        return _timestamps(array, target)
    except (pa.ArrowInvalid, ValueError, ArithmeticError) as error:
        raise InvalidRequestError(f"text does not read as {target}: {error}") from error


def fit_binary(array: pa.Array[Any], target: ScalarType) -> pa.Array[Any]:
    """Bytes cut at the length of the type; BINARY is padded with zero bytes."""
    length = target.length or 0
    longest = pc.max(pc.binary_length(array)).as_py() or 0
    shortest = pc.min(pc.binary_length(array)).as_py() or 0
    if longest > length:
        array = pc.binary_slice(array, 0, length)
    if target.root is _R.BINARY and shortest < length:
        zeros = pa.array([bytes(length)] * len(array), pa.binary())
        array = pc.binary_slice(pc.binary_join_element_wise(array, zeros, b""), 0, length)
    return array


def _rendered(array: pa.Array[Any], source: DataType) -> pa.Array[Any]:
    if isinstance(source, ScalarType):
        return _rendered_scalar(array, source)
    whole = Nested.of(array)
    children = zip(whole.children, child_types(source), strict=True)
    parts = [_rendered(child, part).fill_null("null") for child, part in children]
    match source:
        case ArrayType():
            return _bracketed("[", pc.binary_join(whole.lists(parts[0]), ", "), "]")
        case MapType():
            entries = pc.binary_join_element_wise(*parts, " -> ")
            return _bracketed("{", pc.binary_join(whole.lists(entries), ", "), "}")
        case RowType():
            row = _bracketed("{", pc.binary_join_element_wise(*parts, ", "), "}")
            return pc.if_else(array.is_valid(), row, pa.scalar(None, pa.string()))


def _rendered_scalar(array: pa.Array[Any], source: ScalarType) -> pa.Array[Any]:
    if source.root in FLOAT_ROOTS:
        return _float_texts(array)
    if source.root is _R.DECIMAL:
        return decimal_texts(array)
    if source.root in (_R.BINARY, _R.VARBINARY):
        return _utf8(array)
    if source.root is _R.TIME:
        return _time_texts(array, source.precision or 0)
    if source.root in TIMESTAMP_ROOTS:
        precision = source.precision or 0
        text = array.cast(pa.timestamp(array.type.unit)).cast(pa.string())
        return pc.utf8_slice_codeunits(text, 0, 19 + (precision + 1 if precision else 0))
    return array.cast(pa.string())


def _bracketed(left: str, text: pa.Array[Any], right: str) -> pa.Array[Any]:
    return pc.binary_join_element_wise(left, text, right, "")


def _float_texts(array: pa.Array[Any]) -> pa.Array[Any]:
    size = pc.abs(array)
    is_plain = pc.or_(
        pc.and_(pc.greater_equal(size, _PLAIN_FLOAT_MIN), pc.less(size, _PLAIN_FLOAT_MAX)), pc.equal(size, 0)
    )
    text = array.cast(pa.string())
    text = pc.if_else(pc.match_substring(text, "."), text, pc.binary_join_element_wise(text, ".0", ""))
    if pc.all(is_plain, min_count=0).as_py() is not False:
        return text
    kind = np.float32 if pa.types.is_float32(array.type) else np.float64
    rest = pc.if_else(is_plain, pa.scalar(None, array.type), array)
    return pc.coalesce(_one_by_one(rest, lambda value: float_text(kind(value)), pa.string()), text)


def _time_texts(array: pa.Array[Any], precision: int) -> pa.Array[Any]:
    text = array.cast(pa.string())
    if precision == 0:
        return pc.utf8_slice_codeunits(text, 0, 8)
    cut = pc.utf8_slice_codeunits(text, 0, 9 + min(precision, 3))
    return pc.replace_substring_regex(cut, pattern=r"(\.\d+?)0+$", replacement=r"\1")


def _utf8(array: pa.Array[Any]) -> pa.Array[Any]:
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return _one_by_one(array, lambda value: value.decode(errors="replace"), pa.string())


def _booleans(array: pa.Array[Any]) -> pa.Array[Any]:
    lower = pc.utf8_lower(array)
    is_true = pc.is_in(lower, value_set=_TRUE_TEXTS)
    _refuse(array, pc.or_(is_true, pc.is_in(lower, value_set=_FALSE_TEXTS)))
    return pc.if_else(array.is_valid(), is_true, pa.scalar(None, pa.bool_()))


def _integers(array: pa.Array[Any], goal: pa.DataType) -> pa.Array[Any]:
    _refuse(array, pc.match_substring_regex(array, _INTEGER_TEXT))
    whole = pc.replace_substring_regex(array, pattern=r"^\+|\..*$", replacement="")
    # Only a sign or nothing before the point: zero.
    return pc.if_else(pc.is_in(whole, value_set=pa.array(["", "-"])), "0", whole).cast(goal)


def _floats(array: pa.Array[Any], goal: pa.DataType) -> pa.Array[Any]:
    return pc.replace_substring_regex(pc.utf8_trim_whitespace(array), pattern="[dDfF]$", replacement="").cast(goal)


def _decimals(array: pa.Array[Any], target: ScalarType) -> pa.Array[Any]:
    # Arrow looks up the power of ten of an exponent beyond its table: 1e-99999999 ended the process.
    is_far = pc.any(pc.match_substring_regex(array, "[eE][+-]?[0-9]{3}")).as_py()
    with contextlib.suppress(pa.ArrowInvalid):
        if not is_far:
            return rescale(array.cast(pa.decimal256(76, 37)), target)
    return _one_by_one(array, lambda text: _decimal(text, target), arrow_type(target))


def _decimal(text: str, target: ScalarType) -> Decimal | None:
    precision, scale = target.precision or 0, target.scale or 0
    if _DECIMAL_TEXT.match(text) is None:
        raise ValueError(f"{text!r}")
    number = Decimal(text)
    limit = Decimal(10) ** (precision - scale)
    if number.copy_abs() >= limit:
        return None
    rounded = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, Context(prec=max(80, len(text) + scale)))
    return rounded if rounded.copy_abs() < limit else None


def _timestamps(array: pa.Array[Any], target: ScalarType) -> pa.Array[Any]:
    goal = arrow_type(target)
    precision = target.precision or 0
    naive = pa.timestamp(goal.unit)
    is_regular = pc.match_substring_regex(array, _REGULAR_TIMESTAMP)
    if pc.all(is_regular, min_count=0).as_py() is not False:
        cut = pc.utf8_slice_codeunits(array, 0, 20 + precision if precision else 19)
        with contextlib.suppress(pa.ArrowInvalid):  # 30 February, or 24:00
            return cut.cast(naive).cast(goal)
    return _one_by_one(array, lambda text: _ticks(text, target), pa.int64()).cast(naive).cast(goal)


def _ticks(text: str, target: ScalarType) -> int:
    precision = target.precision or 0
    if text.isascii() and text.isdigit() and target.root is _R.TIMESTAMP:
        if precision not in (0, 3, 6, 9):
            raise ValueError(f"{text!r}: numbers read as TIMESTAMP(0), (3), (6) and (9) only")
        return int(text)
    match = _LOOSE_TIMESTAMP.match(text)
    if match is None:
        raise ValueError(f"{text!r}")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    ends_day = (hour, minute, second) == (24, 0, 0)
    if not (1 <= month <= 12 and 1 <= day <= 31 and minute < 60 and second < 60 and (hour < 24 or ends_day)):
        raise ValueError(f"{text!r}")
    # The format's own reader takes a day that the month does not have as the month's last one, and 24:00 as midnight.
    date = datetime.date(year, month, min(day, calendar.monthrange(year, month)[1]))
    seconds = (date.toordinal() - EPOCH_DAY_ORDINAL) * 86_400 + hour * 3600 + minute * 60 + second
    unit_digits = {0: 0, 1: 3, 2: 3, 3: 3, 4: 6, 5: 6, 6: 6}.get(precision, 9)
    fraction = (match[7] or "")[:precision].ljust(unit_digits, "0")
    return int(seconds * 10**unit_digits) + int(fraction or 0)


def _epoch_day(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    head = text.split(" ", 1)[0] if text.find(" ") > 0 else text
    match = _LOOSE_DATE.match(head)
    if match is None:
        raise ValueError(f"{text!r}")
    year, month, day = (int(part or 1) for part in match.groups())
    return datetime.date(year, month, day).toordinal() - EPOCH_DAY_ORDINAL


def _milli_of_day(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    match = _LOOSE_TIME.match(text)
    if match is None:
        raise ValueError(f"{text!r}")
    hour, minute, second = int(match[1]), int(match[2] or 0), int(match[3] or 0)
    fraction = match[4] or ""
    milli = int(fraction[:3].ljust(3, "0")) + (1 if fraction[3:4] >= "5" else 0)
    if match[5]:
        sign = 1 if match[5] == "+" else -1
        hour, minute = hour + sign * int(match[6]), minute + sign * int(match[7] or 0)
    total = hour * 3_600_000 + minute * 60_000 + second * 1000 + milli
    if not 0 <= total < 86_400_000:
        raise ValueError(f"{text!r}")
    return total


def _one_by_one(array: pa.Array[Any], convert: Callable[[Any], Any], goal: pa.DataType) -> pa.Array[Any]:
    """Converts each distinct value once."""
    encoded = array.dictionary_encode()
    values = pa.array([convert(value) for value in encoded.dictionary.to_pylist()], goal)
    return values.take(encoded.indices)


def _refuse(array: pa.Array[Any], reads: pa.Array[Any]) -> None:
    if pc.all(reads, min_count=0).as_py() is False and array.null_count < len(array):
        wrong = array.filter(pc.and_(pc.invert(reads), array.is_valid()))
        if len(wrong):
            raise ValueError(repr(wrong[0].as_py()))


def rescale(array: pa.Array[Any], target: ScalarType) -> pa.Array[Any]:
    """A decimal array at another precision and scale."""
    precision, scale = _digits(target)
    goal = pa.decimal128(precision, scale)
    wide: pa.Array[Any] = array.cast(pa.decimal256(_WIDE, array.type.scale))
    if array.type.scale > scale:
        wide = pc.round(wide, ndigits=scale, round_mode="half_towards_infinity")
    if array.type.precision - array.type.scale >= precision - scale:
        limit = pa.scalar(Decimal(10) ** (precision - scale), wide.type)
        wide = pc.if_else(pc.less(pc.abs(wide), limit), wide, pa.scalar(None, wide.type))
    return wide.cast(goal)


def float_to_decimal(array: pa.Array[Any], target: ScalarType) -> pa.Array[Any]:
    """Doubles by their shortest text, so that 0.1 becomes 0.1; NULL for NaN and infinities."""
    precision, scale = _digits(target)
    limit = 10.0 ** (precision - scale)
    within = pc.and_(pc.is_finite(array), pc.less(pc.abs(array), limit))
    kept = pc.if_else(within, array, pa.scalar(None, pa.float64()))
    # Below half of the last digit the text may need more digits than 256 bits hold; such a value is zero anyway.
    tiny = pc.less(pc.abs(kept), 10.0 ** -(scale + 1))
    texts = pc.if_else(tiny, 0.0, kept).cast(pa.string())
    return rescale(texts.cast(pa.decimal256(_WIDE, scale + _SIGNIFICANT)), target)


def decimal_to_integer(array: pa.Array[Any]) -> pa.Array[Any]:
    """The integer part in 64 bits; higher bits are lost, as in Java."""
    whole = pc.trunc(array.cast(pa.decimal256(_WIDE, array.type.scale))).cast(pa.decimal128(38, 0))
    low = np.frombuffer(whole.buffers()[1], np.int64)[2 * whole.offset :: 2][: len(whole)]
    nulls = whole.is_null().to_numpy(zero_copy_only=False) if whole.null_count else None
    return pa.array(low, pa.int64(), mask=nulls)


def decimal_to_float(array: pa.Array[Any]) -> pa.Array[Any]:
    """The nearest double."""
    if array.type.precision > _EXACT_DIGITS:
        return array.cast(pa.string()).cast(pa.float64())
    low = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset :: 2][: len(array)]
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(low.astype(np.float64) / float(10**array.type.scale), pa.float64(), mask=nulls)


def _digits(target: ScalarType) -> tuple[int, int]:
    assert target.precision is not None
    assert target.scale is not None
    return target.precision, target.scale
