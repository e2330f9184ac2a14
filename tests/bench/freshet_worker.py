"""Runs the workloads on Freshet's storage API, one command a line; the same commands as `PaimonBench.java`.

`ingest` counts routing, sorting, merging, Parquet, compaction and commits; the Arrow rows are made beforehand.
`read` streams batches (`to_batches`), as a program that uses the rows would.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from storage.catalog import Catalog
from storage.table import Table
from tests.bench.workloads import WORKLOADS, Workload, paimon_type


class Worker:
    """State between commands: the workload and its rows."""

    def __init__(self) -> None:
        self.workload: Workload | None = None
        self.batches: list[pa.Table] = []

    def make(self, name: str, factor: str) -> dict[str, object]:
        """Makes the rows of a workload, scaled."""
        self.workload = WORKLOADS[name].scaled(float(factor))
        self.batches = [self.workload.table(number) for number in range(self.workload.commits)]
        return {"rows": self.workload.rows, "arrow_bytes": sum(batch.nbytes for batch in self.batches)}

    def ingest(self, folder: str, threads: str, *pairs: str) -> dict[str, object]:
        """Writes every commit's rows into a new table in `folder`."""
        assert self.workload is not None
        options = {"bucket": str(self.workload.buckets), **dict(pair.split("=", 1) for pair in pairs)}
        if self.workload.write_only:
            options["write-only"] = "true"
        table = Catalog(folder).create_table(
            "bench.t",
            schema={name: paimon_type(kind) for name, kind in self.workload.columns.items()},
            primary_keys=[self.workload.key],
            options=options,
        )
        pa.set_cpu_count(int(threads))
        started = time.perf_counter()
        with table.writer("bench") as writer:
            for number, batch in enumerate(self.batches, 1):
                writer.write(batch)
                writer.commit(number)
        return {"seconds": time.perf_counter() - started}

    def compact(self, folder: str) -> dict[str, object]:
        """Full compaction."""
        started = time.perf_counter()
        _open(folder).compact(full=True)
        return {"seconds": time.perf_counter() - started}

    def read(self, folder: str, threads: str, *columns: str) -> dict[str, object]:
        """Reads merged rows; the checksum is the sum of the keys, or of their lengths."""
        pa.set_cpu_count(int(threads))
        started = time.perf_counter()
        count = checksum = 0
        for batch in _open(folder).scan(columns=list(columns) or None).to_batches():
            count += batch.num_rows
            checksum += _key_sum(batch.column(0))
        return {"seconds": time.perf_counter() - started, "rows": count, "checksum": checksum}


def _open(folder: str) -> Table:
    return Catalog(folder).table("bench.t")


def _key_sum(keys: pa.Array) -> int:
    values = keys if pa.types.is_integer(keys.type) else pc.binary_length(keys)
    return int(pc.sum(values).as_py() or 0)


def serve(worker: object, lines: Sequence[str] | None = None) -> None:
    """Answers commands from standard input until it ends; one JSON line each."""
    for line in lines or sys.stdin:
        words = line.split()
        try:
            answer = getattr(worker, words[0])(*words[1:])
        except Exception as failure:  # the driver shows it and stops; a worker has nobody else to tell
            answer = {"error": f"{type(failure).__name__}: {failure}"}
        answer["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(Worker())
