"""Which partitions people mean: partition keys with values, as columns have them or as texts.

| type of the key | a value | its text |
|---|---|---|
| DATE | a `date` | `2026-11-22`, or the number of the day, as folders have it (`partition.legacy-name`) |
| whole numbers | an `int` | digits, leading zeros count for nothing |
| BOOLEAN | a `bool` | `true`, `false` |
| CHAR, VARCHAR | | the text itself |
| all others | | as the folder of the partition has it |
| any, NULL | None | the name of its folder (`partition.default-name`) |

Blank texts share the folder of NULL, and each is a partition of its own: by the folder an overwrite of one would take
the rows of the others. A text that is spelt like the name of that folder cannot be named, a filter finds it.

What is none of these is refused: a text that no partition can have would find nothing, and say so as if all were well.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from freshet.storage.codec.partition_path import partition_text
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_type import INTEGER_ROOTS, DataType, TypeRoot
from freshet.storage.paths import escape_path_name

PartitionValue = str | int | datetime.date | None
"""A value of a partition key; `bool` is an `int`."""

PartitionChoice = bytes | Mapping[str, PartitionValue]
"""A serialized partition row, or some partition keys with their values."""

_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_BOOLEANS: Final = ("true", "false")


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
    places = {key: keys.index(key) for key in partition}
    wanted = {
        place: _text_of(_given(store, key, types[place], partition[key]), types[place], store)
        for key, place in places.items()
    }

    def is_chosen(name: bytes) -> bool:
        values = store.partition_values(name)
        return all(_text_of(values[place], types[place], store) == text for place, text in wanted.items())

    return is_chosen


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
    texts = (
        _folder_text(_given(store, key, data_type, partition[key]), data_type, store)
        for key, data_type in zip(keys, types, strict=True)
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


def _folder_text(value: Any, data_type: DataType, store: TableStore) -> str:
    """What a value is called in its folder; texts of other types are that already."""
    if isinstance(value, str) and not _is_text(data_type):
        return value
    return partition_text(value, data_type, store.options.partition_default_name, store.options.partition_legacy_name)


def _is_text(data_type: DataType) -> bool:
    return data_type.root in (TypeRoot.CHAR, TypeRoot.VARCHAR)


def _given(store: TableStore, key: str, data_type: DataType, value: object) -> Any:
    """A value as rows of partitions have it, or the text of it in its folder."""
    if value is None or value == store.options.partition_default_name:
        return None
    root = data_type.root
    if root is TypeRoot.DATE:
        return _day(store, key, data_type, value)
    if root in INTEGER_ROOTS:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
            return int(value)
        raise _no_value(store, key, data_type, value, "7")
    if root is TypeRoot.BOOLEAN:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in _BOOLEANS:
            return value.lower() == "true"
        raise _no_value(store, key, data_type, value, "true")
    if isinstance(value, str):
        return value
    raise _no_value(store, key, data_type, value, "a text, as $partitions shows it")


def _day(store: TableStore, key: str, data_type: DataType, value: object) -> Any:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value
    if isinstance(value, str) and _DAY.fullmatch(value):
        try:
            return datetime.date.fromisoformat(value)
        except ValueError as error:
            raise _no_value(store, key, data_type, value, "2026-11-22") from error
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    raise _no_value(store, key, data_type, value, "2026-11-22")


def _no_value(store: TableStore, key: str, data_type: DataType, value: object, example: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"partition key {key!r} of {store.name} is {_bare(data_type)}, which {value!r} is not; write one value, such "
        f"as {example}. A range of partitions is a filter: overwrite with no rows, or delete",
        table=store.name,
        column=key,
    )


def _bare(data_type: DataType) -> str:
    return str(data_type).removesuffix(" NOT NULL")
