"""What a conversion reads: one JSON value, and how its source writes values that JSON has no type for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.config_model import SourceConfig

NO_VARIANT = "CAST(NULL AS VARIANT)"
"""The variant of a text that an expression gave."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """SQL texts that give one value.

    `schema_name` is the type name in the record's schema: NULL when the record brings none, '' when the type has no
    name; `schema_scale` the scale there. `variant` is `NO_VARIANT` for a text that is no JSON value. `depth` counts the
    lambdas around the value, so that their variables differ.
    """

    text: str
    variant: str
    schema_name: str = "CAST(NULL AS STRING)"
    schema_scale: str = "CAST(NULL AS STRING)"
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Dialect:
    """How values without a JSON type are written.

    `coded_decimals`: decimals may be base64 of the unscaled number; `digits_are_coded`: so are texts of digits alone.
    `numeric_times`: Debezium's time.precision.mode, `isostring` refuses numbers. `binary_mode`: base64, base64-url-safe
    or hex.
    """

    coded_decimals: bool
    digits_are_coded: bool
    numeric_times: str
    binary_mode: str


PLAIN_TEXT = Dialect(coded_decimals=False, digits_are_coded=False, numeric_times="isostring", binary_mode="base64")
"""Texts that expressions give: numbers and ISO times."""

Step = Callable[[Leaf, str], str]
"""SQL text from the value and from the result of the step before."""


def dialect_of(source: SourceConfig) -> Dialect:
    """The dialect that a source's configuration describes."""
    return Dialect(
        coded_decimals=source.is_debezium,
        digits_are_coded=source.is_debezium and source.decimal_handling_mode == "precise",
        numeric_times=source.numeric_times,
        binary_mode="base64" if source.binary_handling_mode == "bytes" else source.binary_handling_mode,
    )
