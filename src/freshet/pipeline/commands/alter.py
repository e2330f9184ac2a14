"""The command alter: changes of a table's columns, options and comments, all of a call or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from freshet.pipeline.batch.left_out import remedy_text
from freshet.pipeline.commands.arguments import AsJson, CatalogOption, TableName, Warehouse, open_table
from freshet.pipeline.commands.output import complain, print_json, say
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.table import (
    AddColumn,
    ChangeType,
    DropColumn,
    RenameColumn,
    ResetOption,
    SchemaChange,
    SetColumnComment,
    SetComment,
    SetNullable,
    SetOption,
)


def alter(
    warehouse: Warehouse,
    table: TableName,
    rename: Annotated[list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="Rename a column.")] = None,
    drop: Annotated[list[str] | None, typer.Option("--drop", metavar="COLUMN", help="Drop a column.")] = None,
    add: Annotated[
        list[str] | None,
        typer.Option("--add", metavar="'COLUMN TYPE'", help="Add a nullable column, such as 'note STRING'."),
    ] = None,
    type_of: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="'COLUMN TYPE'", help="Change the type of a column, such as 'total DECIMAL(18,4)'."
        ),
    ] = None,
    nullable: Annotated[
        list[str] | None, typer.Option("--nullable", metavar="COLUMN", help="Let a column hold NULL.")
    ] = None,
    column_comment: Annotated[
        list[str] | None,
        typer.Option("--column-comment", metavar="COLUMN=TEXT", help="Comment a column; an empty text removes it."),
    ] = None,
    set_option: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set an option of the table.")
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Reset an option to its default.")
    ] = None,
    comment: Annotated[
        str | None, typer.Option("--comment", help="Comment the table; an empty text removes it.")
    ] = None,
    allow_lossy: Annotated[
        bool, typer.Option("--allow-lossy", help="Allow a --type that may lose or break stored values.")
    ] = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Change the schema or the options of a table.

    Options that change something may be given several times. The changes are applied in the order of the list below,
    all of them or none. Streams that write the table go on; a column that was added is NULL in their rows until their
    pipeline file names it under `table.columns`, and under `select` of the source if it has one. With
    `on_unknown_field: add` they fill it as soon as records have a field of its name.
    """
    changes: list[SchemaChange] = [
        *(RenameColumn(*_pair(text, "--rename", "OLD=NEW")) for text in rename or ()),
        *(DropColumn(name) for name in drop or ()),
        *(AddColumn(*_column(text, "--add")) for text in add or ()),
        *(ChangeType(*_column(text, "--type")) for text in type_of or ()),
        *(SetNullable(name, True) for name in nullable or ()),
        *_column_comments(column_comment or ()),
        *(SetOption(*_pair(text, "--set", "KEY=VALUE")) for text in set_option or ()),
        *(ResetOption(key) for key in unset or ()),
    ]
    if comment is not None:
        changes.append(SetComment(comment or None))
    if not changes:
        raise InvalidRequestError("name at least one change, such as --add 'note STRING'; see freshet alter --help")
    changed = open_table(warehouse, table, catalog_option).alter(*changes, allow_lossy=allow_lossy)
    if as_json:
        print_json({"table": table, "schema_id": changed.schema.id})
    else:
        say(f"{table} has schema {changed.schema.id} now")
        for each in changes:
            if isinstance(each, AddColumn):
                complain(
                    f"{each.name} is NULL in the rows of pipelines whose file does not name it, unless it says "
                    f"on_unknown_field: add. {_remedy(each)}"
                )


def _remedy(added: AddColumn) -> str:
    return remedy_text(added.name, f'"{added.type}"')


def _column_comments(texts: Sequence[str]) -> list[SetColumnComment]:
    pairs = [_pair(text, "--column-comment", "COLUMN=TEXT") for text in texts]
    return [SetColumnComment(name, text or None) for name, text in pairs]


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise InvalidRequestError(f"{option} {text!r}: write {form}")
    return name.strip(), value.strip()


def _column(text: str, option: str) -> tuple[str, str]:
    """A column's name and its type; the name ends at the first blank, or is in back quotes."""
    stripped = text.strip()
    if stripped.startswith("`"):
        name, _, written = stripped[1:].partition("`")
    else:
        name, _, written = stripped.partition(" ")
    if not name or not written.strip():
        raise InvalidRequestError(f"{option} {text!r}: write the column and its type, such as 'note STRING'")
    return name, written.strip()
