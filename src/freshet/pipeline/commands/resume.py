"""Commands for tables of a pipeline that are brought up, or started anew: resume, resync."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from freshet.pipeline.commands.arguments import AsJson, SkipRecord, record_places
from freshet.pipeline.commands.engine_jobs import engine_of
from freshet.pipeline.commands.output import complain, print_json, say
from freshet.pipeline.commands.spark_part import spark_part
from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.storage.exceptions import StorageError
from freshet.storage.model.display import plural

if TYPE_CHECKING:
    from freshet.pipeline.commands.replaying import OpenJobs

_ENGINE_PART: Final = ("resume", "freshet.pipeline.sync")
_File = Annotated[Path, typer.Argument(help="The pipeline file, one with sync.", show_default=False)]
_Table = Annotated[str, typer.Option("--table", metavar="TABLE", help="Table as database.table.", show_default=False)]


def resume(file: _File, table: _Table, skip_record: SkipRecord = None, as_json: AsJson = False) -> None:
    """Bring a table that its pipeline has set apart up to the others: what was held back is read from Kafka again.

    Stop the pipeline first; its next batch takes the table up.
    """
    config = _config(file, skip_record)
    if _reads_database(config):
        raise InvalidRequestError(
            f"{file} reads a database, whose slot sends no change twice: no table of it is ever set apart. Mend what "
            f"the pipeline has failed of and start it, or copy the table again: freshet resync {file} --table {table}"
        )
    with engine_of(config) as open_jobs:
        _resume(config, table, open_jobs, anew=False, as_json=as_json)


def resync(
    file: Annotated[Path, typer.Argument(help="The pipeline file, with sync or of a database.", show_default=False)],
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="TABLE", help="Table as database.table; of a database by default all."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether the rows may go.")] = False,
    skip_record: SkipRecord = None,
    as_json: AsJson = False,
) -> None:
    """Start a table of a pipeline anew: it is dropped, and read from the first offset that Kafka has. The tables of a
    database are emptied, and copied again by the next run; all of them from a new slot.

    Stop the pipeline first; its next batch takes the table up.
    """
    (found,) = load_pipelines([file])
    if _reads_database(found):
        _copy_again(found, table, yes=yes, as_json=as_json)
        return
    config = _config(file, skip_record)
    if table is None:
        raise InvalidRequestError("--table says which table of the pipeline is read anew")
    with engine_of(config) as open_jobs:
        spark_part(*_ENGINE_PART).held_back(config, table, anew=True)
        if not yes:
            typer.confirm(
                f"Drop {table}{_what_goes(config, table)} in {config.warehouse} and read it anew?", abort=True
            )
        _resume(config, table, open_jobs, anew=True, as_json=as_json)


def _reads_database(config: PipelineConfig) -> bool:
    return any(source.postgres is not None for source in config.sources)


def _copy_again(config: PipelineConfig, table: str | None, *, yes: bool, as_json: bool) -> None:
    from freshet.pipeline.postgres.slots import START_OVER
    from freshet.pipeline.sync.database_resync import planned_resync

    planned = planned_resync(config, table)
    tables, slots = [*planned.tables, *planned.gone], planned.new_slots
    for each in planned.sources:
        if each.refusal is not None:
            complain(each.refusal.removesuffix(START_OVER).rstrip())
    if not yes:
        anew = f", drop slot {', '.join(slots)}" if slots else ""
        typer.confirm(f"Take all rows of {', '.join(tables)} away{anew}, and copy them again?", abort=True)
    number = planned.run()
    if as_json:
        print_json({"tables": tables, "batch": number, "new_slots": slots})
        return
    say(
        f"{', '.join(tables)}: emptied by batch {number}"
        + (f", slot {', '.join(slots)} made anew" if slots else "")
        + ". The next run of the pipeline copies them"
    )


def _what_goes(config: SyncPipelineConfig, name: str) -> str:
    """What reading it again does not bring back."""
    catalog, texts = target_catalog(config), ""
    with suppress(StorageError):  # it may be damaged, or gone
        table = catalog.table(name)
        for kind, names in (("tags", [tag.name for tag in table.tags.list()]), ("branches", table.branches.list())):
            texts += f", its {kind} {', '.join(names)}" if names else ""
    return texts


def _resume(config: SyncPipelineConfig, table: str, open_jobs: OpenJobs, *, anew: bool, as_json: bool) -> None:
    part = spark_part(*_ENGINE_PART)
    with open_jobs(config, "resume") as jobs:
        done = part.resume_table(jobs, config, table, anew=anew, say=complain)
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
    return config.skipping(record_places(skip_record))
