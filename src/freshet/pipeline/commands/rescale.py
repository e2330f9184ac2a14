"""freshet rescale: another fixed number of buckets for a table, in this process or in tasks of Spark."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Annotated

import typer

from freshet.pipeline.commands.arguments import AsJson, CatalogOption, TableName, Warehouse, open_table
from freshet.pipeline.commands.bars import bar
from freshet.pipeline.commands.compact import partitions_given
from freshet.pipeline.commands.output import in_snapshots, plural, print_json, say
from freshet.pipeline.commands.spark_part import spark_part
from freshet.storage.model.display import size_text
from freshet.storage.table import Elsewhere, RescaleResult


def rescale(
    warehouse: Warehouse,
    table: TableName,
    bucket: Annotated[int, typer.Option(help="The number of buckets that each partition is to have.")],
    partition: Annotated[
        list[str] | None,
        typer.Option(
            help="Rewrite only partitions with this value, such as dt=2026-11-22. May be repeated; "
            "the others keep their buckets, new ones get the new number."
        ),
    ] = None,
    on_spark: Annotated[
        bool, typer.Option("--on-spark", help="Write buckets in tasks of a Spark session, as many as it has cores.")
    ] = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Give a table another fixed number of buckets, partition by partition. No row changes, readers go on.

    Each partition is committed by itself; called again, an interrupted rescale goes on with those that are left. Stop
    programs of Apache Paimon that write to the table until all its partitions are rewritten. Our own streams may stop
    with an error that asks to start them again; nothing is lost.
    """
    partitions = partitions_given(partition)
    with _executors(on_spark) as elsewhere, bar(f"rescaling {table}") as advance:
        result = open_table(warehouse, table, catalog_option).rescale(
            bucket,
            partition=partitions,
            progress=lambda done: advance(done.bytes_done, done.bytes_planned),
            elsewhere=elsewhere,
        )
    _report(result, table, bucket, as_json=as_json)


def _executors(on_spark: bool) -> AbstractContextManager[Elsewhere | None]:
    if not on_spark:
        return nullcontext()
    executors: AbstractContextManager[Elsewhere] = spark_part("executors").executors("freshet rescale")
    return executors


def _report(result: RescaleResult, table: str, bucket: int, *, as_json: bool) -> None:
    ids = [snapshot.id for snapshot in result.snapshots]
    if as_json:
        print_json(
            {
                "table": table,
                "bucket": bucket,
                "snapshots": ids,
                "partitions": result.partitions_done,
                "input_bytes": result.input_bytes,
                "repeats": result.repeats,
            }
        )
        return
    if not ids:
        say(f"nothing to rewrite: all partitions chosen have {plural(bucket, 'bucket')}")
        return
    say(
        f"{plural(result.partitions_done, 'partition')} rewritten into {plural(bucket, 'bucket')} {in_snapshots(ids)}, "
        f"{size_text(result.input_bytes)} read"
    )
    if result.repeats:
        say(f"{plural(result.repeats, 'time')} a partition was done again, because others had committed to it")
