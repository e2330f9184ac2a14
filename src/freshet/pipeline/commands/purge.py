"""The command purge."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from freshet.pipeline.commands.arguments import HOURS_MAX, AsJson, CatalogOption, TableName, Warehouse, open_table
from freshet.pipeline.commands.bars import working
from freshet.pipeline.commands.output import plural, print_json, say
from freshet.storage.exceptions import InvalidRequestError

_MS_PER_HOUR: Final = 3_600_000


def purge(
    warehouse: Warehouse,
    table: TableName,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it; without this the command only says what would go.")
    ] = False,
    orphan_hours: Annotated[
        float,
        typer.Option(
            "--orphans-older-than-hours",
            help="Files that nothing names go when they are older; younger ones may be of a commit under way.",
        ),
    ] = 24,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Empty a table for good: rows, snapshots, tags, branches and consumers go, and their files.

    Nothing brings them back; freshet truncate keeps the rows in earlier snapshots. Columns and options stay, and
    batches that were committed are not committed again.
    """
    if not 0 <= orphan_hours <= HOURS_MAX:
        raise InvalidRequestError(f"--orphans-older-than-hours {orphan_hours}: give 0 or more, up to {HOURS_MAX} hours")
    opened = open_table(warehouse, table, catalog_option)
    with working(f"emptying {table}"):
        gone = opened.purge(orphans_older_than_ms=int(orphan_hours * _MS_PER_HOUR), dry_run=not yes)
    if as_json:
        print_json(
            {
                "branches": list(gone.branches),
                "tags": list(gone.tags),
                "consumers": list(gone.consumers),
                "snapshots": list(gone.snapshot_ids),
                "orphans": gone.orphan_count,
                "dry_run": gone.is_dry_run,
            }
        )
        return
    for what, names in (("branch", gone.branches), ("tag", gone.tags), ("consumer", gone.consumers)):
        for name in names:
            say(f"{what} {name}")
    snapshots = plural(len(gone.snapshot_ids), "snapshot")
    if gone.is_dry_run:
        say(f"all rows of {table} would go, with {snapshots}; nothing was changed. Add --yes to do it")
    else:
        say(f"{table} is empty; {snapshots} and {plural(gone.orphan_count, 'orphan')} removed")
