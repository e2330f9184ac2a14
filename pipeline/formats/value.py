"""What a conversion reads: one JSON value, and how its source writes values that JSON has no type for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from freshet.pipeline.config.model import SourceConfig

NO_VARIANT = "CAST(NULL AS VARIANT)"
"""The variant of a text that an expression gave."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """SQL texts that give one value.

    `schema_name` is the type name in the record's schema: NULL when the record brings none, '' when the type has no
    name; `schema_scale` the scale there. `is_string` tells a JSON string from a number. `variant` is `NO_VARIANT` for a
    text that is no JSON value. `depth` counts the lambdas around the value, so that their variables differ.
    """

    text: str
    variant: str
    is_string: str
    schema_name: str = "CAST(NULL AS STRING)"
    schema_scale: str = "CAST(NULL AS STRING)"
    depth: int = 0


def member_leaf(variant: str, depth: int) -> Leaf:
    """A value inside another one."""
    return Leaf(f"CAST({variant} AS STRING)", variant, f"(schema_of_variant({variant}) = 'STRING')", depth=depth)


def text_leaf(text: str) -> Leaf:
    """A text that an expression gave."""
    return Leaf(text, NO_VARIANT, "true")


def text_of(json: str, variant: str) -> str:
    """The text of a value from its JSON form: 0.4 µs; the cast of the variant, which is left for escapes, 0.8 µs."""
    inner = f"substr({json}, 2, length({json}) - 2)"
    return (
        f"CASE WHEN startswith({json}, '\"') THEN "
        f"CASE WHEN contains({json}, chr(92)) THEN CAST({variant} AS STRING) ELSE {inner} END "
        f"WHEN {json} <> 'null' THEN {json} END"
    )


def is_json_string(json: str) -> str:
    """True when the JSON form is that of a string."""
    return f"startswith({json}, '\"')"


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
