"""Commands that look after a table: expire, orphans, check-table, purge, repair, register."""

from __future__ import annotations

from dataclasses import asdict
from shlex import quote
from typing import Annotated, Any, Literal

import typer

from freshet.pipeline.commands.arguments import (
    HOUR_MS,
    HOURS_MAX,
    AsJson,
    CatalogOption,
    TableName,
    Warehouse,
    age_ms,
    as_typed,
    open_catalog,
    open_table,
)
from freshet.pipeline.commands.bars import bar, working
from freshet.pipeline.commands.output import print_json, say, since_text
from freshet.pipeline.errors.error_kind import EXIT_DATA
from freshet.storage.catalog import Catalog
from freshet.storage.commit.lost_commits import LostCommit
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.display import plural, printable, rfc3339, size_text
from freshet.storage.table import Table


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
                "held_by": [
                    {
                        "consumer": each.consumer,
                        "next_snapshot": each.next_snapshot_id,
                        "moved_at": rfc3339(each.moved_ms),
                        "snapshots": each.snapshot_count,
                        "data_bytes": each.data_bytes,
                    }
                    for each in result.held_by
                ],
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
    for each in result.held_by:
        say(
            f"consumer {each.consumer} wants snapshot {each.next_snapshot_id} next since {since_text(each.moved_ms)}, "
            f"and holds back {plural(each.snapshot_count, 'snapshot')} and {size_text(each.data_bytes)} of data files; "
            f"if nobody reads under that name any more: freshet consumers {place} --delete {quote(each.consumer)}"
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

    Nothing brings them back; TRUNCATE TABLE keeps the rows in earlier snapshots. Columns and options stay, and
    batches that were committed are not committed again.
    """
    if not 0 <= orphan_hours <= HOURS_MAX:
        raise InvalidRequestError(f"--orphans-older-than-hours {orphan_hours}: give 0 or more, up to {HOURS_MAX} hours")
    opened = open_table(warehouse, table, catalog_option)
    with working(f"emptying {table}"):
        gone = opened.purge(orphans_older_than_ms=int(orphan_hours * HOUR_MS), dry_run=not yes)
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


def repair(
    what: Annotated[
        Literal["lost-commit", "hash-index"], typer.Argument(help="What is to be repaired: lost-commit or hash-index.")
    ],
    warehouse: Warehouse,
    table: TableName,
    manifest_list: Annotated[
        str | None,
        typer.Option(help="Commit again what this manifest list names, as the error about the lost commit says it."),
    ] = None,
    all_of_them: Annotated[
        bool, typer.Option("--all", help="Commit again whatever is found, the oldest first.")
    ] = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Find commits that another program has replaced in an object store, and commit their files again; or build hash
    indexes of dynamic buckets again.

    hash-index: of a table with bucket=-1, the indexes that are missing, damaged or lack keys, from the keys of all data
    files. Keys that are in two buckets are reported: write the rows of their partition again.

    lost-commit: without --manifest-list and --all they are only listed. A commit is made again under its own user and
    number: the table has it once, however often this is called, and a writer that replays it finds it committed. Stop
    the writer of the commit before: a commit that is being made at this moment looks like a lost one.
    """
    if what == "hash-index":
        if manifest_list is not None or all_of_them:
            raise InvalidRequestError("--manifest-list and --all are of lost-commit; leave them out")
        _repair_hash_index(open_table(warehouse, table, catalog_option), table, as_json=as_json)
        return
    if manifest_list is not None and all_of_them:
        raise InvalidRequestError("--manifest-list repairs one lost commit and --all every one; give one of them")
    with working(f"looking for lost commits of {table}"):
        opened = open_table(warehouse, table, catalog_option)
        if manifest_list is not None:
            facts = [_repaired(opened, manifest_list)]
        elif all_of_them:
            facts = [_repaired(opened, each.manifest_list) for each in opened.lost_commits()]
        else:
            facts = [_found(each) for each in opened.lost_commits()]
    if as_json:
        print_json({"commits": facts})
        return
    for each in facts:
        say(_text(each))
    if not facts:
        say(f"{table}: no commit is lost")
    elif manifest_list is None and not all_of_them:
        say("nothing was committed; --all commits them again, --manifest-list one of them")


def _repair_hash_index(table: Table, name: str, *, as_json: bool) -> None:
    with bar(f"reading the keys of {name}") as move:
        repair = table.repair_hash_indexes(progress=move)
    if as_json:
        in_two = [{"partition": partition, "keys": count} for partition, count in repair.keys_in_two_buckets]
        print_json({**asdict(repair), "keys_in_two_buckets": in_two})
        return
    for each in repair.repaired:
        where = f"{each.partition}, bucket {each.bucket}" if each.partition else f"bucket {each.bucket}"
        built = f"built again with {plural(each.key_count, 'key')} as snapshot {each.snapshot_id}"
        say(f"{where}: {each.why}; {built}")
    if not repair.repaired:
        say(f"{name}: the hash indexes of {plural(repair.bucket_count, 'bucket')} are whole")
    for partition, count in repair.keys_in_two_buckets:
        where = f"{partition}: " if partition else ""
        say(f"{where}{plural(count, 'key')} in more than one bucket: write these rows again into a new table")


def _repaired(table: Table, manifest_list: str) -> dict[str, Any]:
    found = _found(table.lost_commit(manifest_list))  # before its files are in the table again
    result = table.repair_lost_commit(manifest_list)
    snapshot = result.snapshots[0].id if result.snapshots else None
    since = None if result.already_committed else found["in_table_since"]
    return {
        **found,
        "in_table_since": since,
        "already_committed": result.already_committed,
        "snapshot": snapshot,
    }


def _found(lost: LostCommit) -> dict[str, Any]:
    record = lost.record
    return {
        "user": record.user,
        "identifier": record.identifier,
        "was_snapshot": record.snapshot_id,
        "rows": lost.row_count,
        "files": lost.files,
        "in_table_since": None if lost.built_upon is None else lost.built_upon.id,
        "manifest_list": lost.manifest_list,
        "already_committed": None,
        "snapshot": None,
    }


def _text(facts: dict[str, Any]) -> str:
    what = f"commit {facts['identifier']} of user {facts['user']!r}"
    size = f"{plural(facts['rows'], 'row')} in {plural(len(facts['files']), 'file')}"
    since = facts["in_table_since"]
    if since is not None:
        size += f" that the table has since snapshot {since}, which was built upon the commit"
    if facts["already_committed"] is None:
        was = f"was snapshot {facts['was_snapshot']} or was to be; {size}; --manifest-list {facts['manifest_list']}"
        return f"{what} {was}"
    if facts["already_committed"]:
        return f"{what}: the table has it, or a later one of this user; nothing was committed"
    again = f"committed again as snapshot {facts['snapshot']}"
    return f"{what}: {again}, {size}" if since is None else f"{what}: its number was {again}, without the {size}"


def register(
    warehouse: Warehouse,
    tables: Annotated[list[str], typer.Argument(metavar="TABLE...", help="Tables as database.table.")],
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Make tables of a catalog in a database of files that lie where tables of these names would.

    A crash, or a program that drops a database and leaves its files, may leave a table's files without its row in the
    catalog; so does a warehouse that was used without this catalog. Only rows of the catalog are written. A table that
    the catalog knows is left as it is. Apache Paimon calls this repair.
    """
    catalog = open_catalog(warehouse, catalog_option)
    facts = [_registered(catalog, table) for table in tables]
    if as_json:
        print_json(facts)
        return
    for each in facts:
        what = "registered" if each["is_new"] else "the catalog knows it already"
        say(f"{each['table']}: {what}, {each['location']}")


def _registered(catalog: Catalog, table: str) -> dict[str, Any]:
    is_known = catalog.has_table(table)
    return {"table": table, "location": catalog.register_table(table).location, "is_new": not is_known}
