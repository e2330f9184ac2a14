"""W10, latency: inserts at a steady rate from a real broker; how long until a snapshot holds each record.

The moment of an event is when the producer hands it over, the moment of its commit the time of the first snapshot that
holds it: both from this machine's clock, the latter read from the table, so that every peer is measured alike. The
first seconds do not count: a JVM starts, and what arrived meanwhile is one large first batch; then it compiles.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from bench.cdc_records import KAFKA_PARTITIONS
from bench.latency_jobs import FLINK_CHECKPOINTS_MS, RATE, TRIGGERS, FlinkJob, Load, batches_text, start_freshet
from bench.measure import report
from bench.peers import PeerError
from bench.results import Results
from freshet.jobs.demo.kafka_broker import ForeignBroker, KafkaBroker
from freshet.storage.catalog import Catalog
from freshet.storage.table import Table

WARM_UP_S: Final = 75
MEASURED_S: Final = 45
SPARSE_RATE: Final = 5
"""Records a second of a topic where little happens: a batch has one or two."""


def latency(results: Results, folder: Path, without: Sequence[str]) -> None:
    """Figures of every trigger and of Flink's checkpoints, as notes."""
    with KafkaBroker.start(folder / "kafka-latency") as broker:
        for name, trigger in TRIGGERS.items():
            place = folder / f"latency-{trigger.replace(' ', '-')}"
            text = measured_latency(
                broker, place, lambda topic, p=place, t=trigger: start_freshet(broker, topic, p, t, {})
            )
            results.note(f"W10, event to commit, freshet, trigger {name}", f"{text}; {batches_text(place)}")
        place = folder / "latency-sparse"
        text = measured_latency(
            broker, place, lambda topic: start_freshet(broker, topic, place, "0 seconds", {}), rate=SPARSE_RATE
        )
        results.note(f"W10, event to commit, freshet, {SPARSE_RATE} records a second", f"{text}; {batches_text(place)}")
        if "paimon-flink" in without:
            return
        for checkpoint_ms in FLINK_CHECKPOINTS_MS:
            place = folder / f"latency-flink-{checkpoint_ms}"
            text = measured_latency(
                broker,
                place,
                lambda topic, p=place, c=checkpoint_ms: FlinkJob(broker, topic, p, c, results.folder).stop,
            )
            results.note(f"W10, event to commit, paimon-flink, checkpoints of {checkpoint_ms} ms", text)


def measured_latency(
    broker: ForeignBroker,
    place: Path,
    start: Callable[[str], Callable[[], None]],
    table: Callable[[], Table] | None = None,
    rate: int = RATE,
    seconds: tuple[int, int] = (WARM_UP_S, MEASURED_S),
) -> str:
    """Runs a job in a folder and measures it by its table, which is in the folder as well unless one is given.

    `seconds` are those before it counts, and those that count.
    """
    topic = place.name
    broker.create_topic(topic, kafka_partitions=KAFKA_PARTITIONS)
    place.mkdir(parents=True)
    load = Load(broker, topic, rate=rate)
    stop = start(topic)
    try:
        first = load.produce(seconds[0] * rate, 0)
        last = load.produce(seconds[1] * rate, first)
        time.sleep(5)  # what was sent last is committed
    finally:
        stop()
    waited_s = _latencies(Catalog(place).table("bench.t") if table is None else table(), range(first, last))
    p50, p99 = np.percentile(waited_s, [50, 99])
    text = f"p50 {p50:.3f} s, p99 {p99:.3f} s, most {waited_s.max():.3f} s"
    report(f"{topic}: {text}")
    return text


def _latencies(table: Table, numbers: range) -> np.ndarray:
    """Seconds from event to commit of these records; raises `PeerError` if one is in no snapshot."""
    committed = np.full(numbers.stop, -1, np.int64)
    events = np.zeros(numbers.stop, np.int64)
    for snapshot in table.snapshots():
        rows = table.scan(columns=["id", "event_us"], snapshot_id=snapshot.id).to_arrow()
        ids = rows["id"].to_numpy()
        new = committed[ids] < 0
        committed[ids[new]] = snapshot.time_ms
        events[ids[new]] = rows["event_us"].to_numpy()[new]
    wanted = slice(numbers.start, numbers.stop)
    if (committed[wanted] < 0).any():
        raise PeerError(f"{int((committed[wanted] < 0).sum())} records are in no snapshot of {table.location}")
    return committed[wanted] / 1e3 - events[wanted] / 1e6
