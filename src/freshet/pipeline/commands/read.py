"""The command read: rows of a table to the terminal, or to a program as JSON lines, CSV or an Arrow stream."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import pyarrow as pa
import typer

from freshet.pipeline.commands.arguments import AtTime, CatalogOption, Warehouse, open_readable, time_given
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
from freshet.storage.table import SystemScan, TableScan

ReadableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="Table as database.table, or a system table such as 'shop.orders$files'.")
]


def read(
    warehouse: Warehouse,
    table: ReadableName,
    filter_text: FilterText = None,
    columns: Columns = None,
    limit: Limit = None,
    snapshot_id: Annotated[int | None, typer.Option("--snapshot", help="Snapshot id; default: the latest.")] = None,
    tag: Annotated[str | None, typer.Option(help="The snapshot that this tag names.")] = None,
    at: AtTime = None,
    output: RowFormat = "table",
    catalog_option: CatalogOption = None,
) -> None:
    """Print the rows of a table, merged, as of one snapshot.

    TABLE may be a system table: `shop.orders$files` prints what `shop.orders` says of its data files. There are
    $snapshots, $schemas, $options, $files, $partitions, $buckets, $tags, $branches, $consumers, $manifests, $audit_log
    and $ro; quote the name, so that the shell leaves the $ alone.
    """
    check_output(output)
    wanted = rows_wanted(output, limit)
    opened = open_readable(warehouse, table, catalog_option)
    scan = opened.scan(
        column_names(columns),
        filter=filter_text,
        snapshot_id=snapshot_id,
        tag=tag,
        timestamp_ms=None if at is None else time_given(at, "--timestamp"),
        limit=wanted,
    )
    write_rows(scan.schema, _batches(scan, wanted), output, wanted)


def _batches(scan: TableScan | SystemScan, limit: int | None) -> Iterator[pa.RecordBatch]:
    """The rows; a whole table with a bar over its splits, unless the rows themselves go to the terminal."""
    if limit is not None or sys.stdout.isatty():
        yield from scan.to_batches()
        return
    for split in counted(scan.plan(), "reading"):
        yield from scan.read_split(split)
