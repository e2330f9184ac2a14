"""Texts of what the schema of a record calls a time of day, and which MySQL takes for 838 hours: `-101:00:00.5`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa

from freshet.pipeline.decode.convert.converter import Converted, FieldConversion
from freshet.pipeline.decode.convert.decimals import DECIMALS
from freshet.pipeline.decode.convert.scalars import TextConverter
from freshet.pipeline.decode.dialect import Fact
from freshet.pipeline.decode.json_value import INT, JsonNumber, JsonValue
from freshet.storage.model.data_type import ScalarType

TIMES_OF_DAY: Final = {
    "io.debezium.time.Time": 3, "org.apache.kafka.connect.data.Time": 3, "io.debezium.time.MicroTime": 6,
    "io.debezium.time.NanoTime": 9,
}  # fmt: skip
"""Names of times, and the digits of a second that they count."""
NAMED_TEXTS: Final = DECIMALS | TIMES_OF_DAY.keys()
"""Names of types that matter for a text."""
_WHOLE: Final = re.compile(r"-?[0-9]{1,19}")
_LONG: Final = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class TimeTextConverter(TextConverter):
    """CHAR, VARCHAR, STRING of times: numbers are written as times, texts are what they are."""

    def __init__(self, data_type: ScalarType, fact: Fact) -> None:
        super().__init__(data_type)
        self._digits = TIMES_OF_DAY[fact.name]

    def one(self, value: JsonValue) -> Any:
        is_count = isinstance(value, JsonNumber) and _WHOLE.fullmatch(value)
        return super().one(_time_text(int(value), self._digits) if is_count else value)

    def conversion(self, kinds: frozenset[str]) -> FieldConversion:
        if kinds <= {INT}:
            return FieldConversion(_LONG | None, self._of_counts)
        return FieldConversion(msgspec.Raw, self._convert_each, self.raw_conversion.default)

    def of_array(self, array: Any) -> Converted | None:
        return self._of_counts(array.to_pylist()) if pa.types.is_integer(array.type) else super().of_array(array)

    def _of_counts(self, counts: Sequence[int | None]) -> Converted:
        texts = [None if count is None else _time_text(count, self._digits) for count in counts]
        return self._checked(pa.array(texts, pa.string()))

    def _convert_each(self, values: Sequence[msgspec.Raw]) -> Converted:
        nothing = (b"", b"null")
        return self._array([None if bytes(raw) in nothing else self._one_raw(bytes(raw)) for raw in values])


def _time_text(count: int, digits: int) -> str:
    seconds, fraction = divmod(abs(count), 10**digits)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    rest = f"{fraction:0{digits}d}".rstrip("0")
    return f"{'-' if count < 0 else ''}{hour:02d}:{minute:02d}:{second:02d}{f'.{rest}' if rest else ''}"
