"""One process of W4: `python -m bench.lookup_worker WAREHOUSE TABLE ROWS BATCHES BATCH_ROWS SEED [OPTION=VALUE ...]`.

Writes batches of random keys that are in the table, each committed, and prints as JSON the seconds of each, on
the clock and of the processor, since the first began, the resident memory of the process behind it, and how its files
were asked.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from freshet.storage.catalog import Catalog

SCHEMA = {"id": "BIGINT NOT NULL", "n": "BIGINT", "amount": "DOUBLE", "text": "STRING"}


def rows_of(keys: np.ndarray, seed: int) -> pa.Table:
    """Rows of about 150 bytes, which compress to a fifth."""
    numbers = keys.astype(np.uint64) * np.uint64(2654435761) + np.uint64(seed)
    texts = np.char.mod("%0100d", (numbers % np.uint64(10**12)).astype(np.int64)).astype(object)
    return pa.table({"id": keys, "n": numbers.view(np.int64), "amount": numbers / 7.0, "text": pa.array(texts)})


def main() -> None:
    """Runs the batches."""
    warehouse, name = sys.argv[1:3]
    row_count, batches, batch_rows, seed = map(int, sys.argv[3:7])
    table = Catalog(warehouse).table(name).with_options(dict(option.split("=", 1) for option in sys.argv[7:]))
    chance = np.random.default_rng(seed)
    answer: list[Mapping[str, float]] = []
    with table.writer("bench") as writer:
        before: dict[str, int] = {}
        begun = time.perf_counter()
        for number in range(batches):
            keys = chance.choice(row_count, batch_rows, replace=False)
            rows = rows_of(keys.astype(np.int64), seed + number)
            started, started_cpu = time.perf_counter(), time.process_time()
            writer.write(rows)
            writer.commit()
            ended = time.perf_counter()
            times = {
                "seconds": ended - started,
                "cpu_seconds": time.process_time() - started_cpu,
                "ended": ended - begun,
                "resident_bytes": _resident_bytes(),
            }
            counts = writer.lookup_metrics.counts()
            answer.append(times | {key: n - before.get(key, 0) for key, n in counts.items()})
            before = counts
    print(json.dumps(answer))


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    main()
