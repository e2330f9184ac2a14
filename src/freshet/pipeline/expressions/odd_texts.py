"""Texts that DuckDB reads or writes in another way than Java, computed one by one: they are rare.

DuckDB gets them as functions from a text to a text; which texts those are, the expressions of `casts` and `functions`
say. Letters are those of which an upper or lower form is several letters, or depends on the letters around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_DOWN, Context, Decimal, InvalidOperation
from typing import Final

ODD_DOUBLE: Final = "freshet_double"
ODD_DECIMAL: Final = "freshet_decimal"
ODD_UPPER: Final = "freshet_upper"
ODD_LOWER: Final = "freshet_lower"

_SEVERAL_UPPER: Final = (
    "ßŉǰΐΰև\u1e96-\u1e9aὐὒὔὖ\u1f80-\u1faf\u1fb2-\u1fb4\u1fb6\u1fb7\u1fbc\u1fc2-\u1fc4\u1fc6\u1fc7\u1fcc\u1fd2\u1fd3"
    "\u1fd6\u1fd7\u1fe2-\u1fe4\u1fe6\u1fe7\u1ff2-\u1ff4\u1ff6\u1ff7\u1ffc\ufb00-\ufb06\ufb13-\ufb17"
)
"""Letters whose upper form is not one letter, as a class of regular expressions."""
_SEVERAL_LOWER: Final = "Σİ"
"""Letters whose lower form is not one letter, or depends on what is around it."""
_NEW_UPPER: Final = {
    0x19B: 0xA7DC, 0x264: 0xA7CB, 0x1C8A: 0x1C89, 0xA7CD: 0xA7CC, 0xA7CF: 0xA7CE, 0xA7D3: 0xA7D2, 0xA7D5: 0xA7D4,
    0xA7DB: 0xA7DA, **{code: code - 0x20 for code in range(0x10D70, 0x10D86)},
    **{code: code - 0x1B for code in range(0x16EBB, 0x16ED4)},
}  # fmt: skip
"""Letters that have an upper form since a version of Unicode that Spark knows, and DuckDB and Python do not."""
_NEW_LOWER: Final = {upper: lower for lower, upper in _NEW_UPPER.items()}
ODD_LETTERS_UPPER: Final = _SEVERAL_UPPER + "".join(map(chr, _NEW_UPPER))
ODD_LETTERS_LOWER: Final = _SEVERAL_LOWER + "".join(map(chr, _NEW_LOWER))

_BLANKS: Final = "".join(map(chr, range(33)))
_HEX: Final = re.compile(r"([+-]?)0[xX]([0-9a-fA-F]*)\.?([0-9a-fA-F]*)[pP]([+-]?[0-9]+)[dDfF]?")
_FLOATING: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")
_NAMED: Final = re.compile(r"[+-]?(NaN|Infinity)")
_WORDS: Final = {
    "inf": "inf", "+inf": "inf", "infinity": "inf", "+infinity": "inf", "-inf": "-inf", "-infinity": "-inf",
    "nan": "nan",
}  # fmt: skip
_DIGITS: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_EXPONENT_MAX: Final = 2**31 - 1
_KEPT_DIGITS: Final = 200


def upper_text(text: str) -> str:
    """The text in upper letters."""
    return text.upper().translate(_NEW_UPPER)


def lower_text(text: str) -> str:
    """The text in lower letters."""
    return text.lower().translate(_NEW_LOWER)


def double_text(text: str) -> str:
    """A text that Java reads as a DOUBLE, as DuckDB reads it; nothing for others."""
    stripped = text.strip(_BLANKS)
    if _FLOATING.fullmatch(stripped):
        return stripped.rstrip("dDfF")
    if _NAMED.fullmatch(stripped):
        return "nan" if "NaN" in stripped else stripped
    found = _HEX.fullmatch(stripped)
    if found is not None and found[2] + found[3]:
        return repr(_hexadecimal(found))
    return _WORDS.get(text.strip(_BLANKS + "\x7f").lower(), "")


def _hexadecimal(found: re.Match[str]) -> float:
    try:
        return float.fromhex(f"{found[1]}0x{found[2] or '0'}.{found[3] or '0'}p{found[4]}")
    except OverflowError:
        return float(f"{found[1]}inf")


def decimal_text(text: str, scale: int) -> str:
    """A text that Java reads as a decimal, without exponent, one digit more than the scale; nothing for others."""
    stripped = text.strip(_BLANKS)
    found = _DIGITS.fullmatch(stripped)
    if found is None:
        return ""
    if found[2] is not None and abs(int(found[2][1:])) > _EXPONENT_MAX:
        return ""
    try:
        number = Decimal(stripped)
    except InvalidOperation:
        return ""
    if number.adjusted() > _KEPT_DIGITS:
        return "0" if not number else ""
    if number.adjusted() < -_KEPT_DIGITS:
        return "0"
    context = Context(prec=3 * _KEPT_DIGITS, rounding=ROUND_DOWN)
    return format(number.quantize(Decimal(1).scaleb(-scale - 1), context=context), "f")


ODD_TEXTS: Final[dict[str, tuple[Callable[..., str], list[str]]]] = {
    ODD_DOUBLE: (double_text, ["VARCHAR"]),
    ODD_DECIMAL: (decimal_text, ["VARCHAR", "INTEGER"]),
    ODD_UPPER: (upper_text, ["VARCHAR"]),
    ODD_LOWER: (lower_text, ["VARCHAR"]),
}
"""Functions and the types of their arguments, by the name that DuckDB has for them."""
