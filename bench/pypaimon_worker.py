"""Runs the workloads on pypaimon, one command a line; it lives in an environment of its own.

pypaimon neither compacts nor streams commits with a user's identifiers: each commit is a batch write, all runs stay.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon import CatalogFactory, Schema

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench.digest import digest
from bench.workloads import WORKLOADS, Workload


class Worker:
    """State between commands: the workload and its rows."""

    def __init__(self) -> None:
        self.workload: Workload | None = None
        self.batches: list[pa.Table] = []
        self.options: dict[str, str] = {}

    def store(self, *pairs: str) -> dict[str, object]:
        """The options of catalogs whose place is a URI."""
        self.options = dict(pair.split("=", 1) for pair in pairs)
        return {"options": len(self.options)}

    def make(self, name: str, rows: str, key_space: str) -> dict[str, object]:
        """Makes the rows of a workload."""
        self.workload = WORKLOADS[name].sized(int(rows), int(key_space))
        self.batches = [self.workload.table(number) for number in range(self.workload.commits)]
        return {"rows": self.workload.rows}

    def ingest(self, folder: str, threads: str, *pairs: str) -> dict[str, object]:
        """Writes every commit's rows into a new table in `folder`."""
        assert self.workload is not None
        catalog = self._catalog(folder)
        catalog.create_database("bench", True)
        schema = self.batches[0].schema
        key = schema.field(0)
        schema = schema.set(0, key.with_nullable(False))
        options = {"bucket": str(self.workload.buckets), **dict(pair.split("=", 1) for pair in pairs)}
        catalog.create_table(
            "bench.t", Schema.from_pyarrow_schema(schema, primary_keys=[key.name], options=options), False
        )
        table = catalog.get_table("bench.t")
        pa.set_cpu_count(int(threads))
        started = time.perf_counter()
        for batch in self.batches:
            builder = table.new_batch_write_builder()
            writer, committer = builder.new_write(), builder.new_commit()
            writer.write_arrow(batch.cast(schema))
            committer.commit(writer.prepare_commit())
            writer.close()
            committer.close()
        return {"seconds": time.perf_counter() - started}

    def read(self, folder: str, threads: str, *columns: str) -> dict[str, object]:
        """Reads merged rows."""
        pa.set_cpu_count(int(threads))
        started = time.perf_counter()
        rows = self._rows(folder, columns)
        seconds = time.perf_counter() - started
        keys = rows.column(0)
        values = keys if pa.types.is_integer(keys.type) else pc.binary_length(keys)
        return {"seconds": seconds, "rows": rows.num_rows, "checksum": pc.sum(values).as_py()}

    def digest(self, folder: str) -> dict[str, object]:
        """One number for all cells."""
        return digest(self._rows(folder, ()).to_batches())

    def _rows(self, folder: str, columns: tuple[str, ...]) -> pa.Table:
        builder = self._catalog(folder).get_table("bench.t").new_read_builder()
        if columns:
            builder = builder.with_projection(list(columns))
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())

    def _catalog(self, place: str) -> Any:
        return CatalogFactory.create({"warehouse": place, **(self.options if "://" in place else {})})


def main() -> None:
    """Answers commands from standard input until it ends."""
    worker = Worker()
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        words = line.split()
        try:
            answer = getattr(worker, words[0])(*words[1:])
        except Exception as failure:  # the driver shows it and stops
            answer = {"error": f"{type(failure).__name__}: {failure}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
