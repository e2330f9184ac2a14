"""Commands that look after a table: compact, expire, orphans."""

from __future__ import annotations

import threading
from typing import Annotated, Final

import typer

from freshet.pipeline.commands.arguments import AsJson, TableName, Warehouse, age_ms, open_table
from freshet.pipeline.commands.output import bar, complain, plural, print_json, say, working
from freshet.pipeline.signals import when_asked_to_stop
from freshet.storage.describe import size_text
from freshet.storage.exceptions import ConflictError, RetryableError
from freshet.storage.table import CompactionBudget, CompactionResult

MEGABYTE: Final = 1024 * 1024


def compact(
    warehouse: Warehouse,
    table: TableName,
    full: Annotated[
        bool | None,
        typer.Option(
            "--full/--as-needed",
            help="Merge all files of a bucket, or only where the table's rule asks for it. "
            "Default: --full; with --every: --as-needed.",
        ),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(min=0, help="Compact again after this many seconds, until the command is stopped."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Begin no further bucket after this many seconds.")
    ] = None,
    megabytes: Annotated[
        int | None, typer.Option(min=1, help="Begin no further bucket once this many megabytes have been read.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compact a table bucket by bucket. Streams that write to it meanwhile are not disturbed.

    What was compacted is committed as it goes on, and stays when the command is interrupted.
    """
    budget = CompactionBudget(None if megabytes is None else megabytes * MEGABYTE, seconds)
    if every is None:
        with bar(f"compacting {table}") as advance:
            result = open_table(warehouse, table).compact(
                full=full is not False,
                budget=budget,
                progress=lambda done: advance(done.bytes_done, done.bytes_planned),
            )
        _tell(result, as_json, quiet=False)
        return
    stop = threading.Event()
    with when_asked_to_stop(stop.set):
        while not stop.is_set():
            try:
                result = open_table(warehouse, table).compact(full=full is True, budget=budget)
            except (ConflictError, RetryableError) as error:
                complain(f"this round gave way to another writer, the next one tries again: {error}")
            else:
                _tell(result, as_json, quiet=True)
            stop.wait(every)


def expire(
    warehouse: Warehouse,
    table: TableName,
    retain_max: Annotated[int | None, typer.Option(help="Keep at most this many snapshots.")] = None,
    retain_min: Annotated[int | None, typer.Option(help="Keep at least this many snapshots.")] = None,
    older_than_hours: Annotated[float | None, typer.Option(help="Keep snapshots that are younger.")] = None,
    as_json: AsJson = False,
) -> None:
    """Remove old snapshots and the files that only they use. What is not given comes from the table's options."""
    age = None if older_than_hours is None else age_ms(older_than_hours)
    with working(f"expiring snapshots of {table}"):
        result = open_table(warehouse, table).expire_snapshots(
            retain_max=retain_max, retain_min=retain_min, older_than_ms=age
        )
    if as_json:
        print_json(
            {
                "snapshots": list(result.snapshot_ids),
                "data_files": result.data_file_count,
                "metadata_files": result.metadata_file_count,
            }
        )
        return
    say(
        f"{plural(len(result.snapshot_ids), 'snapshot')} expired, {plural(result.data_file_count, 'data file')} and "
        f"{plural(result.metadata_file_count, 'metadata file')} removed"
    )


def orphans(
    warehouse: Warehouse,
    table: TableName,
    older_than_hours: Annotated[
        float, typer.Option(help="Leave files that are younger: a writer may be about to commit them.")
    ] = 24,
    delete: Annotated[
        bool, typer.Option("--delete", help="Remove the files; without it they are only listed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List or remove files that no snapshot uses, as crashes leave them."""
    age = age_ms(older_than_hours)
    with working(f"looking for orphan files of {table}"):
        result = open_table(warehouse, table).remove_orphan_files(older_than_ms=age, dry_run=not delete)
    if as_json:
        files = [{"path": file.path, "size_bytes": file.size_bytes} for file in result.files]
        print_json({"files": files, "deleted": delete})
        return
    for file in result.files:
        say(file.path)
    done = "removed" if delete else "nothing was removed; --delete removes them"
    say(
        f"{plural(len(result.files), 'file')}, {size_text(result.size_bytes)}; {done}" if result.files else "no orphans"
    )


def _tell(result: CompactionResult, as_json: bool, *, quiet: bool) -> None:
    """What a round did; a job that goes on for days says nothing of rounds that did nothing."""
    ids = [snapshot.id for snapshot in result.snapshots]
    if not (ids or result.buckets_left) and quiet:
        return
    if as_json:
        print_json(
            {
                "snapshots": ids,
                "buckets": result.buckets_done,
                "buckets_left": result.buckets_left,
                "buckets_given_way": len(result.given_way),
                "input_bytes": result.input_bytes,
            }
        )
        return
    if ids:
        say(
            f"compacted in snapshot {', '.join(map(str, ids))}: {plural(result.buckets_done, 'bucket')}, "
            f"{size_text(result.input_bytes)} read"
        )
    elif not (result.buckets_left or result.given_way):
        say("nothing to compact")
    if result.given_way:
        say(f"{plural(len(result.given_way), 'bucket')} left to another compaction that was faster")
    if result.buckets_left:
        say(f"{plural(result.buckets_left, 'bucket')} did not fit into the budget; call again to go on")
