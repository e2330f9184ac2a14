"""`freshet run` killed (SIGKILL) at random and started again, over a real broker: every record once.

Two pipelines of one run read a topic: into a table with a key, a changelog and background compaction, and into one
without a key, where a record that is written twice would show. Each killed run gets more records first, so that work is
left for all of them. The driver alone is killed, or its whole process group with the Java process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer

from freshet import Catalog, Table
from freshet.jobs.demo.child_process import start_child, tail
from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.storage.model.snapshot import CommitKind
from tests.kit.changelog_files import changelog, folded
from tests.kit.versitygw import VersityGateway
from tests.soak.counts import KILLED_RUNS, chance_of

pytestmark = [pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
KEYS = 300
RECORDS = 400
"""That each run finds when it starts; the last one finds no new ones."""
BATCH = 40
BROKEN_EVERY = 100
WAIT_S = 300
NAMES = ("keyed", "listed")

PIPELINE = """
name: {name}
sources:
  - kafka: {{kafka.bootstrap.servers: "{servers}", subscribe: {topic}, startingOffsets: earliest,
             maxOffsetsPerTrigger: {batch}}}
    format: json
table:
  warehouse: "{warehouse}"
  name: shop.{name}
  columns: {{id: BIGINT, number: BIGINT}}
  {key}
compaction: {{background: true, batch_budget: 0 s}}
trigger: {{available_now: true}}
checkpoint: "{folder}/checkpoints/{name}"
dead_letters: shop.{name}_dead
"""
KEPT = "snapshot.num-retained.min: 5000, snapshot.num-retained.max: 5000"
TABLES = {
    "keyed": f"primary_key: [id]\n  options: {{bucket: 2, changelog-producer: lookup, {KEPT}}}",
    "listed": f"options: {{{KEPT}}}",
}


class Runs:
    """A topic, two pipelines, and the processes that run them."""

    def __init__(self, folder: Path, broker: ForeignBroker, warehouse: str, options: Mapping[str, str]) -> None:
        self._folder = folder
        self._broker = broker
        self._topic = f"killed-{os.getpid()}-{time.monotonic_ns()}"
        self._catalog = Catalog(warehouse, options=dict(options))
        self._environment = {**os.environ, "FRESHET_CATALOG_OPTIONS": json.dumps(dict(options))}
        self.records: list[dict[str, Any]] = []
        broker.create_topic(self._topic, kafka_partitions=2)
        for name, key in TABLES.items():
            text = PIPELINE.format(
                name=name,
                servers=broker.bootstrap_servers,
                topic=self._topic,
                batch=BATCH,
                warehouse=warehouse,
                key=key,
                folder=folder,
            )
            (folder / f"{name}.yaml").write_text(text)

    def table(self, name: str) -> Table:
        return self._catalog.table(f"shop.{name}")

    def produce(self, count: int) -> None:
        """Records of one key are in one partition, so the newest number of a key is the one of the last record."""
        first = len(self.records)
        new = [{"id": (number * 7) % KEYS, "number": number} for number in range(first, first + count)]
        producer = Producer({"bootstrap.servers": self._broker.bootstrap_servers})
        for each in new:
            producer.produce(self._topic, _value(each), partition=each["id"] % 2)
        assert producer.flush(WAIT_S) == 0
        self.records += new

    def start(self) -> tuple[subprocess.Popen[Any], Path]:
        log = self._folder / f"run-{time.monotonic_ns()}.txt"
        files = [str(self._folder / f"{name}.yaml") for name in NAMES]
        command = [sys.executable, "-m", "freshet.pipeline.commands.command_line", "run", *files]
        with log.open("wb") as output:
            return start_child(command, log=output, env=self._environment), log

    def kill_at_random(self, chance: Random) -> None:
        """Amid the batches; one time in four before the first of them."""
        before = self._newest()
        child, log = self.start()
        wanted = 0 if chance.random() < 0.25 else chance.randint(1, RECORDS // BATCH)
        deadline = time.monotonic() + WAIT_S
        while wanted and self._newest() < before + wanted and child.poll() is None:
            assert time.monotonic() < deadline, tail(log)
            time.sleep(0.05)
        time.sleep(chance.random() * (1 if wanted else 8))
        kill = os.killpg if chance.random() < 0.5 else os.kill
        kill(child.pid, signal.SIGKILL)
        assert child.wait(60) == -signal.SIGKILL, tail(log)

    def run_to_the_end(self) -> None:
        child, log = self.start()
        assert child.wait(WAIT_S) == 0, tail(log)

    def _newest(self) -> int:
        name = "shop.listed"
        newest = self._catalog.table(name).latest_snapshot() if self._catalog.has_table(name) else None
        return 0 if newest is None else newest.id


def _value(record: Mapping[str, Any]) -> str:
    is_broken = record["number"] % BROKEN_EVERY == 0
    return json.dumps({**record, "number": "no number"} if is_broken else record)


@pytest.mark.parametrize("where", ["local", "s3"])
def test_killed_runs_write_every_record_once(
    tmp_path: Path, kafka_broker: ForeignBroker, request: pytest.FixtureRequest, where: str
) -> None:
    chance = chance_of("killed runs", where)
    warehouse, options = str(tmp_path / "warehouse"), {}
    if where == "s3":
        gateway: VersityGateway = request.getfixturevalue("versity")
        place = gateway.new_bucket()
        warehouse, options = f"{place.root}/warehouse", place.options
    runs = Runs(tmp_path, kafka_broker, warehouse, options)
    for _ in range(KILLED_RUNS.now()):
        runs.produce(RECORDS)
        runs.kill_at_random(chance)
    runs.run_to_the_end()
    _check(runs)


def _check(runs: Runs) -> None:
    good = [each for each in runs.records if each["number"] % BROKEN_EVERY]
    broken = [each["number"] for each in runs.records if not each["number"] % BROKEN_EVERY]
    listed = Counter(runs.table("listed").scan().to_arrow()["number"].to_pylist())
    assert listed == Counter(each["number"] for each in good)
    keyed = {row["id"]: row["number"] for row in runs.table("keyed").scan().to_arrow().to_pylist()}
    assert keyed == {each["id"]: each["number"] for each in good}
    emitted = folded(changelog(runs.table("keyed")).values(), ["id"], is_strict=True)
    assert {row["id"]: row["number"] for row in emitted.values()} == keyed
    for name in NAMES:
        table, dead = runs.table(name), runs.table(f"{name}_dead").scan().to_arrow()
        assert dead.num_rows == len(broken), name
        places = [(row["kafka_partition"], row["log_offset"]) for row in dead.to_pylist()]
        assert len(set(places)) == len(places), name
        batches = [
            snapshot.commit_identifier
            for snapshot in table.snapshots()
            if snapshot.commit_user == name and snapshot.commit_kind is CommitKind.APPEND
        ]
        assert batches == list(range(len(batches))), f"{name}: {batches}"
