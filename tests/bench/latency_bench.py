"""W10, latency: inserts at a steady rate from a real broker; how long until a snapshot holds each record.

The moment of an event is when the producer hands it over, the moment of its commit the time of the first snapshot that
holds it: both from this machine's clock, the latter read from the table, so that every peer is measured alike. The
first seconds do not count: a JVM starts, and what arrived meanwhile is one large first batch; then it compiles.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import yaml
from confluent_kafka import Producer

from freshet.storage.catalog import Catalog
from tests.bench.cdc_records import KAFKA_PARTITIONS
from tests.bench.flink import flink
from tests.bench.measure import tell
from tests.bench.peers import PeerError
from tests.bench.results import Results
from tests.kit.kafka_broker import ForeignBroker, KafkaBroker

RATE: Final = 1000
"""Records per second."""

WARM_UP_S: Final = 75
MEASURED_S: Final = 45
COLUMNS: Final = {"id": "BIGINT", "event_us": "BIGINT", "status": "STRING", "note": "STRING"}
TRIGGERS: Final = {"as fast as possible": "0 seconds", "1 second": "1 second"}
FLINK_CHECKPOINTS_MS: Final = (200, 1000)


def latency(results: Results, folder: Path, without: Sequence[str]) -> None:
    """Figures of every trigger and of Flink's checkpoints, as notes."""
    with KafkaBroker.start(folder / "kafka-latency") as broker:
        for name, trigger in TRIGGERS.items():
            place = folder / f"latency-{trigger.replace(' ', '-')}"
            text = _measured(broker, place, lambda topic, p=place, t=trigger: _freshet(broker, topic, p, t))
            results.note(f"W10, event to commit, freshet, trigger {name}", f"{text}; {_batches(place)}")
        if "paimon-flink" in without:
            return
        for checkpoint_ms in FLINK_CHECKPOINTS_MS:
            place = folder / f"latency-flink-{checkpoint_ms}"
            text = _measured(
                broker, place, lambda topic, p=place, c=checkpoint_ms: _flink(broker, topic, p, c, results.folder)
            )
            results.note(f"W10, event to commit, paimon-flink, checkpoints of {checkpoint_ms} ms", text)


def _measured(broker: ForeignBroker, place: Path, start: Callable[[str], Callable[[], None]]) -> str:
    topic = place.name
    broker.create_topic(topic, kafka_partitions=KAFKA_PARTITIONS)
    place.mkdir(parents=True)
    stop = start(topic)
    try:
        first = _produce(broker, topic, WARM_UP_S * RATE, 0)
        last = _produce(broker, topic, MEASURED_S * RATE, first)
        time.sleep(5)  # what was sent last is committed
    finally:
        stop()
    seconds = _latencies(place, range(first, last))
    p50, p99 = np.percentile(seconds, [50, 99])
    text = f"p50 {p50:.2f} s, p99 {p99:.2f} s, most {seconds.max():.2f} s"
    tell(f"{topic}: {text}")
    return text


def _produce(broker: ForeignBroker, topic: str, count: int, first: int) -> int:
    """Sends `count` inserts at `RATE`; returns the number after the last."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1})
    started = time.perf_counter()
    for number in range(first, first + count):
        ahead = (number - first) / RATE - (time.perf_counter() - started)
        if ahead > 0.002:
            time.sleep(ahead)
        row = f'{{"id":{number},"event_us":{time.time_ns() // 1000},"status":"new","note":"{number:060}"}}'
        value = f'{{"before":null,"after":{row},"source":{{"lsn":{number}}},"op":"c","ts_ms":{number}}}'
        producer.produce(topic, value, key=b"%d" % number, partition=number % KAFKA_PARTITIONS)
        producer.poll(0)
    producer.flush()
    return first + count


def _freshet(broker: ForeignBroker, topic: str, place: Path, trigger: str) -> Callable[[], None]:
    document = {
        "name": topic,
        "sources": [
            {
                "kafka": {
                    "kafka.bootstrap.servers": broker.bootstrap_servers,
                    "subscribe": topic,
                    "startingOffsets": "earliest",
                },
                "format": "debezium-json",
            }
        ],
        "table": {
            "warehouse": f"file://{place}",
            "name": "bench.t",
            "columns": COLUMNS,
            "primary_key": ["id"],
            "options": {"bucket": 2},
        },
        "trigger": {"processing_time": trigger},
        "checkpoint": f"file://{place}/_checkpoint",
        "dead_letters": "bench.dead_letters",
    }
    file = place / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    with file.with_suffix(".log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "freshet.pipeline.commands.command_line", "run", str(file), "--progress", "json"],
            stdout=log,
            stderr=log,
        )

    def stop() -> None:
        child.send_signal(signal.SIGTERM)
        if child.wait(120):
            raise PeerError(f"freshet run ended with {child.returncode}; its output is in {file.with_suffix('.log')}")

    return stop


def _batches(place: Path) -> str:
    """The second half of the batches of a run: the median of their times and of their records."""
    lines = [json.loads(line) for line in (place / "pipeline.log").read_text().splitlines() if line.startswith("{")]
    late = [line for line in lines[len(lines) // 2 :] if line["records"]]
    times, records = ([line[name] for line in late] for name in ("batch_ms", "records"))
    return f"a batch of {np.median(records):.0f} records takes {np.median(times):.0f} ms"


def _flink(broker: ForeignBroker, topic: str, place: Path, checkpoint_ms: int, logs: Path) -> Callable[[], None]:
    peer = flink(logs)
    columns = ";".join(f"{name}:{kind}" for name, kind in COLUMNS.items())
    words = (
        f"boot={broker.bootstrap_servers}", f"topic={topic}", f"warehouse={place}", f"columns={columns}", "key=id",
        f"checkpoint_ms={checkpoint_ms}",
    )  # fmt: skip
    starting = threading.Thread(target=peer.ask, args=("start", *words))
    starting.start()

    def stop() -> None:
        starting.join()
        peer.ask("stop")
        peer.close()

    return stop


def _latencies(place: Path, numbers: range) -> np.ndarray:
    """Seconds from event to commit of these records; raises `PeerError` if one is in no snapshot."""
    table = Catalog(place).table("bench.t")
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
        raise PeerError(f"{int((committed[wanted] < 0).sum())} records are in no snapshot of {place}")
    return committed[wanted] / 1e3 - events[wanted] / 1e6
