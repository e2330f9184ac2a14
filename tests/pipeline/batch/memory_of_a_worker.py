"""What a worker's process needs for one large batch: decodes, gathers and writes it without Spark, prints its peak.

    python -m tests.pipeline.batch.memory_of_a_worker FOLDER ROUNDS KIND

Each round is an Arrow batch as Spark hands it over: one record with a value of 17 MB among 200 small ones. KIND is
`alive` or `dead` (the large records are no JSON). Offsets run in two interleaved sequences where KIND ends with
`-mixed`, so that the rows of the task are no sorted runs. Prints megabytes: at the start, at the peak; and the rows.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator

import pyarrow as pa

from freshet.pipeline.batch.batch_pin import BatchPin
from freshet.pipeline.batch.bucket_task import BucketTask
from freshet.pipeline.batch.dead_letters import open_dead_letters
from freshet.pipeline.batch.task_result import sum_results
from freshet.storage.catalog import Catalog
from freshet.storage.commit.committer import Committer
from tests.pipeline.records import decoder_of, pipeline_of, raw_batch

LARGE = 17 * 1024 * 1024
SMALL = 200
COLUMNS = {"id": "BIGINT", "doc": "STRING"}


def main() -> None:
    """Runs one task."""
    folder, rounds, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    catalog = Catalog(folder)
    table = catalog.create_table(
        "db.t", schema=COLUMNS, primary_keys=["id"], options={"bucket": "1", "write-buffer-size": "64 mb"}
    )
    dead = open_dead_letters(catalog, "db.dead")
    decoder = decoder_of(pipeline_of(COLUMNS, format="json"))
    task = BucketTask(
        table.location, (), pipeline="p", columns=tuple(COLUMNS), dead_letter_location=dead.location,
        pin=BatchPin(0, 0, None, None),
    )  # fmt: skip
    start = _peak()
    told = [batch.column(0)[0].as_py() for batch in task(decoder(records(rounds, kind)))]
    peak = _peak()
    result = sum_results(told)
    Committer(table.store, "p").commit(0, result.messages)
    print(start, peak, result.applied, result.dead_count)


def records(rounds: int, kind: str) -> Iterator[pa.RecordBatch]:
    """The batches, made as they are asked for."""
    for number in range(rounds):
        place = (number % 2) * rounds + number // 2 if kind.endswith("-mixed") else number
        first = place * (SMALL + 1)
        values = [b'{"id": %d, "doc": "%d"}' % (first + row, row) for row in range(SMALL)]
        large = bytes(str(number % 10), "ascii") * LARGE
        values.append(large if kind.startswith("dead") else b'{"id": %d, "doc": "%s"}' % (first + SMALL, large))
        yield raw_batch(values, first=first)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main()
