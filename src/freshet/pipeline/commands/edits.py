"""Commands that change the rows or the history of a table, each in one commit: truncate, drop-partition, rollback."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import typer

from freshet.pipeline.commands.arguments import AsJson, CatalogOption, TableName, Warehouse, open_table
from freshet.pipeline.commands.bars import working
from freshet.pipeline.commands.compact import partitions_given
from freshet.pipeline.commands.output import in_snapshots, plural, print_json, say
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.table import EditResult, Table

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would change; nothing is committed.")]


def truncate(
    warehouse: Warehouse,
    table: TableName,
    dry_run: DryRun = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Take all rows of a table away, in one snapshot. Earlier snapshots keep them until they expire."""
    place = TablePlace(warehouse, table, catalog_option)
    run_edit(place, f"truncating {table}", lambda opened: opened.truncate(dry_run=dry_run), as_json=as_json)


def drop_partition(
    warehouse: Warehouse,
    table: TableName,
    partition: Annotated[
        list[str],
        typer.Option(
            help="A partition to drop, such as dt=2026-11-22, with several keys "
            "dt=2026-11-22/country=DE. Part of the keys is all that have these values. May be repeated.",
        ),
    ],
    dry_run: DryRun = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Take the rows of some partitions away, in one snapshot. Earlier snapshots keep them until they expire."""
    chosen = [partitions_given(text.split("/")) or {} for text in partition]
    run_edit(
        TablePlace(warehouse, table, catalog_option),
        f"dropping partitions of {table}",
        lambda opened: opened.drop_partition(*chosen, dry_run=dry_run),
        as_json=as_json,
    )


def rollback(
    warehouse: Warehouse,
    table: TableName,
    to_snapshot: Annotated[
        int | None, typer.Option("--to-snapshot", help="Back to this snapshot; 0 is the table before its first.")
    ] = None,
    to_tag: Annotated[str | None, typer.Option("--to-tag", help="Back to this tag.")] = None,
    to_timestamp: Annotated[
        str | None,
        typer.Option(
            "--to-timestamp",
            help="Back to the snapshot of this moment, such as 2026-11-22T08:00:00+01:00; without a zone, local time.",
        ),
    ] = None,
    undo: Annotated[
        tuple[str, int] | None,
        typer.Option(
            metavar="USER NUMBER",
            help="Back to before this commit of a user, such as a batch of a pipeline, and with it all later commits.",
        ),
    ] = None,
    delete_newer: Annotated[
        bool,
        typer.Option(
            "--delete-newer",
            help="Remove the later snapshots instead of adding one; their ids are used again, so nobody may have the "
            "table open.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --delete-newer: all streams of the table were stopped.")
    ] = False,
    dry_run: DryRun = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Give a table the rows of an earlier snapshot, in a new snapshot.

    Later commits count as never made: a pipeline whose batches are gone stops at its next one, and says what to do.
    """
    given = [each for each in (to_snapshot, to_tag, to_timestamp, undo) if each is not None]
    if len(given) != 1:
        raise InvalidRequestError(
            "say where to go back to, once: --to-snapshot, --to-tag, --to-timestamp or --undo USER NUMBER"
        )
    to = to_snapshot if to_snapshot is not None else to_tag
    moment = None if to_timestamp is None else _moment(to_timestamp)
    run_edit(
        TablePlace(warehouse, table, catalog_option),
        f"rolling {table} back",
        lambda opened: opened.rollback(
            moment if to is None else to, undo=undo, delete_newer=delete_newer, force=force, dry_run=dry_run
        ),
        as_json=as_json,
    )


class TablePlace(NamedTuple):
    """What a command was given to find a table."""

    warehouse: str
    table: str
    catalog_option: Sequence[str] | None


def run_edit(place: TablePlace, what: str, edit: Callable[[Table], EditResult], *, as_json: bool) -> None:
    """Opens the table, edits it while a bar says what, and prints what was done."""
    with working(what):
        result = edit(open_table(*place))
    report_edit(result, place.table, as_json=as_json)


def report_edit(result: EditResult, table: str, *, as_json: bool) -> None:
    """Prints what an edit did, or would do."""
    counts = {
        "rows_deleted": result.rows_deleted,
        "rows_updated": result.rows_updated,
        "rows_inserted": result.rows_inserted,
    }
    if as_json:
        print_json(
            {
                "table": table,
                "snapshots": [snapshot.id for snapshot in result.snapshots],
                **{name: count for name, count in counts.items() if count is not None},
                "files_removed": result.files_removed,
                "files_added": result.files_added,
                "partitions": result.partitions,
                "snapshots_removed": list(result.snapshots_removed),
                "dry_run": result.is_dry_run,
                **({"waits_for_compaction": True} if result.hidden_buckets else {}),
            }
        )
        return
    parts = [f"{plural(count, 'row')} {name.removeprefix('rows_')}" for name, count in counts.items() if count]
    if result.snapshots_removed:
        parts.append(f"snapshots {result.snapshots_removed[0]} to {result.snapshots_removed[-1]} removed")
    files = (("removed", result.files_removed), ("added", result.files_added))
    changed = [f"{plural(count, 'data file')} {verb}" for verb, count in files if count]
    if changed:
        parts.append(f"{' and '.join(changed)} in {plural(result.partitions, 'partition')}")
    if not parts:
        say("nothing changed" if not result.is_dry_run else "nothing would change")
        return
    if result.is_dry_run:
        say(f"would be: {', '.join(parts)}; nothing was committed")
        return
    ids = [snapshot.id for snapshot in result.snapshots]
    waits = "; readers see it with the next compaction" if result.hidden_buckets else ""
    say(", ".join([*parts, *([in_snapshots(ids)] if ids else [])]) + waits)


def _moment(text: str) -> datetime.datetime:
    try:
        return datetime.datetime.fromisoformat(text).astimezone()
    except ValueError as error:
        raise InvalidRequestError(
            f"--to-timestamp {text!r} is no moment; write one such as 2026-11-22T08:00:00+01:00"
        ) from error
