"""Commands that show what there is: catalogs, tables, describe, snapshots, files, branches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from freshet.pipeline.commands.arguments import (
    AsJson,
    CatalogOption,
    TableName,
    Warehouse,
    complain_of_none,
    open_catalog,
    open_table,
)
from freshet.pipeline.commands.output import latest_facts, print_facts, print_json, say
from freshet.storage.catalog import Catalog, NamedCatalog, known_catalogs, with_branch
from freshet.storage.exceptions import StorageError
from freshet.storage.model.display import rfc3339, size_text

_SNAPSHOT: Final = {"snapshot": "snapshot", "records": "records", "time": "time (UTC)"}


def catalogs(as_json: AsJson = False) -> None:
    """List the catalogs that have names, and where they are.

    A name is written where a command takes WAREHOUSE: `freshet read lake shop.orders`. They are in
    ~/.config/freshet/catalogs.yaml (FRESHET_CATALOGS_FILE names another file), as
    `lake: {warehouse: "s3://bucket/lake", s3.endpoint: "https://…"}`, or in environment variables such as
    FRESHET_CATALOG__LAKE__WAREHOUSE. Secrets are not shown.
    """
    known = known_catalogs()
    if as_json:
        print_json([{"catalog": each.name, **_catalog_facts(each), "options": _options_beside(each)} for each in known])
        return
    facts = [
        {"catalog": each.name, **_catalog_facts(each), "options": _options_line(_options_beside(each))}
        for each in known
    ]
    header = {"catalog": "catalog", "place": "place", "options": "options", "source": "from"}
    print_facts(facts, as_json=False, header=header)


def _catalog_facts(catalog: NamedCatalog) -> dict[str, str]:
    return {"place": catalog.place, "source": catalog.source}


def _options_beside(catalog: NamedCatalog) -> dict[str, str]:
    return {key: text for key, text in catalog.shown.items() if text != catalog.place}


def _options_line(options: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={text}" for key, text in options.items()) or "-"


def tables(
    warehouse: Warehouse,
    database: Annotated[str | None, typer.Argument(help="Only this database.")] = None,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """List the tables of a warehouse.

    System tables, such as `shop.orders$files`, are not listed: every table has them, and `freshet read` prints them.
    """
    catalog = open_catalog(warehouse, catalog_option)
    databases = catalog.list_databases() if database is None else [database]
    if database is None:
        complain_of_none(catalog)
    facts = [_table_line(catalog, f"{each}.{name}") for each in databases for name in catalog.list_tables(each)]
    if as_json:
        print_json(facts)
        return
    for each in facts:
        keys = ", ".join(each["primary_key"] or ()) or "none (append-only)"
        each["keys"] = keys if each["error"] is None else f"cannot be read: {each['error']}"
    header = {"table": "table", "keys": "primary key", **_SNAPSHOT}
    print_facts(facts, as_json=False, header=header)


def describe(
    warehouse: Warehouse, table: TableName, catalog_option: CatalogOption = None, as_json: AsJson = False
) -> None:
    """Show columns, options, the latest snapshot, and the levels of each bucket."""
    opened = open_table(warehouse, table, catalog_option)
    if as_json:
        print_json(opened.facts())
    else:
        say(opened.describe())


def snapshots(
    warehouse: Warehouse, table: TableName, catalog_option: CatalogOption = None, as_json: AsJson = False
) -> None:
    """List the snapshots that are still there, oldest first.

    `written` and `deleted` count the rows of the commit by their kind. Which of the rows written were new and which
    replaced another row is known only where the commit wrote a changelog; `records` counts what the files hold.
    """
    opened = open_table(warehouse, table, catalog_option)
    facts = []
    for snapshot in opened.snapshots():
        rows = opened.engine.commit_rows(snapshot)
        facts.append(
            {
                "snapshot": snapshot.id,
                "kind": str(snapshot.commit_kind),
                "time": rfc3339(snapshot.time_ms),
                "commit_user": snapshot.commit_user,
                "identifier": snapshot.commit_identifier,
                "written": rows.written,
                "deleted": rows.deleted,
                "changelog_rows": snapshot.changelog_record_count,
                "records": snapshot.total_record_count,
                "change": snapshot.delta_record_count,
            }
        )
    header = {
        "snapshot": "snapshot", "kind": "kind", "time": "time (UTC)", "commit_user": "commit user",
        "identifier": "identifier", "written": "written", "deleted": "deleted", "records": "records",
    }  # fmt: skip
    print_facts(facts, as_json=as_json, header=header)


def files(
    warehouse: Warehouse,
    table: TableName,
    snapshot_id: Annotated[int | None, typer.Option("--snapshot", help="Snapshot id; default: the latest.")] = None,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """List the data files of a snapshot."""
    opened = open_table(warehouse, table, catalog_option)
    facts: list[dict[str, Any]] = []
    marked = opened.engine.marked_rows(snapshot_id=snapshot_id)
    for entry in opened.files(snapshot_id=snapshot_id):
        file = entry.file
        facts.append(
            {
                "bucket": opened.engine.bucket_label(entry.partition, entry.bucket),
                "level": file.level,
                "rows": file.row_count,
                "deletes": file.delete_row_count,
                "marked": marked.get(file.file_name, 0),
                "size_bytes": file.file_size_bytes,
                "min_sequence_number": file.min_sequence_number,
                "max_sequence_number": file.max_sequence_number,
                "file": file.file_name,
                "indexes": opened.engine.index_names(entry),
            }
        )
    if as_json:
        print_json(facts)
        return
    for each in facts:
        each["size"] = size_text(each["size_bytes"])
        each["sequence_numbers"] = f"{each['min_sequence_number']}..{each['max_sequence_number']}"
        each["indexes"] = _indexes_text(each["indexes"])
    header = {
        "bucket": "bucket", "level": "level", "rows": "rows", "deletes": "deletes", "marked": "marked",
        "size": "size", "sequence_numbers": "sequence numbers", "file": "file",
    }  # fmt: skip
    if any(each["indexes"] for each in facts):
        header["indexes"] = "indexes"
    print_facts(facts, as_json=False, header=header)


def _indexes_text(indexes: dict[str, list[str]]) -> str:
    return ", ".join(f"{column} ({', '.join(kinds)})" for column, kinds in indexes.items())


def _table_line(catalog: Catalog, name: str) -> dict[str, Any]:
    """One table; one that cannot be read is listed with the reason."""
    try:
        table, failure = catalog.summary(name), None
    except StorageError as error:
        table, failure = None, str(error)
    return {
        "table": name,
        "location": None if table is None else table.location,
        "primary_key": None if table is None else list(table.primary_keys),
        **latest_facts(None if table is None else table.snapshot),
        "error": failure,
    }


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
    header = {"branch": "branch", "table": "table", **_SNAPSHOT}
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
