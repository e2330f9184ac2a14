"""freshet register: tables whose files are there, and which the catalog does not know."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from freshet.pipeline.commands.arguments import AsJson, CatalogOption, Warehouse, open_catalog
from freshet.pipeline.commands.output import print_json, say
from freshet.storage.catalog import Catalog


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
