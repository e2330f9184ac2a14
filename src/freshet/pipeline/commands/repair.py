"""freshet repair lost-commit: commits of Freshet that another program has copied its snapshot over."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from freshet.pipeline.commands.arguments import AsJson, CatalogOption, TableName, Warehouse, open_table
from freshet.pipeline.commands.bars import working
from freshet.pipeline.commands.output import plural, print_json, say
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.table import LostCommit, Table


def repair(
    what: Annotated[Literal["lost-commit"], typer.Argument(help="What is to be repaired: lost-commit.")],
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
    """Find commits that another program has replaced in an object store, and commit their files again.

    Without --manifest-list and --all they are only listed. A commit is made again under its own user and number: the
    table has it once, however often this is called, and a writer that replays it finds it committed. Stop the writer of
    the commit before: a commit that is being made at this moment looks like a lost one.
    """
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
