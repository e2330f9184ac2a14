"""Which partitions people mean: partition keys with values, all that have these.

Blank texts share the folder of NULL, and each is a partition of its own: by the folder an overwrite of one would take
the rows of the others. So is a text that is spelt like the name of that folder.
"""

from __future__ import annotations

import datetime
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from freshet.storage.codec.binary_row import ticks_per_second
from freshet.storage.codec.partition_path import partition_text
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.literal import timestamp_value
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import INTEGER_ROOTS, TEXT_ROOTS, DataType, ScalarType, TypeRoot
from freshet.storage.paths import escape_path_name

SHOWN_MAX: Final = 5
"""Partitions that a warning names."""
_LOG: Final = logging.getLogger(__name__)

PartitionValue = str | int | float | Decimal | datetime.date | datetime.time | None
"""A value of a partition key; `bool` is an `int`, `datetime` a `date`."""

PartitionChoice = bytes | Mapping[str, PartitionValue]
"""A serialized partition row, or some partition keys with their values."""

_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_TIME: Final = re.compile(r"\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?")
_FAR_YEAR: Final = re.compile(r"[+-]\d{4,}-\d{2}-\d{2}T.*")
_BOOLEANS: Final = {"true": True, "false": False}
_EPOCH: Final = "1970-01-01 "
_DIGITS: Final = Context(prec=80)


def partition_test(store: TableStore, partition: PartitionChoice | None) -> Callable[[bytes], bool]:
    """A test for the partitions that are meant: one by its serialized row, or all that have these values.

    Raises `InvalidRequestError` for a column that is no partition key, and for what is no value of one.
    """
    if partition is None:
        return lambda _: True
    if isinstance(partition, bytes):
        return lambda name: name == partition
    if not isinstance(partition, Mapping):
        raise InvalidRequestError(
            f"name a partition of table {store.name} by its keys and their values, such as "
            f'{{"dt": "2026-11-22"}}, not {partition!r}',
            table=store.name,
        )
    keys, types = store.schema.partition_keys, store.partition_types
    unknown = [key for key in partition if key not in keys]
    if unknown:
        has = f"its partition keys are {', '.join(keys)}" if keys else "it is not partitioned"
        raise InvalidRequestError(
            f"table {store.location} has no partition key {unknown[0]!r}; {has}", path=store.location, column=unknown[0]
        )
    wanted = {
        keys.index(key): _text_of(_given(store, key, value), types[keys.index(key)], store)
        for key, value in partition.items()
    }

    def is_chosen(name: bytes) -> bool:
        values = store.partition_values(name)
        return all(_text_of(values[place], types[place], store) == text for place, text in wanted.items())

    return is_chosen


def live_partitions(store: TableStore, partition: PartitionChoice | None) -> list[bytes]:
    """The partitions with files that are meant."""
    is_chosen = partition_test(store, partition)
    waits = store.options.has_postponed_buckets
    live = store.live.at(store.snapshots.latest()).by_bucket
    return sorted({name for name, bucket in live if (bucket >= 0 or not waits) and is_chosen(name)})


def partition_scalar(store: TableStore, key: str, value: PartitionValue) -> pa.Scalar[Any]:
    """The value of a partition key as rows have it."""
    given, kind = _given(store, key, value), arrow_type(store.schema.by_name[key].type)
    if isinstance(given, _FolderName):
        raise InvalidRequestError(
            f"partition key {key!r} of {store.name}: rows of the year of {value!r} are not written"
        )
    if isinstance(given, int) and pa.types.is_temporal(kind):
        return pa.scalar(given, pa.int64() if kind.bit_width == 64 else pa.int32()).cast(kind)
    return pa.scalar(given, kind)


def warn_of_none(store: TableStore, partitions: Sequence[PartitionChoice | None], what: str) -> None:
    """Says of each choice that finds no partition of the table that it does; `what` is what is not done."""
    if not any(isinstance(partition, Mapping) for partition in partitions):
        return
    live = {name for name, _ in store.live.at(store.snapshots.latest()).by_bucket}
    for partition in partitions:
        if not isinstance(partition, Mapping) or any(map(partition_test(store, partition), live)):
            continue
        shown = "/".join(f"{key}={value}" for key, value in partition.items())
        is_null = any(value == store.options.partition_default_name for value in partition.values())
        hint = "; that of NULL is None, NULL in SQL" if is_null else ""
        some = ", ".join(sorted(partition_name(store, name) for name in live)[:SHOWN_MAX]) or "none"
        text = f"table {store.name} has no partition {shown}: {what}. $partitions lists those there are ({some}){hint}"
        _LOG.warning("%s", text)


def partition_folder(store: TableStore, partition: Mapping[str, PartitionValue]) -> str:
    """The folder of one partition below that of the table; all keys have a value. There may be no such folder."""
    partition_test(store, partition)
    keys, types = store.schema.partition_keys, store.partition_types
    missing = [key for key in keys if key not in partition]
    if missing:
        raise InvalidRequestError(
            f"table {store.name} is partitioned by {', '.join(keys)}: give {missing[0]} a value too",
            table=store.name,
            column=missing[0],
        )
    values = (_given(store, key, partition[key]) for key in keys)
    default, legacy = store.options.partition_default_name, store.options.partition_legacy_name
    texts = (
        value if isinstance(value, _FolderName) else partition_text(value, data_type, default, legacy)
        for value, data_type in zip(values, types, strict=True)
    )
    pairs = zip(keys, texts, strict=True)
    return "/".join(f"{escape_path_name(key)}={escape_path_name(text)}" for key, text in pairs)


def partition_name(store: TableStore, partition: bytes) -> str:
    """A partition as people write it: `dt=2026-11-22/hour=7`; texts that share the folder of NULL are in quotes."""
    default = store.options.partition_default_name

    def shown(value: Any, data_type: DataType) -> str:
        if isinstance(value, datetime.date):
            return str(value)
        text = _text_of(value, data_type, store)
        if text is None:
            return default
        return repr(text) if _is_text(data_type) and partition_text(text, data_type, default) == default else text

    values = zip(store.schema.partition_keys, store.partition_values(partition), store.partition_types, strict=True)
    return "/".join(f"{key}={shown(value, data_type)}" for key, value, data_type in values)


def _text_of(value: Any, data_type: DataType, store: TableStore) -> str | None:
    """What tells a value from all others of its column: None of NULL, a text itself, else the text in its folder."""
    if value is None or isinstance(value, str):
        return value
    return partition_text(value, data_type, store.options.partition_default_name, store.options.partition_legacy_name)


def _is_text(data_type: DataType) -> bool:
    return data_type.root in TEXT_ROOTS


def _given(store: TableStore, key: str, value: object) -> Any:
    """A value as rows of partitions have it."""
    data_type = store.schema.by_name[key].type
    kind = str(data_type).removesuffix(" NOT NULL")
    try:
        return stored_value(value, data_type, store.options.partition_default_name, store.env.time_zone)
    except ValueError as error:
        raise InvalidRequestError(
            f"partition key {key!r} of {store.name} is {kind}, which {value!r} is not; write one value, such as {error}"
            ". A range of partitions is a filter: overwrite with no rows, or delete",
            table=store.name,
            column=key,
        ) from error


class PartitionText(str):
    """The text of a value as a command line or a folder has it, where NULL is the name of its folder."""

    __slots__ = ()


class _FolderName(str):
    """What the folder of a partition has, for years that no `datetime` can be."""

    __slots__ = ()


def stored_value(value: object, data_type: DataType, default_name: str, zone: Callable[[], str]) -> Any:
    """A value of a partition key, from a Python value or its text: the one way for verbs, SQL and commands. The value
    as `decode_row` has it, or a `_FolderName`; `ValueError`, with an example, for what is none.

    `zone` is the time zone of this process.

    | type of the key | a Python value | its text |
    |---|---|---|
    | DATE | a `date` | `2026-11-22`, or the number of the day, as folders have it (`partition.legacy-name`) |
    | TIME | a `time` | `08:30:00.5`, or the milliseconds of the day, as folders have them |
    | TIMESTAMP | a `datetime` without a zone | `2026-11-22 08:30:00.5`, with a T as folders have it |
    | TIMESTAMP_LTZ | a `datetime` with one | the same on the wall clock of this process, or with a zone, `…+01:00` |
    | whole numbers | an `int` | digits, leading zeros count for nothing |
    | DECIMAL | a `Decimal`, an `int` | `1.5` |
    | FLOAT, DOUBLE | a `float`, an `int` | `1.5`, `1.0E20` |
    | BOOLEAN | a `bool` | `true`, `false` |
    | CHAR, VARCHAR | | the text itself |
    | any, NULL | None | the name of its folder (`partition.default-name`); of a text column only as a `PartitionText` |

    The wall clock is that of `$partitions`; a text with a T is in UTC, as folders have it. What is none of these is
    refused, and what no value of the column can be: it would be looked for in vain.
    """
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
        return _FolderName(value)
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
