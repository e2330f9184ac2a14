"""W4: what a batch of random keys costs with lookup, in a large table and in one of a tenth of its rows.

Both are compacted in full before, in two buckets. A batch is written, looked up, compacted and committed by one
session.

| figure | what |
|---|---|
| warm | median, ninth decile and slowest of 200 batches, behind the first few |
| restart | the first batch of another process, which finds the stores of the first |
| cold machine | the first batches of a process on a machine without stores, up to the one that builds them |
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.lookup_worker import SCHEMA, rows_of
from bench.measure import report
from bench.results import Results
from freshet.storage.catalog import Catalog

BATCHES: Final = 200
BATCH_ROWS: Final = 10_000
WARM_UP_BATCHES: Final = 5
"""Batches at the start, in which stores are built."""
LOAD_ROWS: Final = 500_000
RATIO_MAX: Final = 1.2
OPTIONS: Final = {
    "bucket": 2,
    "changelog-producer": "lookup",
    "snapshot.num-retained.min": 1,
    "snapshot.num-retained.max": 10,
}

Batch = Mapping[str, Any]


def lookups(results: Results, folder: Path, factor: float, batches: int = BATCHES) -> None:
    """The whole part."""
    medians = []
    for rows in (int(1_000_000 * factor), int(10_000_000 * factor)):
        place = folder / f"w4-{rows}"
        name = f"W4 {rows:,} rows"
        make_table(place, rows)
        cold = run(place, rows, WARM_UP_BATCHES, seed=1)
        size = sum(path.stat().st_size for path in (place / "cache").rglob("*") if path.is_file())
        results.note(f"{name}, cold machine", f"{_each(cold)}; stores {size / 1e6:,.0f} MB")
        report(f"{name}, cold machine: {_each(cold)}; stores {size / 1e6:,.0f} MB")
        restart = run(place, rows, batches, seed=2)
        results.note(f"{name}, restart", _each(restart[:2]))
        warm = restart[WARM_UP_BATCHES:]
        medians.append([statistics.median(batch[key] for batch in warm) for key in ("seconds", "cpu_seconds")])
        results.note(f"{name}, warm", _spread(warm))
        report(f"{name}, restart: {_each(restart[:2])}; warm: {_spread(warm)}")
        shutil.rmtree(place)
    (small, small_cpu), (large, large_cpu) = medians
    results.note(
        "W4 warm, large to small", f"{large / small:.2f} (at most {RATIO_MAX}); processor {large_cpu / small_cpu:.2f}"
    )


def make_table(place: Path, row_count: int, **more: object) -> None:
    """The table, compacted in full."""
    options = {**OPTIONS, "lookup.cache-dir": str(place / "cache"), **more}
    catalog = Catalog(str(place))
    table = catalog.create_table("bench.t", schema=SCHEMA, primary_keys=["id"], options=options)
    with table.with_options({"write-only": "true"}).writer("loader") as writer:
        for start in range(0, row_count, LOAD_ROWS):
            writer.write(rows_of(np.arange(start, min(start + LOAD_ROWS, row_count)), 0))
            writer.commit()
    table.compact(full=True)


def run(place: Path, row_count: int, batches: int, *options: str, seed: int) -> Sequence[Batch]:
    """So many batches in a process of their own; `options` are those of its table, KEY=VALUE."""
    command = [sys.executable, "-m", "bench.lookup_worker", str(place), "bench.t"]
    numbers = [str(number) for number in (row_count, batches, min(BATCH_ROWS, row_count), seed)]
    made = subprocess.run([*command, *numbers, *options], stdout=subprocess.PIPE, check=True)
    answer: list[Batch] = json.loads(made.stdout)
    return answer


def _each(batches: Sequence[Batch]) -> str:
    built = [f" ({batch['stores_built']} stores built)" if batch.get("stores_built") else "" for batch in batches]
    return ", ".join(f"{1000 * batch['seconds']:.0f} ms{text}" for batch, text in zip(batches, built, strict=True))


def _spread(batches: Sequence[Batch]) -> str:
    seconds = sorted(batch["seconds"] for batch in batches)
    cpu = [batch["cpu_seconds"] for batch in batches]
    by_store, by_reading = (sum(batch.get(key, 0) for batch in batches) for key in ("by_store", "by_reading"))
    built = sum(batch.get("stores_built", 0) for batch in batches)
    return (
        f"median {1000 * statistics.median(seconds):.1f} ms, p90 {1000 * seconds[len(seconds) * 9 // 10]:.1f} ms, "
        f"slowest {1000 * seconds[-1]:.0f} ms; "
        f"processor {1000 * statistics.median(cpu):.1f} ms; {by_store} files asked by store, "
        f"{by_reading} read, {built} stores built"
    )
