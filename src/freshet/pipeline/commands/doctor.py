"""The command `doctor`: what is wrong with tables, from their files alone."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from freshet.pipeline.commands.arguments import AsJson, CatalogOption, complain_of_none, open_catalog
from freshet.pipeline.commands.output import plural, print_json, say
from freshet.storage.model.display import printable

if TYPE_CHECKING:
    from freshet.storage.status.finding import Finding

EXIT_FOUND: Final = 3
"""Something is wrong, and more than a note."""
WIDTH: Final = 100
SHOWN_MAX: Final = 15
"""Findings of a warehouse, two lines each."""


def doctor(
    warehouse: Annotated[
        str,
        typer.Argument(
            help="A folder, a URI such as s3://bucket/lake, or the name of a catalog (see freshet catalogs).",
            show_default=False,
        ),
    ],
    table: Annotated[
        str | None, typer.Argument(help="Table as database.table; default: every table.", show_default=False)
    ] = None,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with tables: how bad, by how much, why, and the command that mends it. Changes nothing.

    Reads files alone, so it works where nothing runs. Exit code 3 where an error or a warning is found; 0 where nothing
    is, or notes alone.
    """
    catalog = open_catalog(warehouse, catalog_option)
    if table is None and not catalog.list_databases():
        complain_of_none(catalog)
    found = catalog.doctor(warehouse=warehouse) if table is None else catalog.table(table).doctor(warehouse=warehouse)
    if as_json:
        print_json({"findings": [each.facts() for each in found]})
    else:
        say("\n".join(_in_short(found) if table is None else _in_full(found)))
    if any(each.asks_to_act for each in found):
        raise typer.Exit(EXIT_FOUND)


def _in_full(found: Sequence[Finding]) -> Iterator[str]:
    yield _head(found)
    for each in found:
        yield _line(each)
        for text in (each.cause, each.remedy):
            yield from textwrap.wrap(printable(text), WIDTH, initial_indent="  ", subsequent_indent="  ")
        if each.command is not None:
            yield f"  $ {printable(each.command)}"


def _in_short(found: Sequence[Finding]) -> Iterator[str]:
    """A screen of many tables: without causes, and without notes where there is worse."""
    to_act = [each for each in found if each.asks_to_act]
    shown = (to_act or found)[:SHOWN_MAX]
    yield _head(found)
    for each in shown:
        yield _line(each)
        if each.command is not None:
            yield f"  $ {printable(each.command)}"
    if len(shown) < len(found):
        yield f"and {len(found) - len(shown):,} more; --json has them all"
    if found:
        yield "causes and remedies: name a table"


def _head(found: Sequence[Finding]) -> str:
    return plural(len(found), "finding") if found else "nothing is wrong"


def _line(each: Finding) -> str:
    return f"{each.severity.upper()} {printable(each.table)}: {each.name} ({each.evidence:,} {each.unit})"
