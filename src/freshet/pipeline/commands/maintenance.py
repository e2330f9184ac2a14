"""Commands that look after a table: expire, orphans, check-table."""

from __future__ import annotations

from dataclasses import asdict
from shlex import quote
from typing import Annotated

import typer

from freshet.pipeline.commands.arguments import (
    AsJson,
    CatalogOption,
    TableName,
    Warehouse,
    age_ms,
    as_typed,
    open_table,
)
from freshet.pipeline.commands.bars import working
from freshet.pipeline.commands.output import plural, print_json, say
from freshet.pipeline.errors.error_kind import EXIT_DATA
from freshet.storage.model.display import printable, size_text


def expire(
    warehouse: Warehouse,
    table: TableName,
    retain_max: Annotated[
        int | None, typer.Option(help="Keep at most this many snapshots, whatever their age.")
    ] = None,
    retain_min: Annotated[int | None, typer.Option(help="Keep at least this many snapshots, the latest ones.")] = None,
    older_than_hours: Annotated[
        float | None,
        typer.Option(
            help="Keep snapshots that are younger than this, up to --retain-max; older ones go, down to --retain-min."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Remove old snapshots and the files that only they use. What is not given comes from the table's options.

    A consumer that has not read a snapshot keeps it and all that follow: it is named then.
    """
    age = None if older_than_hours is None else age_ms(older_than_hours)
    with working(f"expiring snapshots of {table}"):
        result = open_table(warehouse, table, catalog_option).expire_snapshots(
            retain_max=retain_max, retain_min=retain_min, older_than_ms=age, dry_run=dry_run
        )
    if as_json:
        print_json(
            {
                "snapshots": list(result.snapshot_ids),
                "data_files": result.data_file_count,
                "metadata_files": result.metadata_file_count,
                "held_by": dict(result.held_by),
                "dry_run": result.is_dry_run,
            }
        )
        return
    say(
        f"{plural(len(result.snapshot_ids), 'snapshot')}{' would expire' if dry_run else ' expired'}, "
        f"{plural(result.data_file_count, 'data file')} and {plural(result.metadata_file_count, 'metadata file')} "
        f"{'would go; nothing was removed' if dry_run else 'removed'}"
    )
    place = as_typed(warehouse, table, catalog_option)
    for name, wanted in result.held_by:
        say(
            f"consumer {name} wants snapshot {wanted} next, and holds back what comes from there on; if nobody reads "
            f"under that name any more: freshet consumers {place} --delete {quote(name)}"
        )


def orphans(
    warehouse: Warehouse,
    table: TableName,
    older_than_hours: Annotated[
        float, typer.Option(help="Leave files that are younger than this: a writer may be about to commit them.")
    ] = 24,
    delete: Annotated[
        bool, typer.Option("--delete", help="Remove the files; without it they are only listed.")
    ] = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """List or remove files that no snapshot uses, as crashes leave them."""
    age = age_ms(older_than_hours)
    with working(f"looking for orphan files of {table}"):
        result = open_table(warehouse, table, catalog_option).remove_orphan_files(older_than_ms=age, dry_run=not delete)
    if as_json:
        files = [{"path": file.path, "size_bytes": file.size_bytes} for file in result.files]
        print_json({"files": files, "deleted": delete})
        return
    for file in result.files:
        say(printable(file.path))
    done = "removed" if delete else "nothing was removed; --delete removes them"
    say(
        f"{plural(len(result.files), 'file')}, {size_text(result.size_bytes)}; {done}" if result.files else "no orphans"
    )


def check_table(
    warehouse: Warehouse,
    table: TableName,
    all_snapshots: Annotated[
        bool,
        typer.Option("--all-snapshots", help="Look at every snapshot, one after the other. Default: the newest alone."),
    ] = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Look for damage in a table: lost files and metadata that does not fit.

    The newest snapshot is looked at, and how the snapshots follow each other. Files that only earlier snapshots name
    are looked for with --all-snapshots. In an object store, commits that another program has replaced are damage too.
    The rows of data files are not read, but for deletes where these remove rows: those that still hold values of the
    removed row are counted. Each finding says what is damaged, where, and what mends it. Exit code 65 where
    there is one, 0 where there is none.
    """
    with working(f"checking {table}"):
        found = open_table(warehouse, table, catalog_option).check(all_snapshots=all_snapshots)
    # The remedy as it can be typed here.
    damage = [
        {**asdict(each), "remedy": each.remedy.replace("WAREHOUSE TABLE", as_typed(warehouse, table, catalog_option))}
        for each in found.damage
    ]
    if as_json:
        facts = {"snapshot": found.snapshot_id, "snapshots": found.snapshot_count}
        facts |= {"buckets": found.bucket_count, "files": found.file_count, "deleted_values": found.deleted_values}
        print_json({**facts, "damage": damage})
    else:
        for each in damage:
            say(printable(f"{each['where']}: {each['what']}"))
            say(printable(f"    {each['invariant']}; {each['remedy']}"))
        looked = f"{plural(found.file_count, 'file')} in {plural(found.bucket_count, 'bucket')}"
        earlier = f" and {plural(found.snapshot_count - 1, 'snapshot')} before it" if found.snapshot_count > 1 else ""
        at = "no snapshot" if found.snapshot_id is None else f"snapshot {found.snapshot_id}, {looked}{earlier}"
        say(f"{table}: {at}; {plural(len(damage), 'finding') if damage else 'no damage found'}")
        if found.deleted_values:
            typed = as_typed(warehouse, table, catalog_option)
            say(
                f"{plural(found.deleted_values, 'delete')} hold values of rows that they removed, which a later row "
                f"of the same key goes on from: remove them with freshet compact {typed} --full"
            )
    if damage:
        raise typer.Exit(EXIT_DATA)
