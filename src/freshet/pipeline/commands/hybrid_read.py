"""The command behind jobs/hybrid_read.py: a table as a stream of Spark, into a sink."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from freshet.pipeline.commands.arguments import CatalogOption, TableName, Warehouse, catalog_options
from freshet.pipeline.commands.rows import Columns, FilterText
from freshet.pipeline.commands.spark_part import spark_part
from freshet.pipeline.config.interval import spark_interval
from freshet.pipeline.config.stream_options import (
    COLUMNS_OPTION,
    CONSUMER_OPTION,
    FILTER_OPTION,
    ISOLATION_OPTION,
    MODE_OPTION,
)
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.storage.catalog import absolute_place
from freshet.storage.io.env import absolute_path


def hybrid_read(
    warehouse: Warehouse,
    table: TableName,
    to: Annotated[Literal["console", "parquet", "table"], typer.Option(help="Where the changes go.")] = "console",
    path: Annotated[str | None, typer.Option(help="With --to parquet: the folder of the files.")] = None,
    into: Annotated[
        str | None, typer.Option(help="With --to table: a table that is there, in the same warehouse.")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Where the query keeps how far it is; it must be given for files and tables.")
    ] = None,
    name: Annotated[str, typer.Option(help="With --to table: the commit user.")] = "hybrid-read",
    scan_mode: Annotated[str, typer.Option(help="What it begins with.")] = "latest-full",
    isolation: Annotated[
        str | None, typer.Option(help="committed, speculative, or none: snapshots alone.", show_default=False)
    ] = None,
    consumer_id: Annotated[
        str | None, typer.Option(help="What was not read under this name does not expire.", show_default=False)
    ] = None,
    filter_text: FilterText = None,
    columns: Columns = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", help="KEY=VALUE of the stream, such as maxOffsetsPerTrigger=100000 or kafka.…=…."),
    ] = None,
    every: Annotated[str, typer.Option(help="Time between batches; 0 s: at once.")] = "1 s",
    available_now: Annotated[bool, typer.Option(help="Read what is there, then end.")] = False,
    catalog_option: CatalogOption = None,
) -> None:
    """Follow a table with Spark: its rows, then each change with its kind, into a sink, each once."""
    needed = {"console": (), "parquet": (("--path", path), ("--checkpoint", checkpoint)),
              "table": (("--into", into), ("--checkpoint", checkpoint))}[to]  # fmt: skip
    for word, value in needed:
        if not value:
            raise InvalidRequestError(f"--to {to} needs {word}")
    given = {
        MODE_OPTION: scan_mode,
        ISOLATION_OPTION: isolation,
        CONSUMER_OPTION: consumer_id,
        FILTER_OPTION: filter_text,
        COLUMNS_OPTION: columns,
    }
    options = {key: text for key, text in given.items() if text is not None} | dict(
        _pair(each) for each in option or ()
    )
    spark_part("following").follow(
        {"warehouse": absolute_place(warehouse), "table": table, **options},
        to=to,
        path=None if path is None else absolute_path(path),
        into=into,
        checkpoint=None if checkpoint is None else absolute_path(checkpoint),
        name=name,
        every=None if available_now else spark_interval(every),
        catalog_options=catalog_options(catalog_option),
    )


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InvalidRequestError(f"--option {text}: give KEY=VALUE")
    return key, value
