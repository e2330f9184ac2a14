"""The command expire-tags."""

from __future__ import annotations

from typing import Annotated

import typer

from freshet.pipeline.commands.arguments import AsJson, CatalogOption, TableName, Warehouse, open_table, time_ms
from freshet.pipeline.commands.bars import working
from freshet.pipeline.commands.output import plural, print_json, say


def expire_tags(
    warehouse: Warehouse,
    table: TableName,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="All tags that were made before this time go, also those that stay until they are deleted: "
            "milliseconds since 1970, or a time such as 2026-03-01T12:00:00Z.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the tags that would go.")] = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Remove the tags whose time to stay is over, with the files that only they name.

    Whoever commits does this now and then, unless tag.time-expire-enabled is false.
    """
    opened = open_table(warehouse, table, catalog_option)
    moment = None if older_than is None else time_ms(older_than, "--older-than")
    with working(f"expiring tags of {table}"):
        gone = opened.tags.expire(older_than=moment, dry_run=dry_run)
    if as_json:
        print_json(
            [
                {
                    "tag": each.tag.name,
                    "snapshot": each.tag.snapshot_id,
                    "data_files": each.data_file_count,
                    "metadata_files": each.metadata_file_count,
                    "dry_run": each.is_dry_run,
                }
                for each in gone
            ]
        )
        return
    for each in gone:
        counts = f"{plural(each.data_file_count, 'data file')}, {plural(each.metadata_file_count, 'metadata file')}"
        say(f"{each.tag.name} of snapshot {each.tag.snapshot_id}: {counts}")
    say(f"{plural(len(gone), 'tag')} {'would go; nothing was deleted' if dry_run else 'removed'}")
