"""What dynamic buckets cost beside fixed ones, and ORC and Avro files beside Parquet.

| figure | what |
|---|---|
| W1 ingest | fixed buckets, dynamic ones, and Apache Paimon's Java API with its own assigner of dynamic ones |
| small commits | 1000 random known keys, and 1000 new ones, into a compacted table of 10 M keys: median of 40 |
| W9 | the job of record with two buckets and with dynamic ones |
| placement | tables whose rows move between partitions, files with indexes (`placement_bench`) |
| W5 merge read | five overlapping runs in files of each format; Apache Paimon reads ORC as well |
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from bench.cdc_bench import RECORDS, CdcRun
from bench.lookup_worker import SCHEMA, rows_of
from bench.measure import Answer, Contestant, check_equal, measure, report
from bench.peers import Peer
from bench.placement_bench import placement
from bench.results import Results
from bench.storage_bench import location, make, start_peers, writing
from bench.workloads import W1, W5, Workload
from freshet.jobs.demo.kafka_broker import KafkaBroker
from freshet.storage.catalog import Catalog
from freshet.storage.table import Table

DYNAMIC: Final = {"bucket": "-1"}
KEYS: Final = 10_000_000
LOAD_ROWS: Final = 500_000
COMMITS: Final = 40
COMMIT_ROWS: Final = 1000
WARM_UP_COMMITS: Final = 5
_THREADS: Final = "2"


def buckets(results: Results, folder: Path, factor: float, rounds: int, without: Sequence[str]) -> None:
    """The whole part."""
    with ExitStack() as stack:
        everyone = start_peers(stack, results.folder, [*without, "pypaimon"])
        _ingest(results, everyone, folder, factor, rounds)
        _formats(results, everyone, folder, factor, rounds)
    _small_commits(results, folder, int(KEYS * factor))
    if "placement" not in without:
        placement(results, folder, factor)
    if "cdc" not in without:
        _of_record(results, folder, max(1000, int(RECORDS * factor)), rounds)


def _ingest(results: Results, everyone: Sequence[Peer], folder: Path, factor: float, rounds: int) -> None:
    """W1; all tables must hold the same rows."""
    fixed = W1.scaled(factor)
    dynamic = replace(fixed, name="W1-dynamic", options=DYNAMIC)
    for peer in everyone:
        make(peer, fixed)
    ours, *others = everyone
    contestants = [
        Contestant("freshet", _THREADS, writing(ours, dynamic, folder)),
        Contestant("freshet, 2 fixed buckets", _THREADS, writing(ours, fixed, folder)),
        *(Contestant(peer.name, "2 writers + compaction", writing(peer, dynamic, folder)) for peer in others),
    ]
    results.add(measure("W1 ingest, dynamic buckets", contestants, fixed.rows, rounds))
    _check_digests([(ours, fixed), *((peer, dynamic) for peer in everyone)], folder)


def _formats(results: Results, everyone: Sequence[Peer], folder: Path, factor: float, rounds: int) -> None:
    """W5 by the format of its files; rows per second count the rows that were written."""
    runs = W5.scaled(factor)
    formats = ("parquet", "orc", "avro")
    of_format = {name: replace(runs, name=f"W5-{name}", options={"file.format": name}) for name in formats}
    ours, *others = everyone
    for peer in everyone:
        make(peer, runs)
    contestants = []
    for name, workload in of_format.items():
        for peer in everyone if name == "orc" else [ours]:
            writing(peer, workload, folder)()
            label = "freshet" if (peer, name) == (ours, "parquet") else f"{peer.name}, {name}"
            contestants.append(Contestant(label, "1", _reading(peer, workload, folder)))
    results.add(measure("W5 merge read, formats", contestants, runs.rows, rounds, compare=True))
    orc = [(peer, of_format["orc"]) for peer in others]
    _check_digests([*((ours, workload) for workload in of_format.values()), *orc], folder)


def _check_digests(tables: Sequence[tuple[Peer, Workload]], folder: Path) -> None:
    """All cells of the tables must be the same."""
    answers = {
        f"{peer.name} {workload.name}": peer.ask("digest", location(folder, workload, peer.name))
        for peer, workload in tables
    }
    check_equal(answers)


def _reading(peer: Peer, workload: Workload, folder: Path) -> Callable[[], Answer]:
    return lambda: peer.ask("read", location(folder, workload, peer.name), 1)


def _small_commits(results: Results, folder: Path, row_count: int) -> None:
    """The same batches into a table of fixed buckets, as many as the dynamic ones, and into that of dynamic ones."""
    dynamic = _loaded(folder, row_count, "dynamic", DYNAMIC)
    bucket_count = len({file.bucket for file in dynamic.files()})
    fixed = _loaded(folder, row_count, "fixed", {"bucket": str(bucket_count)})
    known = {table.name: _seconds(table, _known_keys(row_count)) for table in (fixed, dynamic)}
    new = {table.name: _seconds(table, _new_keys(row_count)) for table in (fixed, dynamic)}
    for kind, seconds in (("known", known), ("new", new)):
        ours, other = seconds[dynamic.name], seconds[fixed.name]
        text = f"{1000 * ours:.1f} ms, fixed {1000 * other:.1f} ms: {ours / other:.2f}×; {bucket_count} buckets"
        results.note(f"{COMMIT_ROWS} {kind} keys into {row_count:,}", text)
        report(f"{COMMIT_ROWS} {kind} keys into {row_count:,}: {text}")


def _loaded(folder: Path, row_count: int, name: str, options: dict[str, str]) -> Table:
    table = Catalog(str(folder / "small")).create_table(
        f"b.{name}", schema=SCHEMA, primary_keys=["id"], options=options
    )
    with table.with_options({"write-only": "true"}).writer("loader") as writer:
        for start in range(0, row_count, LOAD_ROWS):
            writer.write(rows_of(np.arange(start, min(start + LOAD_ROWS, row_count)), 0))
            writer.commit()
    table.compact(full=True)
    return table


def _known_keys(row_count: int) -> Iterator[np.ndarray]:
    chance = np.random.default_rng(1)
    while True:
        yield chance.integers(0, row_count, COMMIT_ROWS)


def _new_keys(row_count: int) -> Iterator[np.ndarray]:
    start = row_count
    while True:
        yield np.arange(start, start + COMMIT_ROWS)
        start += COMMIT_ROWS


def _seconds(table: Table, keys: Iterator[np.ndarray]) -> float:
    """Median of a write and its commit, in one session, behind the first few."""
    taken = []
    with table.writer("bench") as writer:
        for number in range(WARM_UP_COMMITS + COMMITS):
            rows = rows_of(next(keys).astype(np.int64), number)
            started = time.perf_counter()
            writer.write(rows)
            writer.commit()
            taken.append(time.perf_counter() - started)
    return statistics.median(taken[WARM_UP_COMMITS:])


def _of_record(results: Results, folder: Path, count: int, rounds: int) -> None:
    """W9 in a session that lives on."""
    with KafkaBroker.start(folder / "kafka") as broker:
        session = Peer("freshet", [sys.executable, "-m", "bench.cdc_worker"], results.folder / "buckets-cdc.log")
        run = CdcRun(folder, broker, session, None)
        digests = {}

        def once(bucket: int) -> Answer:
            answer = run.warm(bucket=bucket)
            digests[bucket] = run.digest_of("freshet")
            return answer

        try:
            run.topic("plain", count, "plain")
            contestants = [
                Contestant("freshet", _THREADS, lambda: once(-1)),
                Contestant("freshet, 2 fixed buckets", _THREADS, lambda: once(2)),
            ]
            results.add(measure("W9 CDC, dynamic buckets", contestants, count, rounds))
            check_equal(digests)
        finally:
            session.close()
