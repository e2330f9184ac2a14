"""One stream of W3: `python -m bench.background_worker WAREHOUSE BATCHES BATCH_ROWS KEYS BUDGET_MS|none`.

Prints as JSON, for each batch, its milliseconds from its rows to its commit, the files at level 0, the changelog files
of the snapshots that are kept, the files this process has open, and the compaction units so far; and what the
milliseconds were spent on: waiting for a turn, files and compaction, the commit; buckets of units that ran, files
looked up by reading, stores built. With `none` batches compact as they do without background compaction.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from bench.lookup_worker import SCHEMA, rows_of
from freshet.storage.catalog import Catalog
from freshet.storage.maintenance.background_compaction import BackgroundCompaction, BackgroundUnit
from freshet.storage.table import Table
from freshet.storage.table_engine import decode_commit_messages, encode_commit_messages
from freshet.storage.write.commit_compaction import CompactionLimit

OPTIONS = {
    "bucket": 2,
    "changelog-producer": "lookup",
    "snapshot.num-retained.min": 1,
    "snapshot.num-retained.max": 10,
}


TIMES = ("ms", "wait_ms", "files_ms", "commit_ms")
CAUSES = ("busy", "by_reading", "stores_built")


def run_unit(location: str, unit: BackgroundUnit) -> bytes:
    """The work of a unit, in a process of its own."""
    return encode_commit_messages(Table.open(location).engine.run_background_unit(unit))


def look_at(location: str) -> int:
    """Whatever makes that process import what a unit needs."""
    return len(Table.open(location).snapshots())


class Units(threading.Thread):
    """Runs units during the stream. Their process is up before the first batch, as the workers of Spark are."""

    def __init__(self, table: Table, background: BackgroundCompaction) -> None:
        super().__init__(daemon=True)
        self.pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        self.pool.submit(look_at, table.location).result()
        self.background = background
        self.location = table.location
        self.wake, self.is_over = threading.Event(), threading.Event()
        self.committed = self.aborted = 0

    def run(self) -> None:
        """Until `is_over`."""
        with self.pool as pool:
            while not self.is_over.is_set():
                self.wake.wait()
                self.wake.clear()
                while not self.is_over.is_set() and (unit := self.background.next_unit()) is not None:
                    messages = decode_commit_messages(pool.submit(run_unit, self.location, unit).result())
                    result = self.background.commit(unit, messages)
                    self.background.release(unit)
                    self.committed += bool(result.snapshots)
                    self.aborted += bool(result.aborted_compactions)


def main() -> None:
    """Runs the stream."""
    warehouse = sys.argv[1]
    batches, batch_rows, keys = map(int, sys.argv[2:5])
    options = {**OPTIONS, "lookup.cache-dir": f"{warehouse}/cache"}
    table = Catalog(warehouse).create_table("bench.t", schema=SCHEMA, primary_keys=["id"], options=options)
    committer, chance = table.engine.committer("stream"), np.random.default_rng(7)
    background = None if sys.argv[5] == "none" else table.engine.background_compaction("stream-compact")
    units = None if background is None else Units(table, background)
    if units is not None:
        units.start()
    answer: dict[str, list[float]] = {
        name: [] for name in ("level0_files", "changelog_files", "open_files", "units", "aborted", *TIMES, *CAUSES)
    }

    @contextmanager
    def turn() -> Iterator[CompactionLimit | None]:
        if background is None:
            yield None
            return
        with background.batch(int(sys.argv[5])) as limit:
            yield limit

    for number in range(batches):
        is_hot = chance.random(batch_rows) < 0.8
        places = np.where(
            is_hot, chance.integers(0, keys // 5, batch_rows), chance.integers(keys // 5, keys, batch_rows)
        )
        rows = rows_of(places.astype(np.int64), number)
        times = [time.perf_counter()]
        with turn() as limit:
            times.append(time.perf_counter())
            base = table.latest_snapshot()
            writer = table.engine.task_writer(base_snapshot_id=None if base is None else base.id, parallelism=2)
            writer.write(rows)
            messages = writer.prepare_commit(number, limit=limit)
            writer.close()
            times.append(time.perf_counter())
            committed = committer.commit(number, messages)
        times.append(time.perf_counter())
        spans = (times[-1] - times[0], *(after - before for before, after in pairwise(times)))
        for name, seconds in zip(TIMES, spans, strict=True):
            answer[name].append(round(1000 * seconds, 1))
        looked_up = writer.lookup_metrics.counts()
        answer["busy"].append(0 if limit is None else len(limit.busy))
        for name in CAUSES[1:]:
            answer[name].append(looked_up.get(name, 0))
        buckets = {(message.partition, message.bucket) for message in messages}
        if units is not None:
            units.background.note(buckets)
            units.wake.set()
        answer["level0_files"].append(sum(table.engine.level0_counts(committed.snapshots[-1], buckets)))
        answer["changelog_files"].append(sum(1 for _ in Path(table.location).rglob("changelog-*.parquet")))
        answer["open_files"].append(len(os.listdir("/proc/self/fd")))
        answer["units"].append(0 if units is None else units.committed)
        answer["aborted"].append(0 if units is None else units.aborted)
    if units is not None:
        units.is_over.set()
        units.wake.set()
        units.join()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
