"""What one core does: records, rows and keys a second of processor time, of every process that takes part.

On a machine with other work the clock says less than processor time, and who sizes a machine counts cores. A broker is
not counted; a JVM that lives on runs once before it counts.

| figure | what |
|---|---|
| CDC | W9, `freshet run` from start to exit with a start's second or ten; Flink's later queries without theirs |
| ingest | W1: rows of 150 bytes into two buckets, with compaction |
| merge read | W5: five overlapping runs, all columns; rows count as they were written |
| merging over reading | the same per byte, over the same files read as they are |
| lookups | random keys of W1's table, of which about one in five is there, 10,000 a call |
| first commit | by the clock, from nothing to ten records |
| event to commit | by the clock, 1000 records a second, as fast as possible |
| memory | the most that all processes of CDC have together, each shared page once |
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from bench.cdc_bench import CdcRun
from bench.flink import flink
from bench.latency_bench import measured_latency
from bench.latency_jobs import TRIGGERS, start_freshet
from bench.local_bench import ENGINES, NoSession, first_commit, run_to_the_end
from bench.measure import check_equal, report
from bench.peers import REPOSITORY, Peer
from bench.process_watch import cpu_seconds_of
from bench.results import Results
from bench.storage_bench import check_digests, location, make, ratio_per_byte, start_peers, write_runs, writing
from bench.workloads import W1, W5
from freshet.jobs.demo.kafka_broker import KafkaBroker

CDC_RECORDS: Final = 1_000_000
_INGEST_FACTOR: Final = 0.5
_LOOKUPS: Final = 10_000
_ROUNDS: Final = 3
_LATENCY_S: Final = (30, 20)
NAMES: Final = {"local": "Freshet", "spark": "Freshet on Spark"}


def core(results: Results, folder: Path, factor: float, without: Sequence[str]) -> None:
    """The whole part, in about ten minutes at full size."""
    results.core["machine"] = f"{os.cpu_count()} cores, {_processor()}, {platform.system()} {platform.machine()}"
    results.core["revision"] = _revision()
    _storage(results, folder, factor, without)
    with KafkaBroker.start(folder / "kafka-core") as broker, ExitStack() as stack:
        peer = None
        if "paimon-flink" not in without:
            peer = flink(results.folder)
            stack.callback(peer.close)
        run = CdcRun(folder, broker, NoSession(), peer)
        run.topic("ten", 10, "plain")
        count = max(1000, int(CDC_RECORDS * factor))
        run.topic("plain", count, "plain")
        _cdc(results, run, count)
        for engine in ENGINES:
            seconds = [float(first_commit(run, engine)["seconds"]) for _ in range(_ROUNDS)]
            results.per_core("first commit", NAMES[engine], f"{statistics.median(seconds):.2f} s")
        for engine in ENGINES:
            place = folder / f"core-latency-{engine}"
            trigger = TRIGGERS["as fast as possible"]
            start = partial(start_freshet, broker, place=place, trigger=trigger, options={}, engine=engine)
            text = measured_latency(broker, place, start, seconds=_LATENCY_S)
            results.per_core("event to commit", NAMES[engine], text.rpartition(",")[0])


def _cdc(results: Results, run: CdcRun, count: int) -> None:
    megabytes = run.sizes["plain"] / 1e6
    for engine in ENGINES:
        cpu_s, memory = [], []
        for _ in range(_ROUNDS):
            _, watch = run_to_the_end(run.pipeline_file("plain", engine), engine)
            cpu_s.append(watch.cpu_seconds)
            memory.append(watch.megabytes)
        _cdc_rate(results, NAMES[engine], count, megabytes, cpu_s)
        results.per_core("memory", NAMES[engine], f"{statistics.median(memory):,.0f} MB")
    if run.flink is not None:
        cpu_s = [_cpu_of(run.flink, run.on_flink) for _ in range(_ROUNDS)]
        _cdc_rate(results, "Paimon on Flink", count, megabytes, cpu_s[1:])
    check_equal({who: run.digest_of(who) for who in run.last if who != "freshet, first"})


def _cdc_rate(results: Results, who: str, count: int, megabytes: float, cpu_s: Sequence[float]) -> None:
    taken = statistics.median(cpu_s)
    results.per_core("CDC", who, f"{count / taken / 1000:,.0f} K records/s, {megabytes / taken:,.0f} MB/s")


def _storage(results: Results, folder: Path, factor: float, without: Sequence[str]) -> None:
    """Ingest, reads and lookups of everybody who has no engine."""
    names = {"freshet": "Freshet", "paimon-java": "Paimon (Java)", "pypaimon": "pypaimon"}
    rows, runs = W1.scaled(_INGEST_FACTOR * factor), W5.scaled(factor)
    with ExitStack() as stack:
        everyone = start_peers(stack, results.folder, without)
        for peer in everyone:
            make(peer, rows)
        for peer in everyone:
            cpu_s = [_cpu_of(peer, writing(peer, rows, folder)) for _ in range(_ROUNDS)]
            results.per_core("ingest", names[peer.name], _rate(rows.rows, cpu_s[1:], "rows"))
        check_digests(everyone, rows, folder)
        ours = everyone[0]
        asked = [
            _cpu_of(ours, partial(ours.ask, "lookup", location(folder, rows, ours.name), _LOOKUPS, seed))
            for seed in range(4 * _ROUNDS)
        ]
        results.per_core("lookups", "Freshet", _rate(_LOOKUPS, asked[1:], "keys"))
        write_runs(everyone, runs, folder)
        for peer in everyone:
            reading = partial(peer.ask, "read", location(folder, runs, peer.name), 1)
            cpu_s = [_cpu_of(peer, reading) for _ in range(_ROUNDS + 1)]
            results.per_core("merge read", names[peer.name], _rate(runs.rows, cpu_s[1:], "rows"))
        place = location(folder, runs, ours.name)
        merged, raw = ([ours.ask("read_files", place, 1, how) for _ in range(_ROUNDS + 1)] for how in ("merged", "raw"))
        text = f"{ratio_per_byte(merged[1:], raw[1:], 'cpu_seconds'):.2f} times"
        results.per_core("merging over reading", "Freshet", text)


def _cpu_of(peer: Peer, once: Callable[[], object]) -> float:
    """Processor time of one answer of a peer, which has no processes below it."""
    before = cpu_seconds_of(peer.process.pid) or 0.0
    once()
    return (cpu_seconds_of(peer.process.pid) or 0.0) - before


def _rate(count: int, cpu_s: Sequence[float], what: str) -> str:
    text = f"{count / statistics.median(cpu_s) / 1000:,.0f} K {what}/s"
    report(text)
    return text


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown processor"
    )


def _revision() -> str:
    asked = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=REPOSITORY, capture_output=True, text=True)
    return asked.stdout.strip() or "unknown"
