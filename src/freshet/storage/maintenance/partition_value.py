"""A value of a partition key, from a Python value or its text: the one way for verbs, SQL and commands.

| type of the key | a Python value | its text |
|---|---|---|
| DATE | a `date` | `2026-11-22`, or the number of the day, as folders have it (`partition.legacy-name`) |
| TIME | a `time` | `08:30:00.5`, or the milliseconds of the day, as folders have them |
| TIMESTAMP | a `datetime` without a zone | `2026-11-22 08:30:00.5`, with a T as folders have it |
| TIMESTAMP_LTZ | a `datetime` with one | the same on the wall clock of this process, as `$partitions` has it; with a T in UTC, as folders have it; or with a zone, `…+01:00` |
| whole numbers | an `int` | digits, leading zeros count for nothing |
| DECIMAL | a `Decimal`, an `int` | `1.5` |
| FLOAT, DOUBLE | a `float`, an `int` | `1.5`, `1.0E20` |
| BOOLEAN | a `bool` | `true`, `false` |
| CHAR, VARCHAR | | the text itself |
| any, NULL | None | the name of its folder (`partition.default-name`); of a text column only as a `PartitionText` |

What is none of these is refused, and what no value of the column can be: it would be looked for in vain.
"""  # noqa: E501 - a table

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np

from freshet.storage.codec.binary_row import ticks_per_second
from freshet.storage.filters.literal import timestamp_value
from freshet.storage.model.data_type import INTEGER_ROOTS, TEXT_ROOTS, DataType, ScalarType, TypeRoot

PartitionValue = str | int | float | Decimal | datetime.date | datetime.time | None
"""A value of a partition key; `bool` is an `int`, `datetime` a `date`."""

_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_TIME: Final = re.compile(r"\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?")
_FAR_YEAR: Final = re.compile(r"[+-]\d{4,}-\d{2}-\d{2}T.*")
_BOOLEANS: Final = {"true": True, "false": False}
_EPOCH: Final = "1970-01-01 "
_DIGITS: Final = Context(prec=80)


class PartitionText(str):
    """The text of a value as a command line or a folder has it, where NULL is the name of its folder."""

    __slots__ = ()


class FolderName(str):
    """What the folder of a partition has, for years that no `datetime` can be."""

    __slots__ = ()


def stored_value(value: object, data_type: DataType, default_name: str, zone: Callable[[], str]) -> Any:
    """The value as `decode_row` has it, or a `FolderName`; `ValueError`, with an example, for what is none.

    `zone` is the time zone of this process."""
    assert isinstance(data_type, ScalarType)
    is_text = data_type.root in TEXT_ROOTS
    if value is None or (value == default_name and (not is_text or isinstance(value, PartitionText))):
        return None
    if is_text:
        return _checked(str(value) if isinstance(value, str) else None, "'a text'")
    if data_type.root in INTEGER_ROOTS:
        return _whole(value)
    if data_type.root in _PLAIN:
        return _PLAIN[data_type.root](value, data_type)
    if data_type.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return _timestamp(value, data_type, zone)
    raise ValueError("a text, as $partitions shows it")


def _checked(value: Any, example: str) -> Any:
    if value is None:
        raise ValueError(example)
    return value


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    raise ValueError("7")


def _boolean(value: object, _: ScalarType) -> bool:
    found = _BOOLEANS.get(value.lower()) if isinstance(value, str) else value if isinstance(value, bool) else None
    return bool(_checked(found, "true"))


def _date(value: object, _: ScalarType) -> Any:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value
    if isinstance(value, str) and _DAY.fullmatch(value):
        try:
            return datetime.date.fromisoformat(value)
        except ValueError as error:
            raise ValueError("2026-11-22") from error
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    raise ValueError("2026-11-22")


def _decimal(value: object, data_type: ScalarType) -> Decimal:
    example = f"1.{'5'.ljust(data_type.scale or 0, '0')}" if data_type.scale else "1"
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise ValueError(example)
    try:
        given = Decimal(value)
        if not given.is_finite() or abs(given.adjusted()) > (data_type.precision or 0):
            raise ValueError(example)
        scaled = given.quantize(Decimal(1).scaleb(-(data_type.scale or 0)), context=_DIGITS)
    except InvalidOperation as error:
        raise ValueError(example) from error
    if scaled != given:
        raise ValueError(example)
    return scaled if scaled else abs(scaled)


def _float(value: object, data_type: ScalarType) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("1.5")
    try:
        number = float(value)
    except (ValueError, OverflowError) as error:
        raise ValueError("1.5") from error
    return np.float32(number) if data_type.root is TypeRoot.FLOAT else number


def _time(value: object, data_type: ScalarType) -> int:
    example = "08:30:00"
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    if isinstance(value, datetime.time) and value.tzinfo is None:
        value = value.isoformat()
    if not (isinstance(value, str) and _TIME.fullmatch(value)):
        raise ValueError(example)
    nanos = _nanos(_EPOCH + value, example)
    return _ticks(nanos, 1000, 10 ** -min(data_type.precision or 0, 3), example)


def _timestamp(value: object, data_type: ScalarType, zone: Callable[[], str]) -> Any:
    is_moment = data_type.root is TypeRoot.TIMESTAMP_LTZ
    example = "datetime(2026, 11, 22, 8, tzinfo=UTC) or 2026-11-22 08:30:00" if is_moment else "2026-11-22 08:30:00"
    if isinstance(value, datetime.datetime):
        if (value.tzinfo is not None) is not is_moment:
            raise ValueError(example)
        value = value.isoformat("T")
    if not isinstance(value, str):
        raise ValueError(example)
    if _FAR_YEAR.fullmatch(value):
        return FolderName(value)
    instant = _instant(value, example)
    nanos = instant.nanos
    if instant.has_zone and not is_moment:
        raise ValueError(example)
    if is_moment and instant.has_zone is None and "T" not in value:
        nanos = _nanos_at(nanos, ZoneInfo(zone()))
    precision = data_type.precision or 0
    return _ticks(nanos, ticks_per_second(precision), 10**-precision, example)


def _nanos_at(nanos: int, zone: ZoneInfo) -> int:
    """The moment of a wall clock."""
    seconds, rest = divmod(nanos, 10**9)
    local = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    since = local.replace(tzinfo=zone) - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (since.days * 86_400 + since.seconds) * 10**9 + rest


def _nanos(text: str, example: str) -> int:
    return int(_instant(text, example).nanos)


def _instant(text: str, example: str) -> Any:
    try:
        return timestamp_value(text)
    except ValueError as error:
        raise ValueError(example) from error


def _ticks(nanos: int, per_second: int, finest_s: float, example: str) -> int:
    """Ticks of so many in a second; a value finer than its column is refused."""
    finest = round(finest_s * 10**9)
    if nanos % finest:
        raise ValueError(f"{example}, no finer than the column")
    return nanos // (10**9 // per_second)


_PLAIN: Final[Mapping[TypeRoot, Callable[[object, ScalarType], Any]]] = {
    TypeRoot.BOOLEAN: _boolean,
    TypeRoot.DATE: _date,
    TypeRoot.TIME: _time,
    TypeRoot.DECIMAL: _decimal,
    TypeRoot.FLOAT: _float,
    TypeRoot.DOUBLE: _float,
}
