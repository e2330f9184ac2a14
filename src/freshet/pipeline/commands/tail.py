"""The command tail: the rows of a table, then its changes from the log, as they come."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from freshet.pipeline.commands.arguments import CatalogOption, TableName, Warehouse, open_table
from freshet.pipeline.commands.failure_report import while_running
from freshet.pipeline.commands.rows import Columns, FilterText, TailFormat, check_output, column_names, write_rows
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.merge.gather import limited


def tail(
    warehouse: Warehouse,
    table: TableName,
    speculative: Annotated[
        bool,
        typer.Option(
            "--speculative", help="Show changes as soon as they are logged, also those that are retracted later."
        ),
    ] = False,
    scan_mode: Annotated[
        Literal["latest-full", "latest"],
        typer.Option(help="Begin with the rows that are there now (latest-full), or with what comes next (latest)."),
    ] = "latest-full",
    from_snapshot: Annotated[int | None, typer.Option(help="Begin with the changes of this snapshot.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", help="Set KEY=VALUE for this call, such as kafka.sasl.password=…")
    ] = None,
    filter_text: FilterText = None,
    columns: Columns = None,
    limit: Annotated[int | None, typer.Option(min=0, help="End after this many rows.")] = None,
    max_wait_s: Annotated[
        float | None, typer.Option("--max-wait", min=0, help="End after this many seconds without a change.")
    ] = None,
    output: TailFormat = "csv",
    catalog_option: CatalogOption = None,
) -> None:
    """Follow the log of a table: rows with their kind (+I -U +U -D), until Ctrl-C.

    They have the columns that the table had at the start: for columns that are added later, call it again.
    """
    check_output(output)
    opened = open_table(warehouse, table, catalog_option)
    if option:
        opened = opened.with_options(dict(_pair(text) for text in option))
    stream = opened.stream(
        column_names(columns),
        filter_text,
        isolation="speculative" if speculative else "committed",
        scan_mode=None if from_snapshot is not None else scan_mode,
        from_snapshot=from_snapshot,
        max_wait_s=max_wait_s,
    )
    try:
        with while_running():
            write_rows(stream.schema, limited(stream, limit), output, limit)
    except KeyboardInterrupt:
        return
    finally:
        stream.close()


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InvalidRequestError(f"--option {text}: give KEY=VALUE")
    return key, value
