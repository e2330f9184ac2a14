"""W8, latency of the log: upserts at a steady rate from a real broker; how long until a reader has each row.

`freshet run` writes a table with the changelog producer lookup and a log in the same broker; readers in processes of
their own follow it, one after the other while the writer goes on: with two cores several at once would measure each
other. An event is when the producer hands a record over; a row is seen when the reader has it in hand: a batch of
`Table.stream`, a line of `freshet tail`, a frame of `foreachBatch`. On Flink, where there is no log, a streaming read
of the table with a lookup changelog, which a job writes by checkpoints; a row is seen by the task that reads it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from bench.cdc_records import KAFKA_PARTITIONS
from bench.latency_jobs import FLINK_CHECKPOINTS_MS, TRIGGERS, FlinkJob, Load, batches_text, start_freshet
from bench.measure import report
from bench.peers import PeerError
from bench.results import Results
from bench.seen_rows import SEEN_COLUMNS, Window, seconds_to_see
from freshet.jobs.demo.kafka_broker import ForeignBroker, KafkaBroker

KEYS: Final = 10_000
READERS: Final = ("speculative", "committed", "snapshots", "tail", "spark-speculative")
WARM_UP_S: Final = 75
READER_WARM_UP_S: Final = 3
JVM_WARM_UP_S: Final = 30
"""Of readers that are a JVM: their first batches are slow."""

MEASURED_S: Final = 15
TAIL_S: Final = 3
"""How long readers go on after the last event that counts."""

_CHANGELOG: Final = {"changelog-producer": "lookup"}


def log_latency(
    results: Results, folder: Path, without: Sequence[str], *, triggers: Sequence[str] = tuple(TRIGGERS)
) -> None:
    """Figures of each reader under each trigger, and of Flink's checkpoints, as notes."""
    with KafkaBroker.start(folder / "kafka-log") as broker:
        for name in triggers:
            _freshet(results, broker, folder / f"log-{TRIGGERS[name].replace(' ', '-')}", name, without)
        if "paimon-flink" in without:
            return
        for checkpoint_ms in FLINK_CHECKPOINTS_MS:
            _flink(results, broker, folder / f"log-flink-{checkpoint_ms}", checkpoint_ms)


def log_latency_on(results: Results, broker: ForeignBroker, place: Path, engine: str) -> None:
    """The speculative reader of a log that this engine writes as fast as possible."""
    without = [each for each in READERS if each != "speculative"]
    _freshet(results, broker, place, "as fast as possible", without, engine)


def _freshet(
    results: Results, broker: ForeignBroker, place: Path, trigger: str, without: Sequence[str], engine: str = "spark"
) -> None:
    place.mkdir(parents=True)
    writer = "" if engine == "spark" else f" on {engine}"
    topic = place.name
    broker.create_topic(topic, kafka_partitions=KAFKA_PARTITIONS)
    options = {
        **_CHANGELOG,
        "log.system": "kafka",
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "kafka.topic": f"{topic}-changes",
    }
    stop = start_freshet(broker, topic, place, TRIGGERS[trigger], options, engine=engine)
    try:
        with _records(Load(broker, topic, KEYS)):
            time.sleep(WARM_UP_S)
            for reader in READERS:
                if reader in without:
                    continue
                name = f"W8, event to row, freshet{writer}, trigger {trigger}, {reader}"
                out = place / f"{reader}.csv"
                begin, end = _tail(place, out) if reader == "tail" else _child(reader, place, out)
                warm_up_s = JVM_WARM_UP_S if reader.startswith("spark-") else READER_WARM_UP_S
                try:
                    _note(results, name, begin, end, out, warm_up_s)
                except PeerError as error:  # the others can still be measured
                    results.fail(name, str(error))
                    report(f"{name}: {error}")
    finally:
        stop()
    results.note(f"W8, the writer{writer}, trigger {trigger}", batches_text(place, with_steps=True))
    report(batches_text(place, with_steps=True))


def _flink(results: Results, broker: ForeignBroker, place: Path, checkpoint_ms: int) -> None:
    place.mkdir(parents=True)
    topic = place.name
    broker.create_topic(topic, kafka_partitions=KAFKA_PARTITIONS)
    job = FlinkJob(broker, topic, place, checkpoint_ms, results.folder, _CHANGELOG)
    try:
        with _records(Load(broker, topic, KEYS)):
            time.sleep(WARM_UP_S)
            out = place / "paimon-flink.csv"
            name = f"W8, event to row, paimon-flink, checkpoints of {checkpoint_ms} ms"
            _note(results, name, job.follow, lambda: job.unfollow(out), out)
    finally:
        job.stop()


def _note(
    results: Results,
    name: str,
    begin: Callable[[], None],
    end: Callable[[], None],
    out: Path,
    warm_up_s: float = READER_WARM_UP_S,
) -> None:
    """Runs one reader; what was handed over while it was warm counts."""
    begin()
    time.sleep(warm_up_s)
    start_us = time.time_ns() // 1000
    time.sleep(MEASURED_S)
    window = Window(start_us, time.time_ns() // 1000)
    time.sleep(TAIL_S)
    end()
    seconds = seconds_to_see(out, window)
    p50, p99 = np.percentile(seconds, [50, 99])
    text = f"p50 {p50:.3f} s, p99 {p99:.3f} s, most {seconds.max():.3f} s"
    report(f"{name}: {text}")
    results.note(name, text)


@contextmanager
def _records(load: Load) -> Iterator[None]:
    """Records come while the block runs."""
    ended = threading.Event()
    thread = threading.Thread(target=load.produce, args=(None, 0, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _child(reader: str, place: Path, out: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    """A reader of ours in a process: what starts it, waiting until it reads, and what ends it."""
    module = "bench.log_spark_reader" if reader.startswith("spark-") else "bench.log_reader"
    words = [sys.executable, "-m", module, reader.removeprefix("spark-"), str(place), str(out)]
    children: list[subprocess.Popen[str]] = []

    def begin() -> None:
        log = out.with_suffix(".log").open("w")
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        children.append(child)
        assert child.stdout is not None
        if not child.stdout.readline():
            raise PeerError(f"the reader {reader} has ended; its output is in {out.with_suffix('.log')}")

    def end() -> None:
        children[0].terminate()
        if children[0].wait(60):
            raise PeerError(f"the reader {reader} ended with {children[0].returncode}; see {out.with_suffix('.log')}")

    return begin, end


def _tail(place: Path, out: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    """`freshet tail --speculative`, whose lines are looked at as they come."""
    words = [sys.executable, "-m", "freshet", "tail", str(place), "bench.t", "--speculative", "--scan-mode", "latest"]
    words += ["--columns", ",".join(SEEN_COLUMNS)]
    lines: list[tuple[bytes, int]] = []
    running: list[tuple[subprocess.Popen[bytes], threading.Thread]] = []

    def follow(child: subprocess.Popen[bytes], has_begun: threading.Event) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            lines.append((line, time.time_ns() // 1000))
            if len(lines) == 2:  # the header is there at once
                has_begun.set()

    def begin() -> None:
        child = subprocess.Popen(words, stdout=subprocess.PIPE)
        has_begun = threading.Event()
        thread = threading.Thread(target=follow, args=(child, has_begun))
        thread.start()
        running.append((child, thread))
        while not has_begun.wait(1):
            if child.poll() is not None:
                raise PeerError(f"freshet tail has ended with {child.returncode}")

    def end() -> None:
        child, thread = running[0]
        child.terminate()
        child.wait(60)
        thread.join()
        out.write_bytes(_seen_lines(lines))

    return begin, end


def _seen_lines(lines: Sequence[tuple[bytes, int]]) -> bytes:
    """What `SeenRows` writes, from lines of CSV and when they came; the last one may be cut off."""
    found = []
    for line, seen_us in lines[1:-1]:
        note, event_us, kind = line.rstrip().split(b",")
        if kind in (b'"+I"', b'"+U"'):
            found.append(b"%d,%s,%d" % (int(note.strip(b'"')), event_us, seen_us))
    return b"\n".join(found)
