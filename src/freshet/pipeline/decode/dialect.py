"""How a source writes values that JSON has no type for."""

from __future__ import annotations

from typing import Final

from freshet._frozen import Frozen
from freshet.pipeline.config.model import SourceConfig

BYTES: Final = "bytes"
STRING: Final = "string"


class Dialect(Frozen):
    """How values without a JSON type are written.

    `coded_decimals`: decimals may be base64 of the unscaled number; `digits_are_coded`: so are texts without a schema,
    even if they are numbers too. `numeric_times`: Debezium's time.precision.mode, `isostring` refuses numbers.
    `binary_mode`: bytes or base64, base64-url-safe, hex, or `latin1`: a character is a byte. `named_times`: where there
    is a schema, a number is a time only if the schema calls it one.
    """

    coded_decimals: bool
    digits_are_coded: bool
    numeric_times: str
    binary_mode: str
    named_times: bool = False
    writes_times: bool = False
    """Whether a text of what the schema calls a time of day is that time; else it is the number of the record."""


PLAIN_TEXT: Final = Dialect(
    coded_decimals=False, digits_are_coded=False, numeric_times="isostring", binary_mode="base64"
)
"""Texts: numbers and ISO times."""


class Fact(Frozen):
    """What the schema of a record says of a field: the name of its type ('' if it has none), the scale, the same of the
    items of an array, and whether it is `bytes` or a `string` ('' for all else)."""

    name: str
    scale: int | None = None
    items: Fact | None = None
    kind: str = ""


def dialect_of(source: SourceConfig) -> Dialect:
    """The dialect that a source's configuration describes."""
    return Dialect(
        coded_decimals=source.is_debezium or source.is_avro,
        # In Avro a decimal is a number.
        digits_are_coded=source.is_debezium and not source.is_avro and source.decimal_handling_mode == "precise",
        numeric_times=source.numeric_times,
        binary_mode="latin1" if source.format == "canal-json" else source.binary_handling_mode,
        named_times=source.is_debezium and not (source.is_avro and source.time_precision_mode is not None),
        writes_times=source.on_unknown_field == "add",
    )
