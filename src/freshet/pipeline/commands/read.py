"""The command read: rows of a table to the terminal, or to a program as JSON lines, CSV or an Arrow stream."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import pyarrow as pa
import typer

from freshet.pipeline.commands.arguments import CatalogOption, TableName, Warehouse, open_table
from freshet.pipeline.commands.bars import counted
from freshet.pipeline.commands.rows import (
    Columns,
    FilterText,
    Limit,
    RowFormat,
    check_output,
    column_names,
    rows_wanted,
    write_rows,
)
from freshet.storage.table import TableScan


def read(
    warehouse: Warehouse,
    table: TableName,
    filter_text: FilterText = None,
    columns: Columns = None,
    limit: Limit = None,
    snapshot_id: Annotated[int | None, typer.Option("--snapshot", help="Snapshot id; default: the latest.")] = None,
    output: RowFormat = "table",
    catalog_option: CatalogOption = None,
) -> None:
    """Print the rows of a table, merged, as of one snapshot."""
    check_output(output)
    wanted = rows_wanted(output, limit)
    opened = open_table(warehouse, table, catalog_option)
    scan = opened.scan(column_names(columns), filter=filter_text, snapshot_id=snapshot_id, limit=wanted)
    write_rows(scan.schema, _batches(scan, wanted), output, wanted)


def _batches(scan: TableScan, limit: int | None) -> Iterator[pa.RecordBatch]:
    """The rows; a whole table with a bar over its splits, unless the rows themselves go to the terminal."""
    if limit is not None or sys.stdout.isatty():
        yield from scan.to_batches()
        return
    for split in counted(scan.plan(), "reading"):
        yield from scan.read_split(split)
