"""freshet repair lost-commit: commits of Freshet that another program has copied its snapshot over.

freshet repair hash-index: where the keys of dynamic buckets are, read from the data files."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer

from freshet.pipeline.commands.arguments import AsJson, CatalogOption, TableName, Warehouse, open_table
from freshet.pipeline.commands.bars import bar, working
from freshet.pipeline.commands.output import plural, print_json, say
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.table import LostCommit, Table


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
        print_json(asdict(repair))
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
    }


def _text(facts: dict[str, Any]) -> str:
    what = f"commit {facts['identifier']} of user {facts['user']!r}"
    size = f"{plural(facts['rows'], 'row')} in {plural(len(facts['files']), 'file')}"
    since = facts["in_table_since"]
    if since is not None:
        size += f" that the table has since snapshot {since}, which was built upon the commit"
    if "snapshot" not in facts:
        was = f"was snapshot {facts['was_snapshot']} or was to be; {size}; --manifest-list {facts['manifest_list']}"
        return f"{what} {was}"
    if facts["already_committed"]:
        return f"{what}: the table has it, or a later one of this user; nothing was committed"
    again = f"committed again as snapshot {facts['snapshot']}"
    return f"{what}: {again}, {size}" if since is None else f"{what}: its number was {again}, without the {size}"
