"""Commands for the replication slots of pipelines that read a database: slots, drop-slot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from freshet.pipeline.commands.arguments import AsJson
from freshet.pipeline.commands.output import print_json, say
from freshet.pipeline.config.model import PipelineConfig, PostgresConfig
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.exceptions import InvalidRequestError

_File = Annotated[Path, typer.Argument(help="The pipeline file, with a source postgres.", show_default=False)]


def slots(file: _File, as_json: AsJson = False) -> None:
    """Show the replication slot of a pipeline that reads a database, and the WAL that the server keeps for it."""
    from freshet.pipeline.local.postgres_offset import going_on_problem
    from freshet.pipeline.postgres.lsn import lsn_text
    from freshet.pipeline.postgres.server import ServerPlace
    from freshet.pipeline.postgres.slots import slot_named
    from freshet.pipeline.sync.database_targets import targets_of

    found = []
    config, sources = _sources(file)
    for index, source in sources:
        with ServerPlace.of(source).session() as session:
            slot = slot_named(session, source.slot)
        state = "active" if slot is not None and slot.active_pid is not None else "inactive"
        state = "missing" if slot is None else "lost" if slot.is_lost else state
        found.append(
            {
                "slot": source.slot,
                "server": ServerPlace.of(source).shown,
                "state": state,
                "confirmed": None if slot is None or slot.confirmed is None else lsn_text(slot.confirmed),
                "held_bytes": None if slot is None else slot.held_bytes,
                "behind_bytes": None if slot is None else slot.behind_bytes,
                "problem": going_on_problem(config, index, source, targets_of(config)),
            }
        )
    if as_json:
        print_json({"slots": found})
        return
    for each in found:
        problem = "" if each["problem"] is None else f"\n  the pipeline cannot go on: {each['problem']}"
        if each["state"] == "missing":
            say(
                f"{each['slot']} at {each['server']}: is not there"
                f"{problem or '; the pipeline creates it when it starts'}"
            )
            continue
        say(
            f"{each['slot']} at {each['server']}: {each['state']}, confirmed up to {each['confirmed']}, holds back "
            f"{_mib(each['held_bytes'])} of WAL, {_mib(each['behind_bytes'])} are not confirmed{problem}"
        )


def drop_slot(
    file: _File, yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether the slot may be dropped.")] = False
) -> None:
    """Drop the replication slot of a pipeline that is not needed any more, so that the server keeps no WAL for it.

    The pipeline cannot go on without: freshet resync takes a new one, and copies its tables again.
    """
    from freshet.pipeline.postgres.server import ServerPlace
    from freshet.pipeline.postgres.slots import drop_slot as dropped

    for _, source in _sources(file)[1]:
        place = ServerPlace.of(source)
        if not yes:
            typer.confirm(f"Drop slot {source.slot} at {place.shown}? Its pipeline cannot go on", abort=True)
        is_gone = dropped(place, source.slot)
        say(f"{source.slot} at {place.shown}: {'dropped' if is_gone else 'is not there'}")


def _sources(file: Path) -> tuple[PipelineConfig, list[tuple[int, PostgresConfig]]]:
    (config,) = load_pipelines([file])
    found = [(index, each.postgres) for index, each in enumerate(config.sources) if each.postgres is not None]
    if not found:
        raise InvalidRequestError(f"{file} reads no database: it has no source postgres")
    return config, found


def _mib(size: object) -> str:
    return f"{size / (1 << 20):.1f} MiB" if isinstance(size, int) else "?"
