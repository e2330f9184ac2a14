"""Where rows are found: tables whose rows move between partitions, and files that have indexes.

| figure | what |
|---|---|
| index of keys | built from a compacted table of 10 M keys, in a process of its own: keys/s, disk, memory |
| small commits | 1000 known keys, of which nine in ten move, beside a table of fixed buckets whose rows stay |
| one row of many files | a key of 200 overlapping files with bloom filters: files opened, time, with and without |
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from bench.measure import report
from bench.results import Results
from freshet.storage.catalog import Catalog
from freshet.storage.filters.column import col
from freshet.storage.table import Table

KEYS: Final = 10_000_000
LOAD_ROWS: Final = 1_000_000
PARTITIONS: Final = 10
COMMITS: Final = 40
COMMIT_ROWS: Final = 1000
FILES: Final = 200
ROWS_OF_FILE: Final = 5000
SCHEMA: Final = {"id": "BIGINT NOT NULL", "day": "INT NOT NULL", "amount": "DOUBLE"}


def placement(results: Results, folder: Path, factor: float) -> None:
    """All figures."""
    _moving(results, folder, int(KEYS * factor))
    _one_of_many_files(results, folder, max(1, int(ROWS_OF_FILE * factor)))


def rows_of(keys: np.ndarray, days: np.ndarray) -> pa.Table:
    """Rows of these keys in these partitions."""
    return pa.table({"id": keys, "day": days.astype(np.int32), "amount": keys / 7.0})


def _moving(results: Results, folder: Path, row_count: int) -> None:
    catalog, chance = Catalog(str(folder / "moving")), np.random.default_rng(2)
    index_folder = str(folder / "moving-index")
    options = {"cross-partition-upsert.index-dir": index_folder}
    moving = catalog.create_table(
        "b.moving", schema=SCHEMA, primary_keys=["id"], partition_keys=["day"], options=options
    )
    fixed = catalog.create_table(
        "b.fixed", schema=SCHEMA, primary_keys=["id", "day"], partition_keys=["day"], options={"bucket": "1"}
    )
    keys = chance.permutation(row_count).astype(np.int64)
    for table in (moving, fixed):
        with table.writer("loader") as writer:
            for start in range(0, row_count, LOAD_ROWS):
                part = keys[start : start + LOAD_ROWS]
                writer.write(rows_of(part, part % PARTITIONS))
                writer.commit()
        table.compact(full=True)
    built = json.loads(
        subprocess.run(
            [sys.executable, "-m", "bench.placement_bench", str(folder / "moving"), str(folder / "built-index")],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )
    text = (
        f"{row_count / built['seconds'] / 1e6:.2f} M keys/s, {built['disk_bytes'] / 1e6:.0f} MB of disk, "
        f"{built['peak_bytes'] / 1e6:.0f} MB of memory, {built['before_bytes'] / 1e6:.0f} MB of it before"
    )
    results.note(f"index of {row_count:,} keys", text)
    report(f"index of {row_count:,} keys: {text}")
    seconds = {table.name: _seconds(table, row_count, moves=table is moving) for table in (fixed, moving)}
    ours, other = seconds[moving.name], seconds[fixed.name]
    text = f"{1000 * ours:.1f} ms, fixed {1000 * other:.1f} ms: {ours / other:.2f}×"
    results.note(f"{COMMIT_ROWS} keys that move, of {row_count:,}", text)
    report(f"{COMMIT_ROWS} keys that move, of {row_count:,}: {text}")


def _seconds(table: Table, row_count: int, *, moves: bool) -> float:
    """Median of a write and its commit, behind the first few."""
    chance, taken = np.random.default_rng(1), []
    with table.writer("bench") as writer:
        for _ in range(COMMITS):
            keys = chance.choice(row_count, COMMIT_ROWS, replace=False).astype(np.int64)
            days = chance.integers(0, PARTITIONS, COMMIT_ROWS) if moves else keys % PARTITIONS
            rows = rows_of(keys, days)
            started = time.perf_counter()
            writer.write(rows)
            writer.commit()
            taken.append(time.perf_counter() - started)
    return statistics.median(taken[5:])


def _one_of_many_files(results: Results, folder: Path, row_count: int) -> None:
    options = {
        "bucket": "1",
        "write-only": "true",
        "file-index.bloom-filter.columns": "id",
        "file-index.bloom-filter.id.items": str(row_count),
        "file-index.bloom-filter.id.fpp": "0.001",
    }
    table = Catalog(str(folder / "indexed")).create_table("b.t", schema=SCHEMA, primary_keys=["id"], options=options)
    with table.writer("loader") as writer:
        for number in range(FILES):
            keys = np.arange(row_count, dtype=np.int64) * FILES + number
            writer.write(rows_of(keys, keys % PARTITIONS))
            writer.commit()
    figures = {}
    for name, asked in (("with", table), ("without", table.with_options({"file-index.read.enabled": "false"}))):
        opened, taken = [], []
        for key in range(7, row_count * FILES, row_count * FILES // 20):
            started = time.perf_counter()
            scan = asked.scan(filter=col("id") == key)
            assert scan.to_arrow().num_rows == 1
            taken.append(time.perf_counter() - started)
            opened.append(sum(len(split.files) for split in scan.plan()))
        figures[name] = max(opened), statistics.median(taken)
    text = ", ".join(f"{name} {files} files, {1000 * seconds:.1f} ms" for name, (files, seconds) in figures.items())
    results.note(f"one row of {FILES} overlapping files", text)
    report(f"one row of {FILES} overlapping files, bloom filters: {text}")


def _build(warehouse: str, index_folder: str) -> None:
    """Builds the index of the table, and prints what that took."""
    options = {"cross-partition-upsert.index-dir": index_folder}
    table = Catalog(warehouse).table("b.moving").with_options(options)
    before = _peak_bytes()
    with table.writer("builder") as writer:
        started = time.perf_counter()
        writer.write(rows_of(np.arange(1, dtype=np.int64), np.zeros(1)))
        seconds = time.perf_counter() - started
        writer.abort()
    disk = sum(path.stat().st_size for path in Path(index_folder).rglob("*") if path.is_file())
    print(json.dumps({"seconds": seconds, "disk_bytes": disk, "peak_bytes": _peak_bytes(), "before_bytes": before}))


def _peak_bytes() -> int:
    """Peak of the resident size of this process."""
    (line,) = (each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    _build(sys.argv[1], sys.argv[2])
