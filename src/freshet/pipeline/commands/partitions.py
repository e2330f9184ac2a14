"""Partitions as calls name them, and the command expire-partitions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer

from freshet.pipeline.commands.arguments import AsJson, CatalogOption, TableName, Warehouse, open_table
from freshet.pipeline.commands.bars import working
from freshet.pipeline.commands.output import complain, print_json, say
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.maintenance.partition_choice import PartitionText
from freshet.storage.model.display import plural

AGE: Final = "partition.expiration-time"


def expire_partitions(
    warehouse: Warehouse,
    table: TableName,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="AGE", help="Age of partitions that expire, such as '30 d' or '12 h'.", show_default=False
        ),
    ] = None,
    max_num: Annotated[int | None, typer.Option(help="Expire at most this many partitions.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the partitions that would expire.")] = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Delete the rows of partitions older than an age. What is not given comes from the table's options.

    How old a partition is, the options partition.expiration-strategy, partition.timestamp-pattern and
    partition.timestamp-formatter say: by its values or by its newest file. The files go when their snapshots expire.
    """
    opened = open_table(warehouse, table, catalog_option)
    if older_than is not None:
        opened = opened.with_options({AGE: older_than})
    with working(f"expiring partitions of {table}"):
        expiry = opened.expire_partitions(max_num=max_num, dry_run=dry_run)
    if as_json:
        print_json(
            {
                "partitions": [dict(each) for each in expiry.partitions],
                "unclear": [dict(each) for each in expiry.unclear],
                "snapshots": list(expiry.snapshot_ids),
                "dry_run": dry_run,
            }
        )
        return
    for each in expiry.partitions:
        say(_partition_text(each))
    done = "would expire; nothing was deleted" if dry_run else "expired"
    say(f"{plural(len(expiry.partitions), 'partition')} {done}")
    if expiry.unclear:
        complain(
            f"{plural(len(expiry.unclear), 'partition')} never expire, their values say no time "
            f"({_partition_text(expiry.unclear[0])}): a time has a year, a month and a day. "
            "partition.timestamp-pattern makes it of the values, such as $month-01 of month=2026-11, "
            "partition.timestamp-formatter says how it is read"
        )


def _partition_text(partition: Mapping[str, str]) -> str:
    return "/".join(f"{key}={text}" for key, text in partition.items())


_ONE_PARTITION: Final = (
    "a partition key and its value, such as dt=2026-11-22. A value that has , or / in it, and a range of partitions, "
    "are a filter: freshet sql WAREHOUSE \"DELETE FROM TABLE WHERE dt < '2026-11-01'\""
)


def partitions_given(given: Sequence[str] | None) -> dict[str, PartitionText] | None:
    """Partition keys with their values, from `dt=2026-11-22` and the like, several in one text or in several. A value
    is taken as it is written: `a` and `a ` are two partitions."""
    values: dict[str, PartitionText] = {}
    for text in given or ():
        before = dict(values)
        for part in re.split("[,/]", text):
            key, equals, value = part.partition("=")
            key = key.strip()
            if not (key and equals):
                raise InvalidRequestError(f"--partition {part.strip()!r}: write {_ONE_PARTITION}")
            if key in values and key not in before:  # the value may have been meant to hold the rest
                raise InvalidRequestError(f"--partition {text!r} gives {key} twice: write {_ONE_PARTITION}")
            if values.setdefault(key, PartitionText(value)) != value:
                raise InvalidRequestError(
                    f"--partition gives {key} two values, {values[key]!r} and {value!r}; give one"
                )
    return values or None
