"""Commands that show what a warehouse holds: tables, describe, snapshots, files."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from freshet.pipeline.commands.arguments import AsJson, CatalogOption, TableName, Warehouse, open_catalog, open_table
from freshet.pipeline.commands.output import complain, print_facts, print_json, say
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import StorageError
from freshet.storage.model.display import size_text, time_text


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
    if not databases:
        complain(f"there are no databases in {catalog.warehouse}; is that the folder of a warehouse?")
    facts = [_table_line(catalog, f"{each}.{name}") for each in databases for name in catalog.list_tables(each)]
    header = {
        "table": "table",
        "keys": "primary key",
        "snapshot": "snapshot",
        "records": "records",
        "time": "time (UTC)",
    }
    print_facts(facts, as_json=as_json, header=header)


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
                "time": time_text(snapshot.time_ms).removesuffix(" UTC"),
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
                "size": size_text(file.file_size_bytes),
                "sequence_numbers": f"{file.min_sequence_number}..{file.max_sequence_number}",
                "file": file.file_name,
                "indexes": _indexes_text(opened.engine.index_names(entry)),
            }
        )
    header = {
        "bucket": "bucket", "level": "level", "rows": "rows", "deletes": "deletes", "marked": "marked",
        "size": "size", "sequence_numbers": "sequence numbers", "file": "file",
    }  # fmt: skip
    if any(each["indexes"] for each in facts):
        header["indexes"] = "indexes"
    print_facts(facts, as_json=as_json, header=header)


def _indexes_text(indexes: dict[str, list[str]]) -> str:
    return ", ".join(f"{column} ({', '.join(kinds)})" for column, kinds in indexes.items())


def _table_line(catalog: Catalog, name: str) -> dict[str, Any]:
    """One table; one that cannot be read is listed with the reason."""
    try:
        table = catalog.summary(name)
    except StorageError as error:
        return {"table": name, "error": str(error), "keys": f"cannot be read: {error}"}
    snapshot, keys = table.snapshot, ", ".join(table.primary_keys) or "none (append-only)"
    facts: dict[str, Any] = {"table": name, "location": table.location, "keys": keys}
    if snapshot is None:
        return facts
    time = time_text(snapshot.time_ms).removesuffix(" UTC")
    return {**facts, "snapshot": snapshot.id, "records": snapshot.total_record_count, "time": time}
