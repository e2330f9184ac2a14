"""Peak memory of a process that writes, reads, compacts and reads again a table larger than its memory.

    python -m bench.memory_worker FOLDER RUNS GIGABYTES

Rows come in small Arrow tables, `write-buffer-size` is 64 MB; each commit spans the whole key range, so that RUNS
level-0 runs overlap. Prints one JSON line: peak RSS after each step, in megabytes.
"""

from __future__ import annotations

import json
import resource
import sys
import time

from bench.cells import paimon_type
from bench.workloads import W1, Workload
from freshet.storage.catalog import Catalog
from freshet.storage.table import Table

_CHUNK_ROWS = 50_000
_ROW_BYTES = 154


def main() -> None:
    """Writes, reads, compacts, reads."""
    folder, runs, gigabytes = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    chunks_per_run = max(1, round(gigabytes * 2**30 / _ROW_BYTES / _CHUNK_ROWS / runs))
    chunks = Workload("memory", _CHUNK_ROWS * chunks_per_run * runs, chunks_per_run * runs, 1, 2**62, W1.columns)
    table = Catalog(folder).create_table(
        "bench.memory",
        schema={name: paimon_type(kind) for name, kind in chunks.columns.items()},
        primary_keys=[chunks.key],
        options={"bucket": "1", "write-buffer-size": "64 mb", "write-only": "true"},
    )
    answer: dict[str, float] = {"rows": chunks.rows}
    started = time.perf_counter()

    def note(step: str) -> None:
        answer[f"{step} MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        answer[f"{step} s"] = round(time.perf_counter() - started, 1)

    note("start")
    with table.writer("memory") as writer:
        for run in range(runs):
            for chunk in range(chunks_per_run):
                writer.write(chunks.table(run * chunks_per_run + chunk))
            writer.commit(run)
    note("written")
    assert _count(table) == chunks.rows
    note("merge read")
    table.compact(full=True)
    note("compacted")
    assert _count(table) == chunks.rows
    note("compacted read")
    print(json.dumps(answer))


def _count(table: Table) -> int:
    return sum(batch.num_rows for batch in table.scan().to_batches())


if __name__ == "__main__":
    main()
