"""Under which isolation the batches of a checkpoint were planned: one small file in the checkpoint folder.

    freshet-isolation.json = {"isolation": [of each source], "from": number of a batch, "before": [of each source]}

A batch that was planned and is not done is run again, and its offsets may lie in what was a transaction: under another
isolation it would not be the same batch. So it is read as it was planned, and those that follow as the pipeline says
now. Checkpoints of before this file read what their pipeline said, and uncommitted records where it said nothing.

A folder that only Spark can reach is looked at once it runs (`checkpoint_folder`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from freshet._frozen import Frozen
from freshet.logstore.kafka.java_options import READ_UNCOMMITTED
from freshet.pipeline.config.model import SourceConfig
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.identity.checkpoint_folder import CheckpointPlace, as_folder, shown_place
from freshet.pipeline.identity.checkpoint_offsets import unfinished_batch

ISOLATION_FILE: Final = "freshet-isolation.json"


class PlannedBefore(Frozen):
    """A batch that an earlier run has planned, and the isolation of each source then, by its index."""

    micro_batch_id: int
    isolations: Mapping[int, str]


def claim_isolation(checkpoint: CheckpointPlace, sources: Sequence[SourceConfig]) -> PlannedBefore | None:
    """Notes the isolation of the batches to come; gives the batch to be read under another one, if there is one.

    The folder is there: its pipeline has claimed it. Raises `ConfigurationError` where the file is damaged.
    """
    folder = as_folder(checkpoint)
    if folder is None or not any(source.is_kafka for source in sources):
        return None
    number = unfinished_batch(folder)
    now = [source.isolation for source in sources]
    try:
        noted = json.loads(folder.read(ISOLATION_FILE) or "null")
        before = now if number is None else _isolations_of(number, noted, sources)
        if noted is None or noted["isolation"] != now:
            note = {"isolation": now, "from": 0 if number is None else number + 1, "before": before}
            folder.replace(ISOLATION_FILE, json.dumps(note))
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise ConfigurationError(
            f"checkpoint {shown_place(checkpoint)}: {folder.place(ISOLATION_FILE)} cannot be read or written: {error}. "
            "Where kafka.isolation.level is what it was at the last run, remove that file"
        ) from error
    if number is None or before == now:
        return None
    return PlannedBefore(number, dict(enumerate(before)))


def _isolations_of(number: int, noted: Mapping[str, Any] | None, sources: Sequence[SourceConfig]) -> list[str]:
    """Under which isolation of each source a batch was planned."""
    if noted is None:
        return [source.given_isolation or READ_UNCOMMITTED for source in sources]
    found: list[str] = noted["isolation" if number >= noted["from"] else "before"]
    return found if len(found) == len(sources) else [source.isolation for source in sources]
