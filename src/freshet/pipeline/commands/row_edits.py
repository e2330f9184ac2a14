"""Commands that change rows of a table, each in one commit: append, upsert, overwrite and merge with the rows of a
file; delete and update of rows that a filter chooses."""

from __future__ import annotations

import re
from typing import Annotated, Final

import typer

from freshet.pipeline.commands.arguments import AsJson, CatalogOption, TableName, Warehouse
from freshet.pipeline.commands.compact import partitions_given
from freshet.pipeline.commands.edits import DryRun, TablePlace, run_edit
from freshet.pipeline.commands.row_files import file_rows
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.table import EditResult, Table, expr

RowFile = Annotated[
    str,
    typer.Argument(metavar="FILE", help="Rows: .parquet, .arrow, .orc, .csv (with a header) or .jsonl."),
]
Where = Annotated[
    str,
    typer.Option("--where", metavar="FILTER", help="Which rows, as SQL: \"dt = '2026-11-22' AND total > 10\"."),
]

_IN_BACKTICKS: Final = re.compile(r"\s*`((?:[^`]|``)+)`\s*=(.*)", re.DOTALL)


def append(
    warehouse: Warehouse,
    table: TableName,
    file: RowFile,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Add the rows of a file to a table, in one commit."""
    run_edit(
        TablePlace(warehouse, table, catalog_option),
        f"appending to {table}",
        lambda opened: opened.append(file_rows(file, opened.arrow_schema)),
        as_json=as_json,
    )


def upsert(
    warehouse: Warehouse,
    table: TableName,
    file: RowFile,
    given: Annotated[
        bool, typer.Option("--given", help="Columns that the file does not have keep what is stored.")
    ] = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Add the rows of a file to a table, or replace those of their keys, in one commit."""
    run_edit(
        TablePlace(warehouse, table, catalog_option),
        f"upserting into {table}",
        lambda opened: opened.upsert(file_rows(file, opened.arrow_schema), columns="given" if given else "all"),
        as_json=as_json,
    )


def overwrite(
    warehouse: Warehouse,
    table: TableName,
    file: RowFile,
    partition: Annotated[
        list[str] | None,
        typer.Option(help="Replace this partition, such as dt=2026-11-22. The rows must be of it."),
    ] = None,
    dynamic: Annotated[
        bool | None,
        typer.Option(
            "--dynamic/--whole",
            help="Replace the partitions that occur in the rows, or the whole table. Default: as "
            "dynamic-partition-overwrite says.",
            show_default=False,
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="FILTER",
            help="Replace the rows for which this is true, as SQL: \"city = 'Ulm'\". It must be true for each row of "
            "the file.",
        ),
    ] = None,
    dry_run: DryRun = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Put the rows of a file in the place of those of a table, of some partitions, or of a filter, in one commit."""
    chosen = partitions_given(partition)
    run_edit(
        TablePlace(warehouse, table, catalog_option),
        f"overwriting {table}",
        lambda opened: opened.overwrite(
            file_rows(file, opened.arrow_schema), partition=chosen, filter=where, dynamic=dynamic, dry_run=dry_run
        ),
        as_json=as_json,
    )


def merge(
    warehouse: Warehouse,
    table: TableName,
    file: RowFile,
    on: Annotated[
        list[str],
        typer.Option("--on", metavar="COLUMN", help="A column on which rows are matched. May be repeated."),
    ],
    when: Annotated[
        list[str] | None,
        typer.Option(
            "--when",
            metavar="CLAUSE",
            help='What becomes of rows, as in MERGE: "matched then update", "matched and source.gone then delete", '
            '"matched then update set total = target.total + source.total", "not matched then insert", "not matched by '
            'source then delete". May be repeated: of a row the first clause that fits counts.',
        ),
    ] = None,
    dry_run: DryRun = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Update, delete and add rows by those of a file, in one commit.

    The file is the source, the table the target: clauses name their columns as source.total and target.total.
    """
    if not when:
        raise InvalidRequestError(
            'say what becomes of rows, in order: --when "matched then update" --when "not matched then insert" is an '
            "upsert"
        )
    clauses = when

    def merged(opened: Table) -> EditResult:
        begun = opened.merge(file_rows(file, opened.arrow_schema), on)
        for clause in clauses:
            begun = begun.when(clause)
        return begun.execute(dry_run=dry_run)

    run_edit(TablePlace(warehouse, table, catalog_option), f"merging into {table}", merged, as_json=as_json)


def delete(
    warehouse: Warehouse,
    table: TableName,
    where: Where,
    dry_run: DryRun = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Delete rows of a table, in one commit. Earlier snapshots keep them until they expire."""
    place = TablePlace(warehouse, table, catalog_option)
    run_edit(place, f"deleting rows of {table}", lambda opened: opened.delete(where, dry_run=dry_run), as_json=as_json)


def update(
    warehouse: Warehouse,
    table: TableName,
    set_to: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="'COLUMN = SQL'",
            help='A column and its new value, as SQL over the row: "total = total * 2", "city = \'Ulm\'". May be '
            "repeated.",
        ),
    ],
    where: Where,
    dry_run: DryRun = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Give columns new values in rows of a table, in one commit."""
    values = {}
    for text in set_to:
        name, value = _assignment(text)
        if name in values:
            raise InvalidRequestError(f"--set gives {name} two values; give one")
        values[name] = expr(value)
    run_edit(
        TablePlace(warehouse, table, catalog_option),
        f"updating rows of {table}",
        lambda opened: opened.update(values, where, dry_run=dry_run),
        as_json=as_json,
    )


def _assignment(text: str) -> tuple[str, str]:
    """The column, which may be in backticks, and the SQL of its value."""
    quoted = _IN_BACKTICKS.fullmatch(text)
    if quoted:
        name, value = quoted[1].replace("``", "`"), quoted[2].strip()
    else:
        name, _, value = (part.strip() for part in text.partition("="))
    if not (name and value):
        raise InvalidRequestError(f"--set {text!r}: write a column and its value, such as \"city = 'Ulm'\"")
    return name, value
