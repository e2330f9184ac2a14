"""Partitions as statements name them, for the verbs that take them as folders write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_type import INTEGER_ROOTS, TypeRoot
from freshet.storage.sql.literals import PartitionValues
from freshet.storage.sql.result import SqlResult, edited

if TYPE_CHECKING:
    from freshet.storage.table import Table


def in_folders(table: Table, values: PartitionValues) -> dict[str, str]:
    """The values as folders write them, by keys as the table writes them; raises `InvalidRequestError` for a column
    that is no partition key."""
    keys = {key.lower(): key for key in table.schema.partition_keys}
    unknown = [key for key in values if key.lower() not in keys]
    if unknown:
        has = f"its partition keys are {', '.join(keys.values())}" if keys else "it is not partitioned"
        raise InvalidRequestError(
            f"SQL: {unknown[0]!r} is no partition key of {table.name}; {has}", table=table.name, column=unknown[0]
        )
    default = table.options.partition_default_name
    return {
        keys[key.lower()]: default if value is None else _in_folder(table, keys[key.lower()], value)
        for key, value in values.items()
    }


def _in_folder(table: Table, key: str, value: str) -> str:
    """A value as folders have it: a whole number without leading zeros."""
    data_type = table.schema.by_name[key].type
    if data_type.root not in INTEGER_ROOTS:
        return value.lower() if data_type.root is TypeRoot.BOOLEAN else value
    try:
        return str(int(value))
    except ValueError as error:
        raise InvalidRequestError(
            f"SQL: partition key {key!r} of {table.name} is {data_type}, which {value!r} is not",
            table=table.name,
            column=key,
        ) from error


def dropped_partitions(table: Table, partitions: Sequence[PartitionValues]) -> SqlResult:
    """Drops partitions, in one snapshot."""
    return edited(table, table.drop_partition(*(in_folders(table, each) for each in partitions)))
