"""The command mark-partition-done."""

from __future__ import annotations

from typing import Annotated

import typer

from freshet.pipeline.commands.arguments import AsJson, CatalogOption, TableName, Warehouse, open_table
from freshet.pipeline.commands.compact import partitions_given
from freshet.pipeline.commands.output import print_json, say


def mark_partition_done(
    warehouse: Warehouse,
    table: TableName,
    partition: Annotated[
        list[str],
        typer.Option(
            help="A partition that is done, such as dt=2026-11-22, with several keys dt=2026-11-22/country=DE. May be "
            "repeated.",
        ),
    ],
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Mark partitions as done: a file _SUCCESS in the folder of each, for programs that wait for it.

    No snapshot is made, and rows may come all the same. Other actions of partition.mark-done-action are refused.
    """
    chosen = [partitions_given(text.split("/")) or {} for text in partition]
    paths = open_table(warehouse, table, catalog_option).mark_partition_done(*chosen)
    if as_json:
        print_json([{"path": path} for path in paths])
        return
    for path in paths:
        say(path)
