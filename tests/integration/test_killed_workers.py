"""Workers of a run without Spark that are killed (SIGKILL) late, over a real broker: each record is applied once.

The table has sums, so that a record that is applied twice shows, a changelog and a log; it lies on a disk or in S3.
Batches are small, which one worker does, or large, which go between workers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from freshet import Catalog
from freshet.jobs.demo.child_process import tail
from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.pipeline.local.job import SMALL_RECORDS
from freshet.storage.model.snapshot import CommitKind
from tests.kit.changelog_files import changelog, folded
from tests.kit.memory_watch import children_of_all
from tests.kit.s3_server import S3Place
from tests.logstore.both_readers import BothReaders
from tests.soak.counts import KILLED_WORKERS, chance_of

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
KILLS = 10
BETWEEN = 4
"""Batches from one kill to the next."""
KEYS = 500
BATCHES = {"small": 20, "large": SMALL_RECORDS + 1000}
"""Records of each."""
PLACES = [("a disk", "small"), ("a disk", "large"), ("s3", "small"), ("s3", "large")]
PIPELINE = """
name: sums
sources:
  - kafka: {{kafka.bootstrap.servers: "{servers}", subscribe: {topic}, startingOffsets: earliest,
             maxOffsetsPerTrigger: {batch}}}
    format: json
table:
  warehouse: "{warehouse}"
  name: shop.sums
  columns: {{id: BIGINT, n: BIGINT, count: BIGINT}}
  primary_key: [id]
  options: {{bucket: 2, merge-engine: aggregation, fields.n.aggregate-function: sum,
             fields.count.aggregate-function: sum, changelog-producer: lookup, log.system: kafka,
             kafka.topic: log-{topic}, kafka.bootstrap.servers: "{servers}",
             snapshot.num-retained.min: 5000, snapshot.num-retained.max: 5000}}
trigger: {{available_now: true}}
checkpoint: "{folder}/checkpoint"
"""


class Run:
    """A topic that is full, and the run that reads it."""

    def __init__(
        self, folder: Path, broker: ForeignBroker, warehouse: str, options: Mapping[str, str], batch: int, batches: int
    ) -> None:
        self._folder, self._topic = folder, f"killed-workers-{uuid4()}"
        broker.create_topic(self._topic, kafka_partitions=2)
        servers = broker.bootstrap_servers
        self.wanted = _produce(servers, self._topic, batch * batches)
        self.file = folder / "sums.yaml"
        self.file.write_text(
            PIPELINE.format(servers=servers, topic=self._topic, warehouse=warehouse, folder=folder, batch=batch)
        )
        self._environment = {**os.environ, "FRESHET_CATALOG_OPTIONS": json.dumps(dict(options))}
        self._catalog = Catalog(warehouse, options=dict(options))
        self.log = folder / "log.txt"

    def kill_workers(self, first: int, chance: Random) -> None:
        """Runs to the end; kills workers amid batches from a number on."""
        command = [sys.executable, "-m", "freshet", "run", str(self.file), "--on", "local", "--workers", "2"]
        left = [first + number * BETWEEN for number in range(KILLS)]
        with self.log.open("wb") as log:
            child = subprocess.Popen(
                [*command, "--progress", "json"],
                cwd=ROOT, env=self._environment, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
            try:
                for number in _batches(child):
                    if left and number >= left[0]:
                        del left[0]
                        time.sleep(chance.random() * 0.05)
                        workers = _workers_of(child.pid)
                        for pid in workers if chance.random() < 0.5 else chance.sample(workers, 1):
                            with suppress(ProcessLookupError):
                                os.kill(pid, signal.SIGKILL)
                assert child.wait(300) == 0, tail(self.log)
            finally:
                child.kill()
                child.wait()
        assert not left
        assert "is run again from its start" in self.log.read_text()

    def check(self) -> None:
        table = self._catalog.table("shop.sums")
        held = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
        assert held == self.wanted
        emitted = folded(changelog(table).values(), ["id"], is_strict=True)
        assert {row["id"]: dict(row) for row in emitted.values()} == held
        batches = [each.commit_identifier for each in table.snapshots() if each.commit_kind is CommitKind.APPEND]
        assert batches == list(range(len(batches)))
        with BothReaders(table) as readers:
            readers.check()


def _produce(servers: str, topic: str, count: int) -> dict[int, dict[str, int]]:
    """Fills the topic; gives the rows of the table. Each other record is in the other partition, so that batches have
    as many as they may."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "queue.buffering.max.messages": count + 1})
    wanted: dict[int, dict[str, int]] = {}
    for number in range(count):
        key = number * 7 % KEYS
        producer.produce(topic, b'{"id": %d, "n": %d, "count": 1}' % (key, number), partition=number % 2)
        row = wanted.setdefault(key, {"id": key, "n": 0, "count": 0})
        row["n"] += number
        row["count"] += 1
    assert producer.flush(300) == 0
    return wanted


def _batches(child: subprocess.Popen[str]) -> Iterator[int]:
    """The batches as they are done."""
    assert child.stdout is not None
    for line in child.stdout:
        facts: dict[str, Any] = json.loads(line)
        if "applied" in facts:
            yield facts["batch"]


def _workers_of(driver: int) -> list[int]:
    """The workers of a run: they are forked by its template."""
    children = children_of_all()
    return [worker for template in children[driver] for worker in children.get(template, ())]


def _killed(
    folder: Path, broker: ForeignBroker, request: pytest.FixtureRequest, where: str, size: str, first: int
) -> None:
    warehouse, options = str(folder / "warehouse"), {}
    if where == "s3":
        place: S3Place = request.getfixturevalue("versitygw")
        warehouse, options = f"{place.root}/warehouse", place.options
    run = Run(folder, broker, warehouse, options, BATCHES[size], first + (KILLS + 1) * BETWEEN)
    run.kill_workers(first, chance_of("killed workers", where, size))
    run.check()


@pytest.mark.slow
@pytest.mark.parametrize(("where", "size"), PLACES)
def test_workers_are_killed(
    tmp_path: Path, kafka_broker: ForeignBroker, request: pytest.FixtureRequest, where: str, size: str
) -> None:
    _killed(tmp_path, kafka_broker, request, where, size, 12)


@pytest.mark.soak
@pytest.mark.parametrize(("where", "size"), PLACES)
def test_workers_are_killed_late(
    tmp_path: Path, kafka_broker: ForeignBroker, request: pytest.FixtureRequest, where: str, size: str
) -> None:
    """A large batch counts for ten small ones."""
    batches = KILLED_WORKERS.now()
    _killed(tmp_path, kafka_broker, request, where, size, batches if size == "small" else max(1, batches // 10))
