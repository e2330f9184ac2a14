"""Commits to an object store, counted and slowed down by a proxy: the other half of part `stores`.

| step | what | target |
|---|---|---|
| `commits` | requests of a commit to one bucket, and how many follow one another; with a COMPACT snapshot | 11, 6; 16 |
| `writers` | 16 processes that commit to one table without a pause, against one of them | 0.7 of its commits a second |
| `latency` | W10, from an event to its commit, as fast as possible; checkpoint on disk, then in S3 | p50 0.6 s |

Each request takes 20 ms more than this machine's server does, about what a store of the same region takes. Of the
writers the slowest makes at least half of the median's commits, and p99 is at most three times their median.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from bench.latency_bench import measured_latency
from bench.latency_jobs import batches_text, start_freshet
from bench.measure import report
from bench.peers import Peer, PeerError
from bench.results import Results
from freshet.jobs.demo.kafka_broker import KafkaBroker
from freshet.pipeline.spark.jars import S3A_GROUP, fetched_jars
from freshet.storage.catalog import Catalog
from freshet.storage.table import Table
from tests.kit.s3_server import S3Place
from tests.kit.store_proxy import Request, StoreProxy, through

DELAY_S: Final = 0.02
WRITERS: Final = 16
WRITERS_S: Final = 30
COMMITS: Final = 12
REQUESTS_MOST, CHAIN_MOST, COMPACT_MOST = 11, 6, 16
RATE_LEAST, SLOWEST_LEAST, P99_MOST = 0.7, 0.5, 3.0
LATENCY_MOST_S: Final = 0.6
_AFTER_THE_RETURN: Final = ("/LATEST", "/EARLIEST", "/consumer")
"""Hints, and what expiry looks at."""


def commit_requests(results: Results, place: S3Place) -> None:
    """Of commits of a warm session; the median of those with a COMPACT snapshot, and of the others."""
    with StoreProxy(place.endpoint) as proxy:
        table = _table(through(place, proxy), "bench.requests", {"bucket": "1"})
        proxy.delay_s = DELAY_S
        seen: dict[int, list[tuple[int, int, float]]] = {1: [], 2: []}
        with table.writer("bench") as writer:
            for number in range(COMMITS + 1):
                table.store.env.finish_later()
                started = time.perf_counter()
                with proxy.counted() as requests:
                    writer.write(_rows(number))
                    snapshots = writer.commit().snapshots
                taken = time.perf_counter() - started
                own = [request for request in requests if not _follows(request)]
                if number:
                    seen[len(snapshots)].append((len(own), proxy.longest_chain(own), taken))
    for count, name, most in ((1, "a commit", REQUESTS_MOST), (2, "with a COMPACT snapshot", COMPACT_MOST)):
        requests, chain, seconds = (statistics.median(column) for column in zip(*seen[count], strict=True))
        in_turn = f"{chain:g} one after the other" + (f" (at most {CHAIN_MOST})" if count == 1 else "")
        _note(
            results,
            f"requests to S3, {name}",
            f"{requests:g} (at most {most}), {in_turn}, {1000 * seconds:.0f} ms with {1000 * DELAY_S:.0f} ms for each",
        )


def writers(results: Results, place: S3Place) -> None:
    """One writer, then many, to buckets of their own and to the same one."""
    for name, partitions in (("to a partition each", WRITERS), ("to one bucket", 1)):
        with StoreProxy(place.endpoint) as proxy:
            proxy.delay_s = DELAY_S
            slow = through(place, proxy)
            alone = _committed(slow, f"bench.alone_{partitions}", 1, partitions)
            many = _committed(slow, f"bench.many_{partitions}", WRITERS, partitions)
        _note(
            results,
            f"{WRITERS} writers on S3, {name}",
            f"{many.rate:.1f} commits/s, {many.rate / alone.rate:.2f} of one writer's {alone.rate:.1f} (at least "
            f"{RATE_LEAST}); the slowest {many.slowest:.2f} of the median's commits (at least {SLOWEST_LEAST}); median "
            f"{many.p50:.2f} s, p99 {many.p99:.2f} s, {many.p99 / many.p50:.1f} times (at most {P99_MOST})",
        )


def store_latency(results: Results, place: S3Place, disk: Path, catalog: Mapping[str, str]) -> None:
    """The pipeline of W10 with its table at the slowed store; `catalog` is for the pipeline file, without secrets.

    Then with the checkpoint there too, by Hadoop's S3A, where this machine has its jars. The proxy is in a process of
    its own: the load needs this one.
    """
    checkpoints = {"on disk": None, "in S3": f"s3a://{place.bucket}/checkpoint"}
    slowed = Peer("proxy", [sys.executable, "-m", "bench.stores_worker"], results.folder / "stores-proxy.log")
    try:
        with KafkaBroker.start(disk / "kafka-stores-latency") as broker:
            slow = {**catalog, "s3.endpoint": slowed.ask("proxy", place.endpoint, DELAY_S)["endpoint"]}
            for number, (name, checkpoint) in enumerate(checkpoints.items()):
                measurement = f"W10, event to commit, on S3, as fast as possible, checkpoint {name}"
                if checkpoint is not None and fetched_jars(S3A_GROUP) is None:
                    _note(results, measurement, "left out: its jars are missing (freshet jars --s3)")
                    continue
                folder, warehouse = disk / f"latency-on-s3-{number}", f"latency-{number}"
                text = measured_latency(
                    broker,
                    folder,
                    partial(
                        start_freshet,
                        broker,
                        place=folder,
                        trigger="0 seconds",
                        options={},
                        warehouse=f"{place.root}/{warehouse}",
                        catalog=slow,
                        checkpoint=checkpoint,
                    ),
                    partial(_catalog(place, warehouse).table, "bench.t"),
                )
                target = "" if checkpoint else f"p50 at most {LATENCY_MOST_S} s, "
                steps = batches_text(folder, with_steps=True)
                _note(results, measurement, f"{text} ({target}{1000 * DELAY_S:.0f} ms for each request); {steps}")
    finally:
        slowed.close()


@dataclass(frozen=True, slots=True)
class _Committed:
    """What some writers have done: commits a second of all, of the slowest over the median, seconds of a commit."""

    rate: float
    slowest: float
    p50: float
    p99: float


def _committed(place: S3Place, name: str, count: int, partitions: int) -> _Committed:
    """Each writer is a process, which begins when all are ready."""
    _table(place, name, {"bucket": "1", "write-only": "true"})
    command = [sys.executable, "-m", "bench.store_commits_bench", json.dumps([place.endpoint, place.bucket, name])]
    children = [
        subprocess.Popen(
            [*command, str(number), str(number % partitions)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for number in range(count)
    ]
    try:
        seconds = [json.loads(line) for line in _answers(children)]
    finally:
        for child in children:
            child.kill()
            child.wait()
    laps = sorted(lap for each in seconds for lap in each)
    counts = sorted(map(len, seconds))
    p99 = laps[min(len(laps) - 1, len(laps) * 99 // 100)]
    return _Committed(len(laps) / WRITERS_S, counts[0] / statistics.median(counts), statistics.median(laps), p99)


def _answers(children: Sequence[subprocess.Popen[str]]) -> list[str]:
    for child in children:
        assert child.stdout is not None
        if child.stdout.readline().strip() != "ready":
            raise PeerError("a writer ended before it had begun")
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    lines = [child.stdout.readline() for child in children if child.stdout is not None]
    if not all(lines):
        raise PeerError("a writer has failed")
    return lines


def _write(place: S3Place, name: str, number: int, partition: int) -> None:
    """One of the writers: its first commit, a line, and from the answer on commits without a pause."""
    laps = []
    with _catalog(place, "commits").table(name).writer(f"writer-{number}") as writer:
        writer.write(_rows(number, partition))
        writer.commit()
        print("ready", flush=True)
        sys.stdin.readline()
        end = time.monotonic() + WRITERS_S
        while time.monotonic() < end:
            started = time.perf_counter()
            writer.write(_rows(number * 1_000_000 + len(laps), partition))
            writer.commit()
            laps.append(time.perf_counter() - started)
    print(json.dumps(laps), flush=True)


def _catalog(place: S3Place, folder: str) -> Catalog:
    return Catalog(f"{place.root}/{folder}", options=place.options)


def _table(place: S3Place, name: str, options: Mapping[str, str]) -> Table:
    return _catalog(place, "commits").create_table(
        name,
        schema={"p": "INT NOT NULL", "k": "BIGINT NOT NULL", "v": "STRING"},
        primary_keys=["p", "k"],
        partition_keys=["p"],
        options=options,
    )


def _rows(number: int, partition: int = 0) -> pa.Table:
    return pa.table({"p": pa.array([partition], pa.int32()), "k": pa.array([number], pa.int64()), "v": ["x"]})


def _follows(request: Request) -> bool:
    """Whether it is part of what follows the return of a commit, and may begin a little before it is seen here."""
    return any(part in f"/{request.key}{request.query}" for part in _AFTER_THE_RETURN)


def _note(results: Results, name: str, text: str) -> None:
    report(f"{name}: {text}")
    results.note(name, text)


if __name__ == "__main__":
    endpoint, bucket, table_name = json.loads(sys.argv[1])
    _write(S3Place(endpoint, bucket), table_name, int(sys.argv[2]), int(sys.argv[3]))
