"""Runs the workloads on Freshet's storage API, one command a line; the same commands as `PaimonBench.java`.

`ingest` counts routing, sorting, merging, Parquet, compaction and commits; the Arrow rows are made beforehand.
`read` streams batches (`to_batches`), as a program that uses the rows would.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset

from bench.cells import paimon_type
from bench.digest import digest
from bench.workloads import WORKLOADS, Workload
from freshet.storage.catalog import Catalog
from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.commit.committer import Committer
from freshet.storage.io.env import local_env
from freshet.storage.metadata.live_files import delta_entries
from freshet.storage.metadata.table_store import open_table_store
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.manifest import EntryKind
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.scan.planner import plan_scan
from freshet.storage.scan.split_reader import SplitReader
from freshet.storage.scan.table_scan import decoders
from freshet.storage.table import Table


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
        return {"rows": self.workload.rows, "arrow_bytes": sum(batch.nbytes for batch in self.batches)}

    def ingest(self, folder: str, threads: str, *pairs: str) -> dict[str, object]:
        """Writes every commit's rows into a new table in `folder`."""
        assert self.workload is not None
        options = {"bucket": str(self.workload.buckets), **dict(pair.split("=", 1) for pair in pairs)}
        if self.workload.write_only:
            options["write-only"] = "true"
        table = catalog_of(folder, self.options).create_table(
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
        self._open(folder).compact(full=True)
        return {"seconds": time.perf_counter() - started}

    def read(self, folder: str, threads: str, *columns: str) -> dict[str, object]:
        """Reads merged rows; the checksum is the sum of the keys, or of their lengths."""
        pa.set_cpu_count(int(threads))
        started = time.perf_counter()
        count = checksum = 0
        for batch in self._open(folder).scan(columns=list(columns) or None).to_batches():
            count += batch.num_rows
            checksum += _key_sum(batch.column(0))
        return {"seconds": time.perf_counter() - started, "rows": count, "checksum": checksum}

    def digest(self, folder: str) -> dict[str, object]:
        """One number for all cells."""
        return digest(self._open(folder).scan().to_batches())

    def dataset(self, folder: str, threads: str) -> dict[str, object]:
        """The same table columns of the same (compacted) files, read by pyarrow's dataset."""
        pa.set_cpu_count(int(threads))
        table = self._open(folder)
        paths = [table.store.data_file(entry.partition, entry.bucket, entry.file.file_name) for entry in table.files()]
        started = time.perf_counter()
        rows = dataset.dataset(paths, format="parquet").to_table(columns=list(table.schema.column_names))
        return {"seconds": time.perf_counter() - started, "rows": rows.num_rows, "checksum": _key_sum(rows.column(0))}

    def mark(self, folder: str) -> dict[str, object]:
        """Marks every tenth row of each file in deletion vectors."""
        started = time.perf_counter()
        store = self._open(folder).store
        messages = []
        for (partition, bucket), entries in store.live.at(store.snapshots.latest()).by_bucket.items():
            files = [entry.file for entry in entries.values()]
            rows = {file.file_name: Bitmap32(range(0, file.row_count, 10)) for file in files}
            index_file = store.vectors.write(rows, is_64_bit=False)
            total = next(iter(entries.values())).total_buckets
            messages.append(CommitMessage(partition, bucket, total, compact_new_index_files=(index_file,)))
        Committer(store, "marks").commit(1, messages)
        return {"seconds": time.perf_counter() - started}

    def read_whole(self, folder: str, threads: str) -> dict[str, object]:
        """All columns as one Arrow table, as `dataset` gives them."""
        pa.set_cpu_count(int(threads))
        started = time.perf_counter()
        rows = self._open(folder).scan().to_arrow()
        return {"seconds": time.perf_counter() - started, "rows": rows.num_rows, "checksum": _key_sum(rows.column(0))}

    def read_files(self, folder: str, threads: str, how: str) -> dict[str, object]:
        """All columns as one Arrow table: rows `merged`, or `raw` as the files hold them, by the same readers."""
        pa.set_cpu_count(int(threads))
        store = self._open(folder).store
        started, started_cpu = time.perf_counter(), time.process_time()
        splits = plan_scan(store, store.snapshots.latest())
        reader = SplitReader(store, store.schema.column_names)
        executor = decoders() if int(threads) > 1 else None
        shown = [replace(split, raw_convertible=how == "raw" or split.raw_convertible) for split in splits]
        batches = [batch for split in shown for batch in reader.read(split, executor)]
        rows = pa.Table.from_batches(batches, reader.schema)
        return {
            "seconds": time.perf_counter() - started,
            "cpu_seconds": time.process_time() - started_cpu,
            "rows": rows.num_rows,
            "bytes": sum(file.file_size_bytes for split in splits for file in split.files),
        }

    def lookup(self, folder: str, count: str, seed: str) -> dict[str, object]:
        """Asks for so many keys, of which a random one in two or so is there."""
        assert self.workload is not None
        keys = np.random.default_rng(int(seed)).integers(0, self.workload.key_space, int(count))
        table, name = self._open(folder), self.workload.key
        started = time.perf_counter()
        found = table.lookup(pa.table({name: keys})).rows
        return {"seconds": time.perf_counter() - started, "rows": found.num_rows}

    def count_changes(self, location: str) -> dict[str, object]:
        """How many changes of each kind the changelog of a table has, and the sum of their keys."""
        table = Table(open_table_store(local_env(), location))
        key = table.schema.primary_keys[0]
        kinds: Counter[str] = Counter()
        rows = checksum = 0
        for batch in table.changelog([key]).to_batches():
            rows += batch.num_rows
            checksum += _key_sum(batch.column(0))
            kinds.update(
                {each["values"]: each["counts"] for each in batch.column(ROW_KIND_COLUMN).value_counts().to_pylist()}
            )
        texts = [f"{kind} {count:,}" for kind, count in sorted(kinds.items())]
        return {"seconds": 0.0, "rows": rows, "checksum": f"{checksum}, {texts}", "kinds": ", ".join(texts)}

    def amplification(self, location: str) -> dict[str, object]:
        """Bytes of all data files ever written, over those of level 0; of any table in the format."""
        table = Table(open_table_store(local_env(), location))
        flushed = written = 0
        for snapshot in table.snapshots():
            entries = delta_entries(table.store.manifests, snapshot)
            kept = {entry.file.file_name for entry in entries if entry.kind is EntryKind.DELETE}
            new = [e.file for e in entries if e.kind is EntryKind.ADD and e.file.file_name not in kept]
            written += sum(file.file_size_bytes for file in new)
            if snapshot.commit_kind is CommitKind.APPEND:
                flushed += sum(file.file_size_bytes for file in new)
        return {"seconds": 0.0, "flushed_mb": flushed / 2**20, "factor": written / max(flushed, 1)}

    def _open(self, folder: str) -> Table:
        return catalog_of(folder, self.options).table("bench.t")


def catalog_of(place: str, options: Mapping[str, str]) -> Catalog:
    """The catalog of a folder, which takes none of the options, or of a URI."""
    return Catalog(place, options=options if "://" in place else {})


def _key_sum(keys: pa.Array) -> int:
    values = keys if pa.types.is_integer(keys.type) else pc.binary_length(keys)
    return int(pc.sum(values).as_py() or 0)


def serve(worker: object, lines: Sequence[str] | None = None) -> None:
    """Answers commands from standard input until it ends; one JSON line each."""
    for line in lines or sys.stdin:
        words = line.split()
        try:
            answer = getattr(worker, words[0])(*words[1:])
        except Exception as failure:  # the driver shows it and stops
            answer = {"error": f"{type(failure).__name__}: {failure}"}
        answer["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(Worker())
