"""Which pipeline and table a checkpoint belongs to: one small file in the checkpoint folder.

    freshet.json = {"pipeline": name, "table": location, "created_ms": creation time of the table}

Spark's checkpoint knows where the source was read to, not where the rows went. Used with another table, or after the
table was dropped and created again, it would leave out everything read before: that is refused before anything starts.
(The other way round, a new checkpoint with the old table, is known by the query id in the table's snapshots.)

A folder that only Spark can reach is looked at once it runs (`checkpoint_folder`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.identity.checkpoint_folder import (
    CheckpointFolder,
    CheckpointPlace,
    LocalCheckpoint,
    as_folder,
    shown_place,
)
from freshet.storage.exceptions import StorageError
from freshet.storage.table import Table

OWNER_FILE: Final = "freshet.json"
SPARK_METADATA: Final = "metadata"
_SCHEMA: Final = ("schema", "schema-0")
_BESIDE: Final = "choose a folder beside it"


def claim_checkpoint(checkpoint: CheckpointPlace, *, pipeline: str, table: Table) -> None:
    """Writes the owner into a new checkpoint; raises `ConfigurationError` when it has another owner."""
    problem = checkpoint_problem(checkpoint, pipeline=pipeline, table=table)
    if problem is not None:
        raise ConfigurationError(problem)
    folder = as_folder(checkpoint)
    try:
        if folder is not None and folder.read(OWNER_FILE) is None:
            folder.replace(OWNER_FILE, json.dumps(_owner(pipeline, table)))
    except OSError as error:
        raise ConfigurationError(f"checkpoint {shown_place(checkpoint)} cannot be written: {error}") from error


def checkpoint_problem(checkpoint: CheckpointPlace, *, pipeline: str, table: Table | None) -> str | None:
    """Why a pipeline cannot use a checkpoint, or None; writes nothing. `table` is None where there is none yet."""
    folder = as_folder(checkpoint)
    if folder is None:
        return None
    shown = shown_place(checkpoint)
    try:
        text = folder.read(OWNER_FILE)
        if text is None:
            return _problem_of_new(shown, folder)
        is_begun = folder.read(SPARK_METADATA) is not None
    except (OSError, UnicodeDecodeError) as error:
        return f"checkpoint {shown} cannot be read: {error}"
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return (
            f"checkpoint {shown}: {folder.place(OWNER_FILE)} does not say which pipeline it belongs to (it is empty or "
            f"damaged). {_remedy_of_damaged(pipeline, table, is_begun=is_begun)}; else choose another checkpoint"
        )
    if table is None:
        wanted = found if found.get("pipeline") == pipeline else {"pipeline": pipeline}
        if wanted is not found:
            return _difference(shown, found, wanted)
        return (
            f"checkpoint {shown} belongs to the table at {found.get('table')}, which is not there (it may have "
            "been dropped or renamed): what the checkpoint says is read would be missing in a new one. Restore the "
            "table, or let the file name the table as it is called now; or delete the checkpoint to read everything "
            "again (under another `name` where other tables know this one)"
        )
    owner = _owner(pipeline, table)
    if found == owner:
        return _not_writable(shown, folder)
    problem = _difference(shown, found, owner)
    if {**found, "table": owner["table"]} != owner:
        return problem
    return f"{problem}. Or, if the table was renamed, write into {folder.place(OWNER_FILE)}: {json.dumps(owner)}"


def query_id_of(checkpoint: CheckpointPlace) -> str | None:
    """The id of the streaming query that a checkpoint belongs to; None for a new one, and where it is not known."""
    folder = as_folder(checkpoint)
    if folder is None:
        return None
    try:
        document = json.loads(folder.read(SPARK_METADATA) or "null")
    except (OSError, ValueError):
        return None
    return document.get("id") if isinstance(document, dict) else None


def _owner(pipeline: str, table: Table) -> dict[str, object]:
    return {"pipeline": pipeline, "table": table.location, "created_ms": table.engine.created_ms()}


def _remedy_of_damaged(pipeline: str, table: Table | None, *, is_begun: bool) -> str:
    """What to do about an owner file without an owner. Without that file, the checkpoint of a query that has begun
    counts as another owner's."""
    if not is_begun:
        return f"If it is the checkpoint of {pipeline!r}, remove that file"
    if table is None:
        return f"If it was the checkpoint of {pipeline!r}, delete the checkpoint to read everything again"
    return (
        f"If it is the checkpoint of {pipeline!r}, and the table was not created again since, write into that file: "
        f"{json.dumps(_owner(pipeline, table))}"
    )


def _problem_of_new(checkpoint: str, folder: CheckpointFolder) -> str | None:
    """What is wrong with a folder that no pipeline has claimed yet."""
    if folder.read(SPARK_METADATA) is not None:
        return f"checkpoint {checkpoint} belongs to a streaming query that is not Freshet's; choose another folder"
    return _neighbour_problem(checkpoint, folder) or _not_writable(checkpoint, folder)


def _neighbour_problem(checkpoint: str, folder: CheckpointFolder) -> str | None:
    """What a new folder lies in, or has in it: who removes the one, or looks for files that nobody needs, takes the
    other with it."""
    above: CheckpointFolder | None = folder
    while above is not None:
        kind = _kind_of_folder(above)
        if kind is not None:
            return f"checkpoint {checkpoint} would lie in {kind}, {above.place().rstrip('/')}: {_BESIDE}"
        above = above.above()
    for inner in folder.folders() if isinstance(folder, LocalCheckpoint) else ():
        kind = _kind_of_folder(inner)
        if kind is not None:
            return f"checkpoint {checkpoint} would have {kind} in it, {inner.place().rstrip('/')}: {_BESIDE}"
    return None


def _kind_of_folder(folder: CheckpointFolder) -> str | None:
    """What a folder is that no checkpoint may lie in; None also where it may not be looked at."""
    with suppress(OSError, StorageError, UnicodeDecodeError):
        if folder.read(OWNER_FILE) is not None or query_id_of(folder) is not None:
            return "another checkpoint"
    with suppress(OSError, StorageError, UnicodeDecodeError):
        if folder.read(*_SCHEMA) is not None:
            return "a table"
    return None


def _not_writable(checkpoint: str, folder: CheckpointFolder) -> str | None:
    reason = folder.write_problem()
    return None if reason is None else f"checkpoint {checkpoint} cannot be written: {reason}; choose another folder"


def _difference(checkpoint: str, found: Mapping[str, object], owner: Mapping[str, object]) -> str:
    if found.get("pipeline") != owner["pipeline"]:
        what = f"belongs to pipeline {found.get('pipeline')!r}, not {owner['pipeline']!r}"
    elif found.get("table") != owner["table"]:
        what = f"belongs to the table at {found.get('table')}, not {owner['table']}"
    else:
        what = f"is older than the table at {owner['table']}, which was dropped and created again"
    return (
        f"checkpoint {checkpoint} {what}; give each pipeline a checkpoint of its own, or, to read everything again, "
        "delete this one and give the pipeline another name"
    )
