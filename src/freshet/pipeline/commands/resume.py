"""Commands for tables of a pipeline with `sync` that are set apart: resume, resync."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from freshet.pipeline.commands.arguments import AsJson, SkipRecord, record_places
from freshet.pipeline.commands.engine_jobs import engine_of
from freshet.pipeline.commands.output import plural, print_json, say
from freshet.pipeline.commands.spark_part import spark_part
from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.storage.exceptions import StorageError

if TYPE_CHECKING:
    from freshet.pipeline.commands.replaying import OpenJobs

_File = Annotated[Path, typer.Argument(help="The pipeline file, one with sync.", show_default=False)]
_Table = Annotated[str, typer.Option("--table", metavar="TABLE", help="Table as database.table.", show_default=False)]


def resume(file: _File, table: _Table, skip_record: SkipRecord = None, as_json: AsJson = False) -> None:
    """Bring a table that its pipeline has set apart up to the others: what was held back is read from Kafka again.

    Stop the pipeline first; its next batch takes the table up.
    """
    config = _config(file, skip_record)
    with engine_of(config) as open_jobs:
        _resume(config, table, open_jobs, anew=False, as_json=as_json)


def resync(
    file: _File,
    table: _Table,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether the table may be dropped.")] = False,
    skip_record: SkipRecord = None,
    as_json: AsJson = False,
) -> None:
    """Start one table of a pipeline anew: it is dropped, and read from the first offset that Kafka has.

    Stop the pipeline first; its next batch takes the table up.
    """
    config = _config(file, skip_record)
    with engine_of(config) as open_jobs:
        spark_part("resuming").held_back(config, table, anew=True)
        if not yes:
            typer.confirm(
                f"Drop {table}{_what_goes(config, table)} in {config.warehouse} and read it anew?", abort=True
            )
        _resume(config, table, open_jobs, anew=True, as_json=as_json)


def _what_goes(config: SyncPipelineConfig, name: str) -> str:
    """What reading it again does not bring back."""
    catalog, texts = target_catalog(config), ""
    with suppress(StorageError):  # it may be damaged, or gone
        table = catalog.table(name)
        for kind, names in (("tags", [tag.name for tag in table.tags.list()]), ("branches", table.branches.list())):
            texts += f", its {kind} {', '.join(names)}" if names else ""
    return texts


def _resume(config: SyncPipelineConfig, table: str, open_jobs: OpenJobs, *, anew: bool, as_json: bool) -> None:
    done = spark_part("resuming").resume(config, table, open_jobs, anew=anew)
    if as_json:
        print_json({"table": table, "batch": done.batch, "read": done.read_count, "rows": done.row_count,
                    "dead_letters": done.dead_count})  # fmt: skip
        return
    say(
        f"{table}: {plural(done.row_count, 'row')} of {plural(done.read_count, 'record')}, up to batch {done.batch}; "
        f"{plural(done.dead_count, 'dead letter')}. The next batch of the pipeline takes it up"
    )


def _config(file: Path, skip_record: Sequence[str] | None) -> SyncPipelineConfig:
    (config,) = load_pipelines([file])
    if not isinstance(config, SyncPipelineConfig):
        raise InvalidRequestError(f"{file} has no sync: its one table is never set apart")
    if config.sync.source.postgres is not None:
        raise InvalidRequestError(
            f"{file} reads a database, and what its slot has confirmed does not come again: a table cannot be brought "
            "up alone. Drop the slot (freshet drop-slot), and give the pipeline another name and checkpoint: it copies "
            "its tables again"
        )
    return config.skipping(record_places(skip_record))
