"""Commands for the branches of a table: branches, branch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from freshet.pipeline.commands.arguments import AsJson, CatalogOption, TableName, Warehouse, open_catalog
from freshet.pipeline.commands.output import print_facts, print_json, say
from freshet.storage.catalog import Catalog, with_branch
from freshet.storage.exceptions import InvalidRequestError, StorageError
from freshet.storage.model.display import time_text


def branches(
    warehouse: Warehouse, table: TableName, catalog_option: CatalogOption = None, as_json: AsJson = False
) -> None:
    """List the branches of a table, each with its latest snapshot.

    A branch is a table to all other commands, under the name that is printed: freshet read WAREHOUSE
    'shop.orders$branch_audit'. One that an interrupted call has left half made is listed as such; drop it.
    """
    catalog = open_catalog(warehouse, catalog_option)
    found = catalog.table(table).branches
    facts = [_line(catalog, table, name) for name in found.list()]
    facts += [{"branch": name, "table": "half made: drop it, or wait"} for name in found.half_made()]
    header = {
        "branch": "branch",
        "table": "table",
        "snapshot": "snapshot",
        "records": "records",
        "time": "time (UTC)",
    }
    print_facts(sorted(facts, key=lambda each: str(each["branch"])), as_json=as_json, header=header)


def branch(
    warehouse: Warehouse,
    table: TableName,
    action: Annotated[Literal["create", "rename", "drop"], typer.Argument(help="What to do.", show_default=False)],
    name: Annotated[str, typer.Argument(help="Name of the branch.", show_default=False)],
    new_name: Annotated[str | None, typer.Argument(help="With rename: the new name.")] = None,
    from_tag: Annotated[
        str | None, typer.Option(help="Begin with the rows of this tag. Default: with none, and the table's schema.")
    ] = None,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Create, rename or drop a branch of a table: rows beside it that share its files.

    What is written to a branch is not in the table, nor the reverse. Who has a branch open that is renamed finds none
    any more. Files that only a dropped branch named are removed by freshet orphans.
    """
    opened = open_catalog(warehouse, catalog_option).table(table)
    if (action == "rename") != (new_name is not None):
        raise InvalidRequestError("give a new name with rename, and with nothing else: freshet branch … rename OLD NEW")
    if action != "create" and from_tag is not None:
        raise InvalidRequestError("--from-tag goes with create")
    if new_name is not None:
        opened.branches.rename(name, new_name)
        text = f"branch {name} is called {new_name} now; its name is {with_branch(table, new_name)}"
        name = new_name
    elif action == "drop":
        opened.branches.drop(name)
        text = f"branch {name} of {table} dropped; freshet orphans removes the files that only it named"
    else:
        opened.branches.create(name, from_tag=from_tag)
        begin = "no rows" if from_tag is None else f"the rows of tag {from_tag}"
        text = f"branch {name} created with {begin}; its name is {with_branch(table, name)}"
    if as_json:
        print_json({"branch": name, "table": with_branch(table, name), "action": action})
    else:
        say(text)


def _line(catalog: Catalog, table: str, name: str) -> dict[str, Any]:
    """One branch; one that cannot be read is listed with the reason."""
    facts: dict[str, Any] = {"branch": name, "table": with_branch(table, name)}
    try:
        snapshot = catalog.summary(facts["table"]).snapshot
    except StorageError as error:
        return {**facts, "error": str(error), "table": f"cannot be read: {error}"}
    if snapshot is None:
        return facts
    time = time_text(snapshot.time_ms).removesuffix(" UTC")
    return {**facts, "snapshot": snapshot.id, "records": snapshot.total_record_count, "time": time}
