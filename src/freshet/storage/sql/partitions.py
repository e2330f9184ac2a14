"""Columns and partitions as statements name them, for the verbs that take them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.sql.names import PartitionValues, SqlName
from freshet.storage.sql.result import SqlResult, edited
from freshet.storage.sql.session import Plan, SqlSession

if TYPE_CHECKING:
    from freshet.storage.table import Table


def columns_as_written(table: Table, names: Iterable[str]) -> list[str]:
    """The columns of a table as it writes them; `InvalidRequestError` for a name that is none of them."""
    known = {name.lower(): name for name in table.schema.column_names}
    for name in names:
        if name.lower() not in known:
            raise InvalidRequestError(
                f"SQL: table {table.name} has no column {name!r}; it has {', '.join(known.values())}",
                table=table.name,
                column=name,
            )
    return [known[name.lower()] for name in names]


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


def plan_drop_partitions(name: SqlName, partitions: Sequence[PartitionValues]) -> Plan:
    """The plan of ALTER TABLE … DROP PARTITION and TRUNCATE TABLE … PARTITION: the rows go in one snapshot."""
    return Plan(partial(_drop, name, partitions), has_dry_run=True)


def _drop(name: SqlName, partitions: Sequence[PartitionValues], session: SqlSession) -> SqlResult:
    table = session.table(name)
    named = [by_keys(table, each) for each in partitions]
    return edited(table, table.drop_partition(*named, dry_run=session.dry_run))
