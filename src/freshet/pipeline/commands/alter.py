"""The command alter: changes of a table's columns, options and comments, all of a call or none."""

from __future__ import annotations

import re
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
    DropPrimaryKey,
    MoveColumn,
    RenameColumn,
    ResetOption,
    SchemaChange,
    SetColumnComment,
    SetComment,
    SetDefault,
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
    not_null: Annotated[
        list[str] | None,
        typer.Option(
            "--not-null",
            metavar="COLUMN",
            help="Let a column hold no NULL; needs alter-column-null-to-not-null.disabled=false.",
        ),
    ] = None,
    default: Annotated[
        list[str] | None,
        typer.Option(
            "--default",
            metavar="COLUMN=TEXT",
            help="What is written where rows have no value for a column; an empty text removes it.",
        ),
    ] = None,
    move: Annotated[
        list[str] | None,
        typer.Option(
            "--move",
            metavar="'COLUMN PLACE'",
            help="Move a column: 'note first', 'note last', 'note after id', 'note before id'.",
        ),
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
    drop_primary_key: Annotated[
        bool, typer.Option("--drop-primary-key", help="Make an append table of one that nothing was committed to.")
    ] = False,
    within: Annotated[
        str | None,
        typer.Option(
            "--within",
            metavar="COLUMN",
            help="The columns of this call are fields of this one, a ROW: address, or items.element of an ARRAY, "
            "prices.value of a MAP. Names with dots in back quotes.",
        ),
    ] = None,
    allow_lossy: Annotated[
        bool,
        typer.Option(
            "--allow-lossy",
            help="Allow a --type that may lose or break stored values, and options that change rows that are there.",
        ),
    ] = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Change the schema or the options of a table.

    Options that change something may be given several times. The changes are applied in the order of the list below,
    all of them or none. Pipelines that write the table go on over a column that was added: it is NULL in their rows
    until their file names it under `table.columns`, and under `select` of the source if it has one. With
    `on_unknown_field: add`, and with `sync`, they fill it as soon as records have a field of its name. A pipeline whose
    file names a column that was renamed, dropped or given another type stops before it writes more, until its file is
    changed too; with `sync` it goes on.
    """
    inside = () if within is None else _way(within)
    changes: list[SchemaChange] = [
        *(RenameColumn(*pair_given(text, "--rename", "OLD=NEW"), within=inside) for text in rename or ()),
        *(DropColumn(name, inside) for name in drop or ()),
        *(AddColumn(*column_given(text, "--add"), within=inside) for text in add or ()),
        *(ChangeType(*column_given(text, "--type"), within=inside) for text in type_of or ()),
        *(SetNullable(name, True, inside) for name in nullable or ()),
        *(SetNullable(name, False, inside) for name in not_null or ()),
        *_defaults(default or ()),
        *(_moved(text) for text in move or ()),
        *_column_comments(column_comment or (), inside),
        *(SetOption(*pair_given(text, "--set", "KEY=VALUE")) for text in set_option or ()),
        *(ResetOption(key) for key in unset or ()),
    ]
    if comment is not None:
        changes.append(SetComment(comment or None))
    if drop_primary_key:
        changes.append(DropPrimaryKey())
    if not changes:
        raise InvalidRequestError("name at least one change, such as --add 'note STRING'; see freshet alter --help")
    changed = open_table(warehouse, table, catalog_option).alter(*changes, allow_lossy=allow_lossy)
    if as_json:
        print_json({"table": table, "schema_id": changed.schema.id})
    else:
        say(f"{table} has schema {changed.schema.id} now")
        for each in changes:
            if isinstance(each, AddColumn) and not each.within:
                complain(
                    f"{each.name} is NULL in the rows of pipelines whose file does not name it, unless it says "
                    f"on_unknown_field: add or has sync. {_remedy(each)}"
                )


def _remedy(added: AddColumn) -> str:
    return remedy_text(added.name, f'"{added.type}"')


def _column_comments(texts: Sequence[str], within: tuple[str, ...]) -> list[SetColumnComment]:
    pairs = [pair_given(text, "--column-comment", "COLUMN=TEXT") for text in texts]
    return [SetColumnComment(name, text or None, within) for name, text in pairs]


def _defaults(texts: Sequence[str]) -> list[SetDefault]:
    pairs = [pair_given(text, "--default", "COLUMN=TEXT") for text in texts]
    return [SetDefault(name, text or None) for name, text in pairs]


def _moved(text: str) -> MoveColumn:
    name, place = column_given(text, "--move", "'note after id'")
    word, _, beside = place.partition(" ")
    beside = beside.strip().strip("`")
    match word.lower(), bool(beside):
        case "first", False:
            return MoveColumn(name, first=True)
        case "last", False:
            return MoveColumn(name, last=True)
        case "after", True:
            return MoveColumn(name, after=beside)
        case "before", True:
            return MoveColumn(name, before=beside)
    raise InvalidRequestError(f"--move {text!r}: write first, last, after COLUMN or before COLUMN behind the column")


def _way(text: str) -> tuple[str, ...]:
    """The names of `a.b` and of `` `a.b`.c ``."""
    parts = re.findall(r"`([^`]+)`|([^.`]+)", text)
    if not parts or ".".join(f"`{quoted}`" if quoted else plain for quoted, plain in parts) != text:
        raise InvalidRequestError(f"--within {text!r}: write a column, or the names on the way with dots between them")
    return tuple(quoted or plain for quoted, plain in parts)


def pair_given(text: str, option: str, form: str) -> tuple[str, str]:
    """A key or a name, and its value."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise InvalidRequestError(f"{option} {text!r}: write {form}")
    return name.strip(), value.strip()


def column_given(text: str, option: str, example: str = "'note STRING'") -> tuple[str, str]:
    """A column's name and its type; the name ends at the first blank, or is in back quotes."""
    stripped = text.strip()
    if stripped.startswith("`"):
        name, _, written = stripped[1:].partition("`")
    else:
        name, _, written = stripped.partition(" ")
    if not name or not written.strip():
        what = "its place" if option == "--move" else "its type"
        raise InvalidRequestError(f"{option} {text!r}: write the column and {what}, such as {example}")
    return name, written.strip()
