"""What a worker's process needs for one large batch: decodes, gathers and writes it without Spark, prints its peak.

    python -m tests.pipeline.query.task.memory_of_a_worker FOLDER ROUNDS KIND

Each round is an Arrow batch as Spark hands it over: one record with a value of 17 MB among 200 small ones. KIND is
`alive` or `dead` (the large records are no JSON). Offsets run in two interleaved sequences where KIND ends with
`-mixed`, so that the rows of the task are no sorted runs. With `many` a round is 16384 records of some 500 bytes with
keys of their own, and the write buffer has its default size. Prints megabytes: at the start, at the peak; and the rows.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode.raw_records import OFFSET, VALUE
from freshet.pipeline.query.driver.dead_letters import open_dead_letters
from freshet.pipeline.query.task.batch_work import TableWork
from freshet.pipeline.query.wire.batch_pin import BatchPin
from freshet.storage.catalog import Catalog
from freshet.storage.commit.committer import Committer
from tests.kit.task_runs import summed, task_results
from tests.pipeline.records import RAW_SCHEMA, decoder_of, pipeline_of, raw_batch

LARGE = 17 * 1024 * 1024
SMALL = 200
COLUMNS = {"id": "BIGINT", "doc": "STRING"}
MANY_A_ROUND = 16384
MANY_COLUMNS = {"id": "BIGINT", **{f"c{place}": "STRING" for place in range(8)}, "price": "DECIMAL(12, 2)"}


def main() -> None:
    """Runs one task."""
    folder, rounds, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    catalog = Catalog(folder)
    columns = MANY_COLUMNS if kind == "many" else COLUMNS
    options = {"bucket": "1"} if kind == "many" else {"bucket": "1", "write-buffer-size": "64 mb"}
    table = catalog.create_table("db.t", schema=columns, primary_keys=["id"], options=options)
    dead = open_dead_letters(catalog, "db.dead")
    decoder = decoder_of(pipeline_of(columns, format="json"))
    work = TableWork(table.handle, "p", tuple(columns), bucket_count=1, dead_letters=dead.handle)
    arriving = many_records(rounds) if kind == "many" else records(rounds, kind)
    start = _peak()
    results = task_results(work, BatchPin(0, 0, None, None), decoder(arriving))
    peak = _peak()
    result = summed(results)
    Committer(table.store, "p").commit(0, result.messages[0])
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


def many_records(rounds: int) -> Iterator[pa.RecordBatch]:
    """Batches of small records whose keys come in no order, made without a Python object for each."""
    for number in range(rounds):
        first = number * MANY_A_ROUND
        offsets = np.arange(first, first + MANY_A_ROUND, dtype=np.int64)
        keys: Any = pa.array(offsets * 7_919 % (rounds * MANY_A_ROUND)).cast(pa.string())
        parts: list[Any] = ['{"id": ', keys, ', "price": "', pa.array(offsets % 9_000).cast(pa.string()), '.25"']
        for name in list(MANY_COLUMNS)[1:9]:
            parts += [f', "{name}": "a text of usual length ', keys, '-0123456789"']
        values: Any = pc.binary_join_element_wise(
            *(part if isinstance(part, pa.Array) else pa.scalar(part) for part in [*parts, "}"]), ""
        )
        one = raw_batch([b""])
        columns = [
            values.cast(pa.binary())
            if name == VALUE
            else pa.array(offsets)
            if name == OFFSET
            else pa.repeat(one.column(name)[0], MANY_A_ROUND)
            for name in RAW_SCHEMA.names
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=RAW_SCHEMA)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main()
