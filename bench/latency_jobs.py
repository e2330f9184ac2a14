"""Jobs whose latency is measured, `freshet run` and Flink, and the steady stream of records that they read."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import yaml
from confluent_kafka import Producer

from bench.cdc_records import KAFKA_PARTITIONS
from bench.flink import flink
from bench.peers import PeerError
from freshet.jobs.demo.kafka_broker import ForeignBroker

RATE: Final = 1000
"""Records per second."""

COLUMNS: Final = {"id": "BIGINT", "event_us": "BIGINT", "status": "STRING", "note": "STRING"}
"""`event_us` is when a record was handed over, `note` its number with zeros before it."""

TRIGGERS: Final = {"as fast as possible": "0 seconds", "1 second": "1 second"}
FLINK_CHECKPOINTS_MS: Final = (200, 1000)
DISCOVERY_MS: Final = 100
"""How often a reader of snapshots looks for the next one, here and on Flink."""


@dataclass
class Load:
    """Records at a steady `rate` a second into a topic: inserts, or with `key_count` upserts of so many keys in turn.

    All are op c, which replaces a row that is there: of an update Flink demands the row before.
    """

    broker: ForeignBroker
    topic: str
    key_count: int | None = None
    rate: int = RATE

    def produce(self, count: int | None, first: int, ended: threading.Event | None = None) -> int:
        """Sends so many records, or until `ended`; returns the number after the last."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "linger.ms": 1})
        started = time.perf_counter()
        number = first
        while count is None or number < first + count:
            ahead = (number - first) / self.rate - (time.perf_counter() - started)
            if ahead > 0.002:
                time.sleep(ahead)
                if ended is not None and ended.is_set():
                    break
            key = number if self.key_count is None else number % self.key_count
            row = f'{{"id":{key},"event_us":{time.time_ns() // 1000},"status":"new","note":"{number:060}"}}'
            value = f'{{"before":null,"after":{row},"source":{{"lsn":{number}}},"op":"c","ts_ms":{number}}}'
            producer.produce(self.topic, value, key=b"%d" % key, partition=key % KAFKA_PARTITIONS)
            producer.poll(0)
            number += 1
        producer.flush()
        return number


def start_freshet(
    broker: ForeignBroker,
    topic: str,
    place: Path,
    trigger: str,
    options: Mapping[str, object],
    *,
    warehouse: str | None = None,
    catalog: Mapping[str, str] | None = None,
    checkpoint: str | None = None,
    engine: str = "spark",
) -> Callable[[], None]:
    """`freshet run` in a process of its own; returns what stops it. Warehouse and checkpoint are in the folder unless
    they are given."""
    document: dict[str, object] = {
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
            "warehouse": warehouse or f"file://{place}",
            "name": "bench.t",
            "columns": COLUMNS,
            "primary_key": ["id"],
            "options": {"bucket": 2, **options},
        },
        "trigger": {"processing_time": trigger},
        "checkpoint": checkpoint or f"file://{place}/_checkpoint",
        "dead_letters": "bench.dead_letters",
    }
    if catalog is not None:
        document["catalog"] = dict(catalog)
    file = place / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    command = [sys.executable, "-m", "freshet.pipeline.commands.command_line", "run", str(file), "--progress", "json"]
    with file.with_suffix(".log").open("wb") as log:
        child = subprocess.Popen([*command, "--on", engine], stdout=log, stderr=log)

    def stop() -> None:
        child.send_signal(signal.SIGTERM)
        if child.wait(120):
            raise PeerError(f"freshet run ended with {child.returncode}; its output is in {file.with_suffix('.log')}")

    return stop


def batches_text(place: Path, *, with_steps: bool = False) -> str:
    """The second half of the batches of a run: the median of their times and of their records, and of their steps."""
    lines = [json.loads(line) for line in (place / "pipeline.log").read_text().splitlines() if line.startswith("{")]
    late = [line for line in lines[len(lines) // 2 :] if line["records"]]
    times, records = ([line[name] for line in late] for name in ("batch_ms", "records"))
    text = f"a batch of {np.median(records):.0f} records takes {np.median(times):.0f} ms"
    if with_steps:
        for who in ("spark", "driver", "task"):
            steps = {
                step: np.median([line[f"{who}_ms"].get(step, 0) for line in late]) for step in late[-1][f"{who}_ms"]
            }
            parts = (f"{step} {taken:.0f}" for step, taken in steps.items() if taken >= 1)
            text += f"; {who} (ms): {', '.join(parts)}"
    return text


class FlinkJob:
    """The same job on Flink, in a JVM of its own, and at the same time a streaming reader of its table."""

    def __init__(
        self,
        broker: ForeignBroker,
        topic: str,
        place: Path,
        checkpoint_ms: int,
        logs: Path,
        table_options: Mapping[str, object] | None = None,
    ) -> None:
        """Starts without waiting; a reader of the table takes two more slots."""
        self._place = place
        self._peer = flink(logs, slots=2 if table_options is None else 4)
        columns = ";".join(f"{name}:{kind}" for name, kind in COLUMNS.items())
        options = ";".join(f"{key}={value}" for key, value in (table_options or {}).items())
        words = (
            f"boot={broker.bootstrap_servers}", f"topic={topic}", f"warehouse={place}", f"columns={columns}", "key=id",
            f"checkpoint_ms={checkpoint_ms}", f"options={options}",
        )  # fmt: skip
        self._starting = threading.Thread(target=self._peer.ask, args=("start", *words))
        self._starting.start()

    def follow(self) -> None:
        """Begins a streaming read of the table, with what comes next."""
        self._starting.join()
        self._peer.ask("follow", f"warehouse={self._place}", f"discovery_ms={DISCOVERY_MS}")

    def unfollow(self, out: Path) -> None:
        """Ends it; `out` gets a line of CSV per row that was seen: note, event_us, seen_us."""
        self._peer.ask("unfollow", f"out={out}")

    def stop(self) -> None:
        """Ends the job and the JVM."""
        self._starting.join()
        self._peer.ask("stop")
        self._peer.close()
