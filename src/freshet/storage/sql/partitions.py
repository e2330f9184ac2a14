"""Partitions as statements name them, for the verbs that take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.sql.literals import PartitionValues
from freshet.storage.sql.result import SqlResult, edited

if TYPE_CHECKING:
    from freshet.storage.table import Table


def by_keys(table: Table, values: PartitionValues) -> dict[str, str | None]:
    """The values by keys as the table writes them; `InvalidRequestError` for a column that is no partition key."""
    keys = {key.lower(): key for key in table.schema.partition_keys}
    unknown = [key for key in values if key.lower() not in keys]
    if unknown:
        has = f"its partition keys are {', '.join(keys.values())}" if keys else "it is not partitioned"
        raise InvalidRequestError(
            f"SQL: {unknown[0]!r} is no partition key of {table.name}; {has}", table=table.name, column=unknown[0]
        )
    return {keys[key.lower()]: value for key, value in values.items()}


def dropped_partitions(table: Table, partitions: Sequence[PartitionValues]) -> SqlResult:
    """Drops partitions, in one snapshot."""
    return edited(table, table.drop_partition(*(by_keys(table, each) for each in partitions)))
