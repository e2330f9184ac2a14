"""Commands that make, rename and drop tables and databases."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from freshet.pipeline.commands.alter import column_given, pair_given
from freshet.pipeline.commands.arguments import AsJson, CatalogOption, TableName, Warehouse, open_catalog
from freshet.pipeline.commands.output import plural, print_json, say
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import InvalidRequestError, NotFoundError, StorageError

Database = Annotated[str, typer.Argument(help="Name of the database.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would go; nothing is removed.")]
IfExists = Annotated[bool, typer.Option("--if-exists", help="Do nothing where there is none.")]
IfNotExists = Annotated[bool, typer.Option("--if-not-exists", help="Leave one that is there as it is.")]


def create_database(
    warehouse: Warehouse,
    database: Database,
    property_: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="KEY=VALUE", help="A property, where the catalog keeps them. Repeatable."),
    ] = None,
    if_not_exists: IfNotExists = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Create a database. A table is created with its database, where there is none yet."""
    properties = dict(pair_given(text, "--property", "KEY=VALUE") for text in property_ or ())
    catalog = open_catalog(warehouse, catalog_option)
    catalog.create_database(database, if_not_exists=if_not_exists, properties=properties)
    _tell({"database": database}, f"database {database} is in {catalog.warehouse}", as_json=as_json)


def create_table(
    warehouse: Warehouse,
    table: TableName,
    column: Annotated[
        list[str],
        typer.Option("--column", metavar="'COLUMN TYPE'", help="A column, such as 'id BIGINT'. In order; repeatable."),
    ],
    primary_key: Annotated[
        list[str] | None,
        typer.Option("--primary-key", metavar="COLUMNS", help="Columns of the primary key: id, or dt,id. Repeatable."),
    ] = None,
    partition_by: Annotated[
        list[str] | None,
        typer.Option("--partition-by", metavar="COLUMNS", help="Columns whose values are partitions. Repeatable."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="An option of the table, such as bucket=4. Repeatable."),
    ] = None,
    comment: Annotated[str | None, typer.Option("--comment", help="Comment of the table.")] = None,
    if_not_exists: IfNotExists = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Create a table, and its database where there is none yet."""
    columns = [column_given(text, "--column") for text in column]
    names = [name for name, _ in columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidRequestError(f"--column gives {twice} two types; give one")
    made = open_catalog(warehouse, catalog_option).create_table(
        table,
        schema=dict(columns),
        primary_keys=_names(primary_key),
        partition_keys=_names(partition_by),
        options=dict(pair_given(text, "--option", "KEY=VALUE") for text in option or ()),
        comment=comment,
        if_not_exists=if_not_exists,
    )
    _tell({"table": table, "location": made.location}, f"{table} is at {made.location}", as_json=as_json)


def rename_table(
    warehouse: Warehouse,
    table: TableName,
    new_name: Annotated[str, typer.Argument(metavar="NEW", help="The new name as database.table.")],
    if_exists: IfExists = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Give a table another name, maybe in another database, which must be there.

    Snapshots, tags and branches stay. Whoever has the table open must open it anew: stop its pipelines before, and
    name the new table in their files. A store that cannot rename folders, such as S3, refuses.
    """
    catalog = open_catalog(warehouse, catalog_option)
    was_there = catalog.has_table(table)
    catalog.rename_table(table, new_name, if_exists=if_exists)
    facts = {"table": table, "new_name": new_name, "renamed": was_there}
    _tell(facts, f"{table} is {new_name} now" if was_there else f"there is no table {table}", as_json=as_json)


def drop_table(
    warehouse: Warehouse,
    table: TableName,
    if_exists: IfExists = False,
    dry_run: DryRun = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Remove a table with all of its files, snapshots, tags and branches; also what an interrupted call has left."""
    catalog = open_catalog(warehouse, catalog_option)
    is_there = catalog.has_table(table)
    what = _table_text(catalog, table) if is_there else f"there is no table {table}"
    if not dry_run:
        catalog.drop_table(table, if_exists=if_exists)
    elif not is_there and not if_exists:
        raise NotFoundError(f"there is no table {table} in {catalog.warehouse}", table=table)
    said = f"would be dropped: {what}" if dry_run else f"dropped {what}"
    _tell({"table": table, "dropped": is_there, "dry_run": dry_run}, said if is_there else what, as_json=as_json)


def drop_database(
    warehouse: Warehouse,
    database: Database,
    cascade: Annotated[bool, typer.Option("--cascade", help="With the tables in it, and all of their rows.")] = False,
    if_exists: IfExists = False,
    dry_run: DryRun = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Remove a database; with tables in it only when --cascade says so."""
    catalog = open_catalog(warehouse, catalog_option)
    is_there = database in catalog.list_databases()
    tables = [f"{database}.{name}" for name in catalog.list_tables(database)] if is_there else []
    if not dry_run:
        catalog.drop_database(database, cascade=cascade, if_exists=if_exists)
    elif not is_there and not if_exists:
        raise NotFoundError(f"there is no database {database!r} in {catalog.warehouse}")
    elif tables and not cascade:
        raise InvalidRequestError(f"database {database!r} holds {plural(len(tables), 'table')}; add --cascade")
    facts = {"database": database, "tables": tables, "dropped": is_there, "dry_run": dry_run}
    if not is_there:
        _tell(facts, f"there is no database {database}", as_json=as_json)
        return
    what = f"database {database} with {plural(len(tables), 'table')}"
    listed = "".join(f"\n  {name}" for name in tables)
    _tell(facts, f"would be dropped: {what}{listed}" if dry_run else f"dropped {what}", as_json=as_json)


def _names(texts: list[str] | None) -> list[str]:
    return [name.strip() for text in texts or () for name in text.split(",") if name.strip()]


def _table_text(catalog: Catalog, table: str) -> str:
    try:
        snapshot = catalog.summary(table).snapshot
    except StorageError:  # what cannot be read can be dropped
        return f"{table}, which cannot be read"
    return f"{table}, {'without snapshots' if snapshot is None else plural(snapshot.total_record_count, 'record')}"


def _tell(facts: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(facts)
    else:
        say(text)
