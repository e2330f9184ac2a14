"""The command expire-partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import typer

from freshet.pipeline.commands.arguments import AsJson, CatalogOption, TableName, Warehouse, open_table
from freshet.pipeline.commands.bars import working
from freshet.pipeline.commands.output import complain, plural, print_json, say

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
        say(_text(each))
    done = "would expire; nothing was deleted" if dry_run else "expired"
    say(f"{plural(len(expiry.partitions), 'partition')} {done}")
    if expiry.unclear:
        complain(
            f"{plural(len(expiry.unclear), 'partition')} never expire, their values say no time "
            f"({_text(expiry.unclear[0])}): a time has a year, a month and a day. "
            "partition.timestamp-pattern makes it of the values, such as $month-01 of month=2026-11, "
            "partition.timestamp-formatter says how it is read"
        )


def _text(partition: Mapping[str, str]) -> str:
    return "/".join(f"{key}={text}" for key, text in partition.items())
