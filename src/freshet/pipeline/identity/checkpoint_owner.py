"""Which pipeline and table a checkpoint belongs to: one small file in the checkpoint folder.

    freshet.json = {"pipeline": name, "table": location, "created_ms": creation time of the table}

Spark's checkpoint knows where the source was read to, not where the rows went. Used with another table, or after the
table was dropped and created again, it would leave out everything read before: that is refused before anything starts.
(The other way round, a new checkpoint with the old table, is known by the query id in the table's snapshots.)

Folders on object stores are not looked at.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.identity.writable import write_problem
from freshet.storage.table import Table

OWNER_FILE: Final = "freshet.json"
SPARK_METADATA: Final = "metadata"


def claim_checkpoint(checkpoint: str, *, pipeline: str, table: Table) -> None:
    """Writes the owner into a new checkpoint; raises `ConfigurationError` when it has another owner."""
    problem = checkpoint_problem(checkpoint, pipeline=pipeline, table=table)
    if problem is not None:
        raise ConfigurationError(problem)
    folder = local_folder(checkpoint)
    if folder is None or (folder / OWNER_FILE).exists():
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Under another name first: a crash must not leave an owner file without an owner in it.
        unfinished = folder / f".{OWNER_FILE}.{os.getpid()}.tmp"
        unfinished.write_text(json.dumps(_owner(pipeline, table)), encoding="utf-8")
        unfinished.replace(folder / OWNER_FILE)
    except OSError as error:
        raise ConfigurationError(f"checkpoint {checkpoint} cannot be written: {error}") from error


def checkpoint_problem(checkpoint: str, *, pipeline: str, table: Table | None) -> str | None:
    """Why a pipeline cannot use a checkpoint, or None; writes nothing. `table` is None where there is none yet."""
    folder = local_folder(checkpoint)
    if folder is None:
        return None
    try:
        text = (folder / OWNER_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return _problem_of_new(checkpoint, folder)
    except (OSError, UnicodeDecodeError) as error:
        return f"checkpoint {checkpoint} cannot be read: {error}"
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return (
            f"checkpoint {checkpoint}: {folder / OWNER_FILE} does not say which pipeline it belongs to (it is empty or "
            f"damaged). {_remedy_of_damaged(folder, pipeline, table)}; else choose another checkpoint"
        )
    if table is None:
        wanted = found if found.get("pipeline") == pipeline else {"pipeline": pipeline}
        if wanted is not found:
            return _difference(checkpoint, found, wanted)
        return (
            f"checkpoint {checkpoint} belongs to the table at {found.get('table')}, which is not there (it may have "
            "been dropped): what the checkpoint says is read would be missing in a new one. Delete the checkpoint to "
            "read everything again"
        )
    owner = _owner(pipeline, table)
    return _not_writable(checkpoint, folder) if found == owner else _difference(checkpoint, found, owner)


def query_id_of(checkpoint: str) -> str | None:
    """The id of the streaming query that a checkpoint belongs to; None for a new one and on object stores."""
    folder = local_folder(checkpoint)
    if folder is None:
        return None
    try:
        document = json.loads((folder / SPARK_METADATA).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document.get("id") if isinstance(document, dict) else None


def _owner(pipeline: str, table: Table) -> dict[str, object]:
    return {"pipeline": pipeline, "table": table.location, "created_ms": table.engine.created_ms()}


def _remedy_of_damaged(folder: Path, pipeline: str, table: Table | None) -> str:
    """What to do about an owner file without an owner. Without that file, the checkpoint of a query that has begun
    counts as another owner's."""
    if not (folder / SPARK_METADATA).exists():
        return f"If it is the checkpoint of {pipeline!r}, remove that file"
    if table is None:
        return f"If it was the checkpoint of {pipeline!r}, delete the checkpoint to read everything again"
    return (
        f"If it is the checkpoint of {pipeline!r}, and the table was not created again since, write into that file: "
        f"{json.dumps(_owner(pipeline, table))}"
    )


def _problem_of_new(checkpoint: str, folder: Path) -> str | None:
    """What is wrong with a folder that no pipeline has claimed yet."""
    if (folder / SPARK_METADATA).exists():
        return f"checkpoint {checkpoint} belongs to a streaming query that is not Freshet's; choose another folder"
    return _not_writable(checkpoint, folder)


def _not_writable(checkpoint: str, folder: Path) -> str | None:
    reason = write_problem(folder)
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


def local_folder(checkpoint: str) -> Path | None:
    """The folder of a checkpoint on this machine's file system; None for other stores."""
    parsed = urlparse(checkpoint)
    if parsed.scheme == "file":
        return Path(unquote(parsed.path))
    return Path(checkpoint) if not parsed.scheme else None
