"""Sections of a pipeline file that know no other, and the texts in it: options, names of tables, lengths of time.

Lengths of time are as people write them: `5 s`, `500 ms`, `1 min`, `2 hours`, `1 second`. Spark's trigger knows only
the words (`500 milliseconds`), so what is written is brought into that form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    StrictBool,
)

from freshet.pipeline.config.only_tables import number_text
from freshet.storage.catalog import split_branch, split_identifier
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.options import is_secret, shown_options

METRICS_PORT: Final = 9464
METRICS_HOST: Final = "127.0.0.1"

SPARK_INTERVAL: Final = "1 second"
LOCAL_INTERVAL_MS: Final = 200
"""How often a batch begins by default, on Spark and without it."""

_UNIT_MS: Final = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_UNIT_OF: Final = {
    name: unit
    for unit, names in {
        "millisecond": "ms milli millis millisecond milliseconds",
        "second": "s sec secs second seconds",
        "minute": "m min mins minute minutes",
        "hour": "h hr hrs hour hours",
        "day": "d day days",
    }.items()
    for name in names.split()
}
_WRITTEN: Final = re.compile(r"\s*(\d+)\s*([A-Za-z]+)\s*")
_MS_MAX: Final = 366 * 86_400_000

RunOn = Literal["spark", "local"]


class OptionTexts(dict[str, str]):
    """Options of a table; its text hides secrets."""

    def __repr__(self) -> str:
        return repr(shown_options(self))


def option_value(value: Any) -> str:
    """An option as Spark and Paimon take it: text; booleans in small letters, objects as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping | list):
        return json.dumps(value)
    return str(value)


def _texts(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {str(key): "" if item is None else option_value(item) for key, item in value.items()}


def _masked(value: Any) -> Any:
    texts = _texts(value)
    if not isinstance(texts, Mapping):
        return texts
    return {key: SecretStr(item) if is_secret(key, item) else item for key, item in texts.items()}


def _table_name(text: str) -> str:
    """Any name that the catalog takes, also of a branch of a table."""
    try:
        split_identifier(split_branch(text)[0])
    except InvalidRequestError as error:
        raise ValueError(str(error)) from error
    return text


TableName = Annotated[str, AfterValidator(_table_name)]
Texts = Annotated[dict[str, str], BeforeValidator(_texts)]
TableTexts = Annotated[Texts, AfterValidator(OptionTexts), PlainSerializer(shown_options)]
MaskedTexts = Annotated[dict[str, str | SecretStr], BeforeValidator(_masked)]


class FileModel(BaseModel):
    """A section of a pipeline file: other keys than its own are refused, and no message has its values."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)


class TriggerConfig(FileModel):
    """When micro-batches start: on a clock, or over what is there now and then the end."""

    processing_time: Annotated[str, BeforeValidator(number_text), AfterValidator(spark_interval)] | None = None
    """As Spark's trigger takes it, whatever unit was written."""
    available_now: StrictBool = False


class CompactionConfig(FileModel):
    """Where the compactions of the tables are made."""

    background: StrictBool = False
    """Batches compact what readers wait for, larger compactions run in the background, as tasks of the application."""
    batch_budget: Annotated[str, BeforeValidator(number_text), AfterValidator(spark_interval)] = "200 milliseconds"
    """With `background`: time of each task of a batch for compactions that are not required, of all tables."""

    @property
    def budget_ms(self) -> int:
        """`batch_budget` in milliseconds."""
        return interval_ms(self.batch_budget)


class MetricsConfig(FileModel):
    """Where a run publishes its metrics by HTTP; only to programs of this machine unless `host` says more."""

    port: int = Field(default=METRICS_PORT, ge=0, le=65535)
    """0: any that is free."""
    host: str = Field(default=METRICS_HOST, min_length=1)


def spark_interval(text: str) -> str:
    """The interval as Spark's trigger takes it, such as `500 milliseconds`.

    Raises `ValueError` that says how an interval is written. `0` and `0 s` start the next batch at once.
    """
    if text.strip() == "0":
        return "0 seconds"
    match = _WRITTEN.fullmatch(text)
    unit = _UNIT_OF.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise ValueError(
            f"{text!r} is no interval; write a whole number and a unit (ms, s, min, h, d), such as 500 ms, 5 s or 1 min"
        )
    number = int(match[1])
    if number * _UNIT_MS[unit] > _MS_MAX:
        raise ValueError(f"{text!r} is longer than a year; write a shorter interval, such as 1 h")
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def interval_ms(interval: str) -> int:
    """Milliseconds of what `spark_interval` gives."""
    number, unit = interval.split()
    return int(number) * _UNIT_MS[unit.removesuffix("s")]
