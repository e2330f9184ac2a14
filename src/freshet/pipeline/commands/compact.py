"""Commands that write the files of a table anew: compact, rescale.

freshet compact: a table, some partitions of it, or all tables of a database; once, or again and again until it is
stopped.

Of a database one table after the other is compacted. One that cannot be compacted is reported, the others go on, and
the exit code says that something failed.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Final

import typer

from freshet._frozen import Frozen
from freshet.pipeline.commands.arguments import (
    ADOPTS,
    Adopt,
    AsJson,
    CatalogOption,
    TableName,
    Warehouse,
    open_catalog,
    open_table,
)
from freshet.pipeline.commands.bars import bar
from freshet.pipeline.commands.failure_report import while_running
from freshet.pipeline.commands.output import complain, in_snapshots, print_json, say
from freshet.pipeline.commands.partitions import partitions_given
from freshet.pipeline.commands.spark_part import spark_part
from freshet.pipeline.config.sections import interval_ms, spark_interval
from freshet.pipeline.errors.error_kind import ErrorKind, worst
from freshet.pipeline.errors.failure import kind_of
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.running.signals import when_asked_to_stop
from freshet.storage.exceptions import ConflictError, InvalidRequestError, RetryableError, StorageError
from freshet.storage.maintenance.partition_choice import PartitionText
from freshet.storage.maintenance.rescale import RescaleResult
from freshet.storage.maintenance.table_compaction import CompactionBudget, CompactionResult, Elsewhere
from freshet.storage.model.display import plural, size_text
from freshet.storage.table import Table

MEGABYTE: Final = 1024 * 1024
_NO_BUDGET: Final = CompactionBudget()
EVERY_S: Final = 10.0
"""Pause of --continuous."""

_NUMBER: Final = re.compile(r"-?\d+(\.\d*)?|-?\.\d+")


class _Asked(Frozen):
    """What is to be compacted, and how; `table` may be the name of a database."""

    warehouse: str
    table: str
    full: bool
    partitions: dict[str, PartitionText] | None
    budget: CompactionBudget
    as_json: bool
    elsewhere: Elsewhere | None = None
    order_by: Sequence[str] = ()
    strategy: str = "order"
    repair: bool = False
    catalog_option: Sequence[str] | None = None

    @property
    def is_database(self) -> bool:
        return "." not in self.table

    def tables(self) -> Sequence[str]:
        """Names of the tables; raises `InvalidRequestError` where there is no such database."""
        if not self.is_database:
            return [self.table]
        catalog = open_catalog(self.warehouse, self.catalog_option)
        if self.table not in catalog.list_databases():
            raise InvalidRequestError(
                f"there is no database {self.table!r} in {self.warehouse}; a table is database.table"
            )
        return [f"{self.table}.{name}" for name in sorted(catalog.list_tables(self.table))]

    def open(self, name: str) -> Table:
        """One of the tables."""
        return open_table(self.warehouse, name, self.catalog_option)


def compact(
    warehouse: Warehouse,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Table as database.table, or a database.")],
    full: Annotated[
        bool | None,
        typer.Option(
            "--full/--as-needed",
            help="Merge all files of a bucket, or only where the table's rule asks for it. "
            "Default: --full; with --every or --continuous: --as-needed.",
        ),
    ] = None,
    partition: Annotated[
        list[str] | None,
        typer.Option(help="Only partitions with this value, such as dt=2026-11-22. May be repeated."),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(help="Compact again and again, with this pause (10 s, 1 min), until the command is stopped."),
    ] = None,
    continuous: Annotated[bool, typer.Option("--continuous", help="The same as --every '10 s'.")] = False,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Begin no further bucket after this many seconds.")
    ] = None,
    megabytes: Annotated[
        int | None, typer.Option(min=1, help="Begin no further bucket once this many megabytes have been read.")
    ] = None,
    on_spark: Annotated[
        bool, typer.Option("--on-spark", help="Compact buckets in tasks of a Spark session, as many as it has cores.")
    ] = False,
    order_by: Annotated[
        str | None,
        typer.Option(help="Sort the rows of an append table without buckets by these columns, separated by commas."),
    ] = None,
    strategy: Annotated[
        str, typer.Option(help="With --order-by: order, zorder or hilbert; the last two treat all columns alike.")
    ] = "order",
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Only merge levels whose files overlap, where commits and compactions say that they do."
        ),
    ] = False,
    adopt: Adopt = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Compact a table, or a database, bucket by bucket. Streams that write to it meanwhile are not disturbed.

    What was compacted is committed as it goes on, and stays when the command is interrupted.
    """
    pause_s = _pause_s(every) if every is not None else EVERY_S if continuous else None
    is_full = full is not False if pause_s is None else full is True
    budget = CompactionBudget(None if megabytes is None else megabytes * MEGABYTE, seconds)
    partitions = partitions_given(partition)
    columns = [] if order_by is None else [name.strip() for name in order_by.split(",") if name.strip()]
    if order_by is not None and (pause_s is not None or on_spark or seconds is not None or megabytes is not None):
        raise InvalidRequestError(
            "--order-by sorts once, all partitions that are chosen, in this process: leave out --every, --continuous, "
            "--on-spark, --seconds and --megabytes"
        )
    if order_by is not None and not columns:
        raise InvalidRequestError(f"--order-by {order_by!r}: name the columns, separated by commas")
    if repair and (full is not None or pause_s is not None or on_spark or order_by is not None or budget != _NO_BUDGET):
        raise InvalidRequestError(
            "--repair merges levels whose files overlap, once, in this process; of the other options it takes "
            "--partition and --json only"
        )
    options = [*(catalog_option or ()), *([ADOPTS] if adopt else ())]
    with _executors(on_spark) as elsewhere:
        asked = _Asked(
            warehouse, table, is_full, partitions, budget, as_json, elsewhere, columns, strategy, repair, options
        )
        if pause_s is None:
            _once(asked)
        else:
            _again_and_again(asked, pause_s)


def _once(asked: _Asked) -> None:
    failed: dict[str, ErrorKind] = {}
    for name in asked.tables():
        try:
            _report(_round(asked, name), name, asked, quiet=False)
        except StorageError as error:
            if not asked.is_database:
                raise
            complain(f"{name} was not compacted: {kind_of(error)}: {error}")
            failed[name] = kind_of(error)
    if failed:
        text = f"{plural(len(failed), 'table')} of {asked.table} not compacted: {', '.join(failed)}"
        raise PipelineFailedError(text, kind=worst(failed.values()))


def _again_and_again(asked: _Asked, pause_s: float) -> None:
    stop = threading.Event()
    reported: dict[str, str] = {}
    met: AbstractContextManager[None] = nullcontext()  # what is wrong in the first round was wrong in the call
    with when_asked_to_stop(stop.set):
        while not stop.is_set():
            with met:
                for name in asked.tables():
                    if not stop.is_set():
                        _one_more(asked, name, reported)
            met = while_running()
            stop.wait(pause_s)


def _one_more(asked: _Asked, name: str, reported: dict[str, str]) -> None:
    """`reported` are errors of tables of a database: each is reported once, until a round succeeds."""
    try:
        _report(_round(asked, name), name, asked, quiet=True)
    except (ConflictError, RetryableError) as error:
        complain(f"this round was dropped, another writer was faster; the next one tries again: {error}")
    except StorageError as error:
        if not asked.is_database:
            raise
        if reported.get(name) != str(error):
            complain(f"{name} is not compacted: {error}")
        reported[name] = str(error)
    else:
        reported.pop(name, None)


def _round(asked: _Asked, name: str) -> CompactionResult:
    with bar(f"compacting {name}") as advance:
        if asked.repair:
            return asked.open(name).repair(
                partition=asked.partitions, progress=lambda done: advance(done.bytes_done, done.bytes_planned)
            )
        if asked.order_by:
            return asked.open(name).sort_compact(
                asked.order_by,
                asked.strategy,
                partition=asked.partitions,
                progress=lambda done: advance(done.bytes_done, done.bytes_planned),
            )
        return asked.open(name).compact(
            full=asked.full,
            partition=asked.partitions,
            budget=asked.budget,
            progress=lambda done: advance(done.bytes_done, done.bytes_planned),
            elsewhere=asked.elsewhere,
        )


def _report(result: CompactionResult, name: str, asked: _Asked, *, quiet: bool) -> None:
    """What a round did; a job that goes on for days says nothing of rounds that did nothing."""
    ids = [snapshot.id for snapshot in result.snapshots]
    if not (ids or result.buckets_left) and quiet:
        return
    if asked.as_json:
        print_json(
            {
                "table": name,
                "snapshots": ids,
                "buckets": result.buckets_done,
                "buckets_left": result.buckets_left,
                "buckets_aborted": result.buckets_aborted,
                "input_bytes": result.input_bytes,
            }
        )
        return
    start = f"{name}: " if asked.is_database else ""
    if ids:
        say(
            f"{start}compacted {in_snapshots(ids)}: {plural(result.buckets_done, 'bucket')}, "
            f"{size_text(result.input_bytes)} read"
        )
        if asked.repair:
            say(f"{start}no changes were emitted, and sums may count a row twice: compare the table with its source")
    elif not (result.buckets_left or result.aborted_compactions):
        say(f"{start}nothing to {'repair: no level has files that overlap' if asked.repair else 'compact'}")
    if result.aborted_compactions:
        say(f"{start}{plural(result.buckets_aborted, 'bucket')} left to another compaction that was faster")
    if result.buckets_left:
        say(f"{start}{plural(result.buckets_left, 'bucket')} did not fit into the budget; call again to go on")


def _executors(on_spark: bool, command: str = "freshet compact") -> AbstractContextManager[Elsewhere | None]:
    if not on_spark:
        return nullcontext()
    executors: AbstractContextManager[Elsewhere] = spark_part("executors").executors(command)
    return executors


def _pause_s(text: str) -> float:
    """The value of --every: seconds, or a number with a unit."""
    if _NUMBER.fullmatch(text):
        seconds = float(text)
        if seconds < 0:
            raise InvalidRequestError(f"--every {text}: give a pause from 0 on, such as '10 s'")
        return seconds
    try:
        return interval_ms(spark_interval(text)) / 1000
    except ValueError as error:
        raise InvalidRequestError(f"--every: {error}") from error


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
    with _executors(on_spark, "freshet rescale") as elsewhere, bar(f"rescaling {table}") as advance:
        result = open_table(warehouse, table, catalog_option).rescale(
            bucket,
            partition=partitions,
            progress=lambda done: advance(done.bytes_done, done.bytes_planned),
            elsewhere=elsewhere,
        )
    _report_rescale(result, table, bucket, as_json=as_json)


def _report_rescale(result: RescaleResult, table: str, bucket: int, *, as_json: bool) -> None:
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
