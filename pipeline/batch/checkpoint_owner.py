"""Which pipeline and table a checkpoint belongs to: one small file in the checkpoint folder.

    freshet.json = {"pipeline": name, "table": location, "created_ms": creation time of the table}

Spark's checkpoint knows where the source was read to, not where the rows went. Used with another table, or after the
table was dropped and made again, it would leave out everything read before: that is refused before anything starts.
(The other way round, a new checkpoint with the old table, is told by the query id in the table's snapshots.)

Folders on object stores are not looked at.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from freshet.pipeline.exceptions import ConfigurationError
from freshet.storage.table import Table

OWNER_FILE: Final = "freshet.json"


def claim_checkpoint(checkpoint: str, *, pipeline: str, table: Table) -> None:
    """Writes the owner into a new checkpoint; raises `ConfigurationError` when it belongs to somebody else."""
    folder = _local_folder(checkpoint)
    if folder is None:
        return
    first = table.store.schemas.schema(table.store.schemas.list_ids()[0])
    owner = {"pipeline": pipeline, "table": table.location, "created_ms": first.time_ms}
    path = folder / OWNER_FILE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(owner), encoding="utf-8")
        return
    found = json.loads(path.read_text(encoding="utf-8"))
    if found != owner:
        raise ConfigurationError(_difference(checkpoint, found, owner))


def _difference(checkpoint: str, found: dict[str, object], owner: dict[str, object]) -> str:
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


def _local_folder(checkpoint: str) -> Path | None:
    parsed = urlparse(checkpoint)
    if parsed.scheme == "file":
        return Path(unquote(parsed.path))
    return Path(checkpoint) if not parsed.scheme else None
