"""What a change of a column's type can do to the values that are stored already: nothing, or a loss, in words.

Readers cast (`casts`) without complaint: a number wraps, a text is cut, a fraction goes, or reading fails altogether.
So a change of type warns before. A loss is what can happen to some value of the old type; whether such a value
is stored is not looked at.
"""

from __future__ import annotations

from typing import Final

from freshet.storage.casts.casts import keeps_values
from freshet.storage.model.data_type import (
    BYTES_ROOTS,
    LENGTH_MAX,
    TEXT_ROOTS,
    TIMESTAMP_ROOTS,
    ArrayType,
    DataType,
    MapType,
    RowType,
    ScalarType,
    TypeRoot,
)

_R = TypeRoot
_DIGITS: Final = {_R.TINYINT: 3, _R.SMALLINT: 5, _R.INT: 10, _R.BIGINT: 19}
_EXACT_BITS: Final = {_R.FLOAT: 24, _R.DOUBLE: 53}
"""Integers up to 2**bits are exact in a float."""
_INTEGER_BITS: Final = {_R.TINYINT: 7, _R.SMALLINT: 15, _R.INT: 31, _R.BIGINT: 63}
_NANO_PRECISION_MIN: Final = 7

_ROUNDED: Final = "numbers are rounded"
_FRACTION: Final = "fractions are cut"
_WRAPPED: Final = "numbers that do not fit wrap around to others"
_NULLED: Final = "numbers that do not fit become NULL"
_YEARS: Final = "reading fails for times outside the years 1677 to 2262"


def possible_loss(source: DataType, target: DataType) -> str | None:
    """What the change can do to a value, as a clause such as 'fractions are cut'; None where every value stays."""
    match source, target:
        case RowType(), RowType():
            kept = {field.id: field for field in target.fields}
            gone = [field.name for field in source.fields if field.id not in kept]
            if gone:
                return f"the values of field {gone[0]} are gone"
            losses = (possible_loss(field.type, kept[field.id].type) for field in source.fields)
            return next((loss for loss in losses if loss is not None), None)
        case ArrayType(), ArrayType():
            return possible_loss(source.element, target.element)
        case MapType(), MapType():
            return possible_loss(source.value, target.value)
        case ScalarType(), ScalarType():
            return None if keeps_values(source, target) else _scalar_loss(source, target)
    if isinstance(target, ScalarType) and target.root in TEXT_ROOTS:
        return _text_loss(None, target)
    return "existing values cannot be cast"


def _scalar_loss(source: ScalarType, target: ScalarType) -> str | None:
    if target.root in TEXT_ROOTS:
        return _text_loss(source, target)
    if target.root in BYTES_ROOTS:
        return _bytes_loss(source, target)
    if source.root in TEXT_ROOTS:
        return f"reading fails for text that is not a valid {target}"
    if target.root is _R.DECIMAL:
        return _decimal_loss(source, target)
    if target.root in _INTEGER_BITS:
        return _integer_loss(source, target)
    if target.root in _EXACT_BITS:
        is_exact = source.root in (_R.BOOLEAN, _R.FLOAT) or (
            _INTEGER_BITS.get(source.root, 99) <= _EXACT_BITS[target.root]
        )
        return None if is_exact else _ROUNDED
    if target.root is _R.BOOLEAN:
        return "all numbers but 0 become TRUE"
    return _time_loss(source, target)


def _text_loss(source: ScalarType | None, target: ScalarType) -> str | None:
    if target.root is _R.CHAR:
        return f"text that is longer than {target.length} characters is cut, shorter text is padded"
    if target.length == LENGTH_MAX:
        return "reading fails for bytes that are not text in UTF-8" if source and source.root in BYTES_ROOTS else None
    digits = None if source is None else _DIGITS.get(source.root)
    is_short = digits is not None and digits + 1 <= (target.length or 0)
    return None if is_short else f"text that is longer than {target.length} characters is cut"


def _bytes_loss(source: ScalarType, target: ScalarType) -> str | None:
    if source.root in TEXT_ROOTS and target.root is _R.VARBINARY and target.length == LENGTH_MAX:
        return None
    padded = ", shorter ones are padded with zeros" if target.root is _R.BINARY else ""
    return f"values that are longer than {target.length} bytes are cut{padded}"


def _decimal_loss(source: ScalarType, target: ScalarType) -> str | None:
    scale, whole = target.scale or 0, (target.precision or 0) - (target.scale or 0)
    if source.root in _EXACT_BITS:
        return f"{_ROUNDED}, and {_NULLED}"
    if source.root is _R.DECIMAL:
        if scale < (source.scale or 0):
            return _ROUNDED
        digits = (source.precision or 0) - (source.scale or 0)
    else:
        digits = _DIGITS.get(source.root, 1)
    return None if digits <= whole else _NULLED


def _integer_loss(source: ScalarType, target: ScalarType) -> str | None:
    if source.root is _R.BOOLEAN:
        return None
    if source.root is _R.DECIMAL:
        fits = (source.precision or 0) - (source.scale or 0) < _DIGITS[target.root]
        cut = _FRACTION if source.scale else None
        return cut if fits else " and ".join(filter(None, (cut, _WRAPPED)))
    if source.root in _EXACT_BITS:
        return f"{_FRACTION}, and numbers that do not fit become the nearest that does"
    if source.root in TIMESTAMP_ROOTS:
        wraps = f", and {_WRAPPED}" if target.root is not _R.BIGINT else ""
        return f"fractions of a second are cut{wraps}"
    return _WRAPPED


def _time_loss(source: ScalarType, target: ScalarType) -> str | None:
    is_nanos = target.root in TIMESTAMP_ROOTS and (target.precision or 0) >= _NANO_PRECISION_MIN
    if source.root in TIMESTAMP_ROOTS and target.root is _R.DATE:
        return "the time of day is gone"
    if source.root in TIMESTAMP_ROOTS and target.root is _R.TIME:
        return "the date is gone"
    if source.root in TIMESTAMP_ROOTS and source.root is not target.root:
        return "readers in other time zones than UTC see other times"
    if source.root in (*TIMESTAMP_ROOTS, _R.TIME) and (target.precision or 0) < (source.precision or 0):
        return "fractions of a second are cut"
    if is_nanos and not (source.root in TIMESTAMP_ROOTS and (source.precision or 0) >= _NANO_PRECISION_MIN):
        return None if source.root is _R.TIME else _YEARS
    if source.root is _R.BIGINT:
        return "numbers become seconds since 1970, and reading fails for those that are not times"
    return None
