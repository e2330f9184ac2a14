"""The command tail: the rows of a table, then its changes from the log, as they come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import pyarrow as pa
import typer

from freshet.pipeline.commands.arguments import TableName, Warehouse, open_table
from freshet.pipeline.commands.failure_report import while_running
from freshet.pipeline.commands.rows import Columns, FilterText, TailFormat, check_output, column_names, write_rows
from freshet.storage.exceptions import InvalidRequestError


def tail(
    warehouse: Warehouse,
    table: TableName,
    speculative: Annotated[
        bool,
        typer.Option(
            "--speculative", help="Show changes as soon as they are logged, also those that are taken back later."
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
) -> None:
    """Follow the log of a table: rows with their kind (+I -U +U -D), until Ctrl-C."""
    check_output(output)
    opened = open_table(warehouse, table)
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
            write_rows(stream.schema, _until(stream, limit), output, limit)
    except KeyboardInterrupt:
        return
    finally:
        stream.close()


def _until(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """All of them, or so many rows."""
    left = limit
    while left is None or left > 0:
        batch = next(batches, None)
        if batch is None:
            return
        batch = batch if left is None else batch.slice(0, left)
        left = None if left is None else left - batch.num_rows
        yield batch


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InvalidRequestError(f"--option {text}: give KEY=VALUE")
    return key, value
