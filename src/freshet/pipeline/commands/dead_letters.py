"""The command dead-letters: which records of a pipeline did not become rows, and why."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Final

import pyarrow.compute as pc
import typer

from freshet.pipeline.commands.arguments import AsJson, CatalogOption, Warehouse, catalog_options, open_table
from freshet.pipeline.commands.engine_jobs import engine_of
from freshet.pipeline.commands.output import print_columns, print_json, say
from freshet.pipeline.commands.spark_part import spark_part
from freshet.pipeline.config.catalogs import target_location
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.identity.checkpoint_folder import local_folder
from freshet.pipeline.report.dead_letters import VALUE_MAX, by_reason, dead_letter_rows, holds_dead_letters, in_utc
from freshet.storage.catalog import split_branch, warehouse_location
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.display import plural, printable, shortened
from freshet.storage.table import Table

LAST: Final = 5


def dead_letters(
    warehouse: Warehouse,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The dead-letter table, or the table of the pipeline.")],
    pipeline: Annotated[str | None, typer.Option(help="Only records of this pipeline.")] = None,
    last: Annotated[int, typer.Option(min=0, help="How many of the last records to show.")] = LAST,
    replay: Annotated[
        Path | None,
        typer.Option(help="Pipeline file: put the dead letters of this pipeline through it again."),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="With --replay: also those that an earlier replay may have applied already."),
    ] = False,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Count dead letters by pipeline, column and reason, and show the last ones.

    With --replay they are read again, for example once the pipeline file has been corrected, and leave the table; those
    that fail again stay, with their new reason. They are applied now, after changes of the same keys that came later:
    without a sequence field the older record wins.
    """
    if replay is not None:
        _replay(replay, warehouse, table, catalog_option, everything=everything, as_json=as_json)
        return
    rows = dead_letter_rows(_dead_letter_table(warehouse, table, catalog_option))
    if pipeline is not None:
        rows = rows.filter(pc.equal(rows["pipeline"], pipeline))
    reasons = by_reason(rows)
    shown = rows.slice(max(0, rows.num_rows - last)).to_pylist()
    if as_json:
        last_ones = [{**row, "record_time": in_utc(row["record_time"])} for row in shown]
        print_json({"count": rows.num_rows, "reasons": reasons, "last": last_ones})
        return
    say(plural(rows.num_rows, "dead letter"))
    if not rows.num_rows:
        return
    cells = [[f"{each['count']:,}", each["pipeline"], each["column"] or "-", each["reason"]] for each in reasons]
    print_columns(["count", "pipeline", "column", "reason"], cells, right=["count"])
    for row in shown:
        say("")
        for line in _record_lines(row):
            say(line)


def _replay(
    file: Path, warehouse: str, table: str, catalog_option: CatalogOption, *, everything: bool, as_json: bool
) -> None:
    (config,) = load_pipelines([file])
    if table not in (config.table.name, config.dead_letter_table):
        is_of_many = isinstance(config, SyncPipelineConfig)
        named = "the tables of a database" if is_of_many else config.table.name
        raise InvalidRequestError(
            f"{file} writes {named} with dead letters in {config.dead_letter_table}, not {table}; name "
            f"{'that table' if is_of_many else 'one of these tables'}"
        )
    named = warehouse_location(warehouse, catalog_options(catalog_option))
    if _folder(target_location(config)) != _folder(named):
        raise InvalidRequestError(
            f"the table of {file} is in {config.table.warehouse}, not in {warehouse}; name that warehouse"
        )
    with engine_of(config) as open_jobs:
        report = spark_part("replaying").replay_dead_letters(config, open_jobs, everything=everything)
    facts = {"replayed": 0, "applied": 0, "dead_letters": {}, "skipped": {}, "snapshots": [], "table_events": []}
    if report is not None:
        facts = {
            "replayed": report.read_count,
            "applied": report.result.applied,
            "dead_letters": dict(report.result.dead),
            "skipped": dict(report.result.skipped),
            "snapshots": list(report.snapshot_ids),
            "table_events": list(report.table_events),
        }
    if as_json:
        print_json(facts)
    elif report is None:
        say(f"{config.name}: no dead letters to replay")
    else:
        again = report.result.dead_count
        say(
            f"{config.name}: {plural(report.read_count, 'dead letter')} replayed: {report.result.applied:,} applied, "
            f"{report.result.skipped_count:,} skipped, {again:,} failed again"
        )
        for reason, count in sorted(report.result.dead.items()):
            say(f"  {count:,} × {printable(reason)}")
        for text in report.table_events:
            say(f"  {printable(text)}")


def _folder(warehouse: str) -> str:
    """One text for one place, however it is written."""
    folder = local_folder(warehouse)
    return warehouse.replace("s3a://", "s3://", 1) if folder is None else os.path.realpath(folder)


def _dead_letter_table(warehouse: str, name: str, catalog_option: CatalogOption) -> Table:
    """The table of this name if it holds dead letters, else the one that a pipeline into it uses by default."""
    opened = open_table(warehouse, name, catalog_option)
    if holds_dead_letters(opened.schema):
        return opened
    default = f"{split_branch(name)[0]}_dead_letters"
    try:
        return open_table(warehouse, default, catalog_option)
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"table {name} holds no dead letters, and there is no table {default}; name the table that the pipeline "
            "file calls dead_letters (a table is made when a pipeline runs for the first time)"
        ) from error


def _record_lines(row: dict[str, Any]) -> list[str]:
    origin = row["topic"] or "?"
    if row["kafka_partition"] is not None:
        origin = f"{origin} partition {row['kafka_partition']} offset {row['log_offset']}"
    when = "" if row["record_time"] is None else f", {row['record_time']:%Y-%m-%d %H:%M:%S} UTC"
    column = f"column {row['column_name']}: " if row["column_name"] else ""
    return [
        printable(f"{row['pipeline']}: {origin}{when}"),
        printable(f"  {column}{row['reason']}"),
        f"  {_value_text(row['raw_value'])}",
    ]


def _value_text(value: bytes | None) -> str:
    if value is None:
        return "no value"
    return shortened(printable(value.decode("utf-8", "replace")), VALUE_MAX)
