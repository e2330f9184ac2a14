"""Numbers as texts write them: exact, and without arithmetic whose cost the text chooses.

`1e-99999999` has ten characters and, as a fraction, 33 megabytes; `int` and `Fraction` refuse texts of more than 4300
digits. Digits and exponent say of both whether they can fit a type, before anything is computed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_FORM: Final = re.compile(r"\s*([+-]?)(?=[.]?[0-9])([0-9]*)(?:[.]([0-9]*))?(?:[eE]([+-]?)([0-9]+))?\s*")
_EXPONENT_DIGITS_MAX: Final = 18
"""A longer exponent is as good as this one: no text has as many digits."""


@dataclass(frozen=True, slots=True)
class WrittenNumber:
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
