"""One pipeline on both engines: from nothing to the first commit, W9, memory, Flink beside W9; latency is a part of its
own.

| figure | what |
|---|---|
| first commit | from the start of the process until a snapshot holds ten records that waited in a topic |
| cold | `freshet run` of W9 from the start of the process to its exit |
| batches | the median of the batches of such a run after the first one, of 200,000 records each |
| memory | the most that all processes of the run have together, each shared page once (PSS) |
| event to commit | W10, of the part `local-latency`, with processor time |
| event to row | W8 with a speculative reader of the log, of the same part |
"""

from __future__ import annotations

import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

from bench.cdc_bench import CdcRun
from bench.flink import flink
from bench.latency_bench import measured_latency
from bench.latency_jobs import TRIGGERS, batches_text, start_freshet
from bench.log_latency_bench import log_latency_on
from bench.measure import Answer, Contestant, check_equal, measure, report
from bench.peers import Peer, PeerError
from bench.process_watch import ProcessWatch, session_of
from bench.results import Results
from freshet.jobs.demo.kafka_broker import KafkaBroker

ENGINES: Final = ("local", "spark")
RECORDS: Final = 1_000_000
BATCH_RECORDS: Final = 200_000
_POLL_S: Final = 0.005


def local(results: Results, folder: Path, factor: float, rounds: int, without: Sequence[str]) -> None:
    """The whole part."""
    count = max(1000, int(RECORDS * factor))
    with KafkaBroker.start(folder / "kafka-local") as broker:
        peer = None if "paimon-flink" in without else flink(results.folder)
        run = CdcRun(folder, broker, NoSession(), peer)
        try:
            run.topic("ten", 10, "plain")
            run.topic("plain", count, "plain")
            starts = [Contestant(f"freshet, {each}", "2", partial(first_commit, run, each)) for each in ENGINES]
            results.add(measure("first commit of ten records", starts, 10, rounds))
            _w9(results, run, count, rounds)
            for engine in ENGINES:
                _batches(results, run, engine, count)
        finally:
            if peer is not None:
                peer.close()


def local_latency(results: Results, folder: Path, rounds: int, without: Sequence[str]) -> None:
    """W10 and W8 on both engines in turns, or on those that are not left out."""
    engines = [each for each in ENGINES if each not in without]
    trigger = TRIGGERS["as fast as possible"]
    with KafkaBroker.start(folder / "kafka-local-latency") as broker:
        for number, engine in product(range(rounds), engines):
            place = folder / f"latency-on-{engine}-{number}"
            start = partial(start_freshet, broker, place=place, trigger=trigger, options={}, engine=engine)
            before_s = _children_s()
            text = f"{measured_latency(broker, place, start)}; {_children_s() - before_s:.0f} s of processor time"
            steps = batches_text(place, with_steps=True)
            results.note(f"W10, event to commit, {engine}, as fast as possible", f"{text}; {steps}")
            log_latency_on(results, broker, folder / f"log-on-{engine}-{number}", engine)


def _children_s() -> float:
    """Processor time of the processes that this one has waited for, with those that they have."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class NoSession(Peer):
    """Every run is a process of its own."""

    def __init__(self) -> None:
        pass


def _w9(results: Results, run: CdcRun, count: int, rounds: int) -> None:
    """Whole processes in turns, and Flink's queries in a JVM that lives on."""
    most: dict[str, list[float]] = {engine: [] for engine in ENGINES}

    def once(engine: str) -> Answer:
        file = run.pipeline_file("plain", f"freshet, {engine}")
        seconds, watch = run_to_the_end(file, engine)
        most[engine].append(watch.megabytes)
        return {"seconds": seconds}

    contestants = [Contestant(f"freshet, {each}", "2", partial(once, each)) for each in ENGINES]
    if run.flink is not None:
        contestants.append(Contestant("paimon-flink", "2", run.on_flink))
    results.add(measure("W9 CDC, whole processes", contestants, count, rounds))
    check_equal({who: run.digest_of(who) for who in run.last if who != "freshet, first"})
    for engine, megabytes in most.items():
        results.note(f"W9 CDC, {engine}, memory of all processes", f"{statistics.median(megabytes):.0f} MB at most")


def _batches(results: Results, run: CdcRun, engine: str, count: int) -> None:
    size = min(BATCH_RECORDS, max(100, count // 5))
    file = run.pipeline_file("plain", f"freshet, {engine}", batch_records=size)
    run_to_the_end(file, engine)
    rates = [1000 * line["records"] / line["batch_ms"] for line in progress_of(file) if line.get("records")][1:]
    text = f"{statistics.median(rates):,.0f} records/s in the median of {len(rates)} batches, {max(rates):,.0f} at best"
    results.note(f"W9 CDC, {engine}, batches of {size} records", text)
    report(f"{engine}: {text}")


def progress_of(file: Path) -> list[dict[str, Any]]:
    """What a run of a pipeline file has reported, batch by batch."""
    lines = file.with_suffix(".log").read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def _command(file: Path, engine: str) -> list[str]:
    module = "freshet.pipeline.commands.command_line"
    return [sys.executable, "-m", module, "run", str(file), "--on", engine, "--progress", "json"]


def _cached() -> dict[str, str]:
    """The environment, with Python's cache of what it has compiled, as users have it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run_to_the_end(file: Path, engine: str) -> tuple[float, ProcessWatch]:
    """Seconds from start to exit, and what all processes used."""
    started = time.perf_counter()
    with file.with_suffix(".log").open("wb") as log:
        child = subprocess.Popen(_command(file, engine), stdout=log, stderr=log, start_new_session=True, env=_cached())
        with ProcessWatch(partial(session_of, child.pid)) as watch:
            code = child.wait()
            seconds = time.perf_counter() - started
    if code:
        raise PeerError(f"freshet run ended with {code}; its output is in {file.with_suffix('.log')}")
    return seconds, watch


def first_commit(run: CdcRun, engine: str) -> Answer:
    file = run.pipeline_file("ten", "freshet, first")
    text = file.read_text().replace("available_now: true", "processing_time: 0 seconds")
    file.write_text(text)
    snapshot = file.parent / "bench.db" / "t" / "snapshot" / "snapshot-1"
    started = time.perf_counter()
    with file.with_suffix(".log").open("wb") as log:
        child = subprocess.Popen(_command(file, engine), stdout=log, stderr=log, start_new_session=True, env=_cached())
    while not snapshot.exists():
        if child.poll() is not None or time.perf_counter() - started > 120:
            raise PeerError(f"freshet run committed nothing; its output is in {file.with_suffix('.log')}")
        time.sleep(_POLL_S)
    seconds = time.perf_counter() - started
    child.send_signal(signal.SIGTERM)
    child.wait(120)
    return {"seconds": seconds}
