"""The command branches, which lists those of a table."""

from __future__ import annotations

from typing import Any

from freshet.pipeline.commands.arguments import AsJson, CatalogOption, TableName, Warehouse, open_catalog
from freshet.pipeline.commands.output import latest_facts, print_facts, print_json
from freshet.storage.catalog import Catalog, with_branch
from freshet.storage.exceptions import StorageError


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
    facts += [_facts(name, None, None, "half made: drop it, or wait") for name in found.half_made()]
    facts.sort(key=lambda each: str(each["branch"]))
    if as_json:
        print_json(facts)
        return
    for each in facts:
        each["table"] = each["table"] or each["error"]
    header = {
        "branch": "branch",
        "table": "table",
        "snapshot": "snapshot",
        "records": "records",
        "time": "time (UTC)",
    }
    print_facts(facts, as_json=False, header=header)


def _line(catalog: Catalog, table: str, name: str) -> dict[str, Any]:
    """One branch; one that cannot be read is listed with the reason."""
    full_name = with_branch(table, name)
    try:
        return _facts(name, full_name, catalog.summary(full_name).snapshot, None)
    except StorageError as error:
        return _facts(name, None, None, f"cannot be read: {error}")


def _facts(name: str, table: str | None, snapshot: Any, error: str | None) -> dict[str, Any]:
    return {"branch": name, "table": table, **latest_facts(snapshot), "error": error}
