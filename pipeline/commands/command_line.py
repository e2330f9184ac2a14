"""The command `freshet`.

    freshet run FILE...            runs pipelines            freshet describe WAREHOUSE TABLE
    freshet check FILE...          says what is wrong        freshet snapshots | files WAREHOUSE TABLE
    freshet jars                   jars for --jars           freshet compact | expire | orphans WAREHOUSE TABLE

| exit code | meaning |
|---|---|
| 0 | done; also: asked to stop, and stopped after the batch that ran |
| 1 | failed while running |
| 2 | the configuration or the call is wrong; nothing was started, nothing was written |

An error is one message that says what to do; `--debug` adds the traceback.
"""

from __future__ import annotations

import sys
import threading
import traceback
from pathlib import Path
from typing import Annotated, Final

import typer

import freshet
from freshet.pipeline.batch.table_setup import check_table
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.pipeline_file import load_pipelines, warnings
from freshet.pipeline.exceptions import EXIT_DONE, EXIT_FAILED, EXIT_INVALID, PipelineError
from freshet.pipeline.runner import Runner, spark_settings, stop_on_signals, when_asked_to_stop
from freshet.pipeline.spark.jars import SPARK_GROUP, ensure_jars
from freshet.pipeline.spark.session import create_session
from freshet.storage.catalog import Catalog
from freshet.storage.describe import size_text, time_text
from freshet.storage.exceptions import ConflictError, InvalidRequestError, RetryableError, StorageError
from freshet.storage.table import Table

HOUR_MS: Final = 3_600_000
HOURS_MAX: Final = 1_000_000

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Exactly-once streams into lake tables in the Apache Paimon format.",
)

Files = Annotated[list[Path], typer.Argument(help="pipeline files (YAML)", show_default=False)]
Warehouse = Annotated[str, typer.Argument(help="folder or file: URI of the warehouse")]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="database.table")]


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="show tracebacks")] = False,
) -> None:
    del debug  # read by `main`, before anything can fail


@app.command()
def run(files: Files) -> None:
    """Runs pipelines in one Spark session until they end or are asked to stop."""
    configs = load_pipelines(files)
    _warn(configs)
    jars = ensure_jars(SPARK_GROUP) if _needs_kafka(configs) else []
    spark = create_session(configs[0].name, settings=spark_settings(configs), jars=jars)
    try:
        runner = Runner(spark, configs, say=_say)
        with stop_on_signals(runner):
            runner.run()
    finally:
        spark.stop()


@app.command()
def check(files: Files) -> None:
    """Says what is wrong with pipeline files; starts nothing, writes nothing."""
    configs = load_pipelines(files)
    _warn(configs)
    wrong = [(config, text) for config in configs for text in check_table(config.table)]
    for config, text in wrong:
        _complain(f"{config.name}: table {config.table.name}: {text}")
    if wrong:
        raise typer.Exit(EXIT_INVALID)
    for config in configs:
        print(f"{config.name}: ok, into {config.table.name}")


@app.command()
def jars() -> None:
    """Prints the jars that Spark needs, as --jars takes them; fetches them once per machine."""
    print(",".join(str(jar) for jar in ensure_jars(SPARK_GROUP)))


@app.command()
def describe(warehouse: Warehouse, table: TableName) -> None:
    """Columns, latest snapshot, and the levels of each bucket."""
    print(_open(warehouse, table).describe())


@app.command()
def snapshots(warehouse: Warehouse, table: TableName) -> None:
    """Every snapshot that is still there, oldest first."""
    rows = [["snapshot", "kind", "time (UTC)", "commit user", "identifier", "rows", "change"]]
    for snapshot in _open(warehouse, table).snapshots():
        rows.append(
            [
                str(snapshot.id),
                str(snapshot.commit_kind),
                time_text(snapshot.time_ms).removesuffix(" UTC"),
                snapshot.commit_user,
                str(snapshot.commit_identifier),
                f"{snapshot.total_record_count:,}",
                f"{snapshot.delta_record_count:+,}",
            ]
        )
    _print_columns(rows)


@app.command()
def files(
    warehouse: Warehouse,
    table: TableName,
    snapshot_id: Annotated[int | None, typer.Option("--snapshot", help="default: the latest")] = None,
) -> None:
    """Live data files of a snapshot."""
    opened = _open(warehouse, table)
    rows = [["bucket", "level", "rows", "deletes", "size", "sequence numbers", "file"]]
    for entry in opened.files(snapshot_id=snapshot_id):
        file = entry.file
        folder = opened.store.partition_path(entry.partition)
        rows.append(
            [
                f"{folder}/{entry.bucket}" if folder else str(entry.bucket),
                str(file.level),
                f"{file.row_count:,}",
                "?" if file.delete_row_count is None else f"{file.delete_row_count:,}",
                size_text(file.file_size_bytes),
                f"{file.min_sequence_number}..{file.max_sequence_number}",
                file.file_name,
            ]
        )
    _print_columns(rows)


@app.command()
def compact(
    warehouse: Warehouse,
    table: TableName,
    full: Annotated[
        bool | None,
        typer.Option("--full/--as-needed", help="all files, or as the table's rule picks; with --every the latter"),
    ] = None,
    every: Annotated[
        float | None, typer.Option(min=0, help="seconds between rounds: a compaction job, until it is stopped")
    ] = None,
) -> None:
    """Compacts every bucket; streams that write meanwhile are not disturbed."""
    if every is None:
        ids = _compact_once(warehouse, table, full=full is not False)
        print(f"compacted in snapshot {ids}" if ids else "nothing to compact")
        return
    stop = threading.Event()
    with when_asked_to_stop(stop.set):
        while not stop.is_set():
            try:
                ids = _compact_once(warehouse, table, full=full is True)
            except (ConflictError, RetryableError) as error:
                _complain(f"this round gave way, the next will try again: {error}")
                ids = ""
            if ids:
                _say(f"compacted in snapshot {ids}")
            stop.wait(every)


@app.command()
def expire(
    warehouse: Warehouse,
    table: TableName,
    retain_max: Annotated[int | None, typer.Option(help="snapshots to keep at most")] = None,
    retain_min: Annotated[int | None, typer.Option(help="snapshots to keep at least")] = None,
    older_than_hours: Annotated[float | None, typer.Option(help="keep what is younger")] = None,
) -> None:
    """Removes old snapshots and the files that only they name; defaults are the table's options."""
    age_ms = None if older_than_hours is None else _age_ms(older_than_hours)
    result = _open(warehouse, table).expire_snapshots(
        retain_max=retain_max, retain_min=retain_min, older_than_ms=age_ms
    )
    print(
        f"{len(result.snapshot_ids)} snapshots expired, {result.data_file_count} data files and "
        f"{result.metadata_file_count} metadata files removed"
    )


@app.command()
def orphans(
    warehouse: Warehouse,
    table: TableName,
    older_than_hours: Annotated[
        float, typer.Option(help="leave younger files: a writer may be about to name them")
    ] = 24,
    delete: Annotated[bool, typer.Option("--delete", help="remove them; otherwise only list")] = False,
) -> None:
    """Files that nothing names, as crashes leave them."""
    result = _open(warehouse, table).remove_orphan_files(older_than_ms=_age_ms(older_than_hours), dry_run=not delete)
    for file in result.files:
        print(file.path)
    print(f"{len(result.files)} files, {size_text(result.size_bytes)}{'' if delete else '; nothing was removed'}")


@app.command()
def version() -> None:
    """Prints the version."""
    print(freshet.__version__)


def main() -> None:
    """Entry point of the command: errors become one message and an exit code."""
    is_debug = "--debug" in sys.argv[1:]
    try:
        code = app(standalone_mode=False) or EXIT_DONE
    except typer.Exit as error:
        code = error.exit_code
    except typer.TyperException as error:  # an unknown command or option
        _complain(error.format_message())
        code = EXIT_INVALID
    except typer.Abort:
        code = EXIT_FAILED
    except (PipelineError, StorageError, OSError) as error:
        if is_debug:
            traceback.print_exc()
        _complain(str(error))
        code = exit_code(error)
    sys.exit(code)


def exit_code(error: BaseException) -> int:
    """The exit code that an error that was raised before or while running stands for."""
    if isinstance(error, PipelineError):
        return error.exit_code
    return EXIT_INVALID if isinstance(error, InvalidRequestError) else EXIT_FAILED


def _compact_once(warehouse: str, table: str, *, full: bool) -> str:
    """Compacts the table as it is now; gives the ids of the snapshots made, perhaps none."""
    return ", ".join(str(snapshot.id) for snapshot in _open(warehouse, table).compact(full=full).snapshots)


def _age_ms(hours: float) -> int:
    if not 0 <= hours <= HOURS_MAX:
        raise InvalidRequestError(
            f"--older-than-hours {hours}: give an age from 0 to {HOURS_MAX} hours, such as 24 or 0.5"
        )
    return int(hours * HOUR_MS)


def _open(warehouse: str, table: str) -> Table:
    return Catalog(warehouse).table(table)


def _needs_kafka(configs: list[PipelineConfig]) -> bool:
    return any(source.is_kafka for config in configs for source in config.sources)


def _warn(configs: list[PipelineConfig]) -> None:
    for config in configs:
        for text in warnings(config):
            _complain(f"{config.name}: warning: {text}")


def _say(text: str) -> None:
    print(text, flush=True)


def _complain(text: str) -> None:
    print(f"freshet: {text}", file=sys.stderr, flush=True)


def _print_columns(rows: list[list[str]]) -> None:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
