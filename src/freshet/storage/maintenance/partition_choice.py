"""Which partitions people mean: partition keys with values (`partition_value`), all that have these.

Blank texts share the folder of NULL, and each is a partition of its own: by the folder an overwrite of one would take
the rows of the others. So is a text that is spelt like the name of that folder.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from freshet.storage.codec.partition_path import partition_text
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.maintenance.partition_value import FolderName, PartitionText, PartitionValue, stored_value
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import TEXT_ROOTS, DataType
from freshet.storage.paths import escape_path_name

__all__ = ["PartitionChoice", "PartitionText", "PartitionValue", "partition_folder", "partition_name", "partition_test"]

PartitionChoice = bytes | Mapping[str, PartitionValue]
"""A serialized partition row, or some partition keys with their values."""

SHOWN_MAX: Final = 5
"""Partitions that a warning names."""
_LOG: Final = logging.getLogger(__name__)


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
    """Those of the partitions with files that are meant."""
    is_chosen = partition_test(store, partition)
    waits = store.options.has_postponed_buckets
    live = store.live.at(store.snapshots.latest()).by_bucket
    return sorted({name for name, bucket in live if (bucket >= 0 or not waits) and is_chosen(name)})


def partition_scalar(store: TableStore, key: str, value: PartitionValue) -> pa.Scalar[Any]:
    """The value of a partition key as rows have it."""
    given, kind = _given(store, key, value), arrow_type(store.schema.by_name[key].type)
    if isinstance(given, FolderName):
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
        value if isinstance(value, FolderName) else partition_text(value, data_type, default, legacy)
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
