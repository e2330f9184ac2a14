"""How often the batch that a checkpoint goes on with ended because memory ran out: a small file in the checkpoint.

    freshet-memory.json = {"batch": number of the batch, "times": how often}

The first times may be those of other programs on the machine. What ends so `TIMES_MAX` times, restarts of the process
included, needs somebody who gives it more.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Final

from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder

TIMES_MAX: Final = 3
_FILE: Final = "freshet-memory.json"


def count_memory_failure(checkpoint: CheckpointFolder, micro_batch_id: int) -> int:
    """Notes that the batch has ended so once more; how often it has by now, as far as the checkpoint can be read."""
    times = 1
    with suppress(OSError, ValueError, LookupError, TypeError):
        known = json.loads(checkpoint.read(_FILE) or "{}")
        times += int(known["times"]) if known["batch"] == micro_batch_id else 0
    with suppress(OSError):
        checkpoint.replace(_FILE, json.dumps({"batch": micro_batch_id, "times": times}))
    return times
