"""Pipelines of a golden archive that read files, into tables of each way to find a bucket; each was stopped in a batch.

| folder | |
|---|---|
| warehouse, checkpoints, pipelines, index | tables, checkpoints, the pipeline files (`${WORLD}`), indexes of places |
| input | files of records, one for each batch |
| manifest.json | what is expected, and the records that else arrive |

Records are {"k", "p", "v", "a"}; `a` is summed, so that one which is lost or applied twice shows. The first record of a
key says in which partition it stays. Batches name the paths of their files, so the place is a fixed one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.upgrade.shapes import LONG, Row, in_order
from tests.upgrade.streams import SUMS, Pipeline

_DYNAMIC: Final = {**SUMS, **LONG, "bucket": "-1", "dynamic-bucket.target-row-num": "5"}
_MOVING: Final = {**_DYNAMIC, "cross-partition-upsert.index-dir": "${WORLD}/index"}
_WAITING: Final = {**SUMS, **LONG, "bucket": "-2", "postpone.default-bucket-num": "2"}
PLACE: Final = "files"
BATCHES: Final = 3
LATER_BATCHES: Final = 2
BATCH_ROWS: Final = 15
FIRST_FILE_S: Final = 1_795_000_000


@dataclass(frozen=True)
class FilePipeline(Pipeline):
    """A pipeline whose source is the folder `input`; where rows move, `p` is no column of the key."""

    partition_by: tuple[str, ...] = ()

    @property
    def waits(self) -> bool:
        """True where rows are seen when they are compacted."""
        return self.options["bucket"] == "-2"

    @property
    def _table(self) -> dict[str, Any]:
        columns = {"k": "BIGINT", "p": "STRING NOT NULL", "v": "STRING", "a": "BIGINT"}
        return {**super()._table, "columns": columns, "partition_by": list(self.partition_by)}

    @property
    def _source(self) -> dict[str, Any]:
        return {"files": {"path": "file://${WORLD}/input", "maxFilesPerTrigger": 1}, "format": "json"}


FILE_PIPELINES: Final = (
    FilePipeline("dynamic", 2, "before-commit", _DYNAMIC),
    FilePipeline("dynamic_after", 2, "after-commit", _DYNAMIC),
    FilePipeline("moving", 2, "before-commit", _MOVING, partition_by=("p",)),
    FilePipeline("moving_after", 2, "after-commit", _MOVING, partition_by=("p",)),
    FilePipeline("waiting", 2, "before-commit", _WAITING),
)
STOPPED_BY_HAND: Final = FILE_PIPELINES[:1]
"""The one whose batches are taken back (`histories` of `upgrade.make`)."""


def batch_records(numbers: Iterable[int]) -> list[list[Row]]:
    """The records of these batches: keys of batches before, and new ones."""
    found = []
    for batch in numbers:
        keys = [(7 * number + batch) % (10 * (batch + 1)) for number in range(BATCH_ROWS)]
        found.append([{"k": key, "p": f"p{(key + batch) % 3}", "v": f"{batch}-{key}", "a": batch + 1} for key in keys])
    return found


def add_input(world: Path, numbers: Iterable[int], batches: Sequence[Sequence[Row]]) -> None:
    """Puts files of records into the folder that pipelines read, the oldest first."""
    (world / "input").mkdir(exist_ok=True)
    for number, records in zip(numbers, batches, strict=True):
        file = world / "input" / f"{number}.json"
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        os.utime(file, (FIRST_FILE_S + number, FIRST_FILE_S + number))


def held_after_batches(pipeline: FilePipeline, batches: Iterable[Sequence[Row]]) -> list[Row]:
    """What the table of the pipeline holds after these batches."""
    held: dict[int, Row] = {}
    for record in (record for batch in batches for record in batch):
        before = held.get(record["k"])
        if before is None:
            held[record["k"]] = dict(record)
        else:
            place = before["p"] if pipeline.partition_by else record["p"]
            held[record["k"]] = {**record, "p": place, "a": before["a"] + record["a"]}
    return in_order(held.values())
