"""`freshet run` killed (SIGKILL) at random and started again, over a real broker: every record once.

With both engines, each run is of one or the other: either goes on with the checkpoint that the other left.
Three pipelines of one run read a topic: into a table with a key, a changelog and background compaction, into one of
that kind with a log, which readers of both isolations follow meanwhile, and into one without a key, where a record that
is written twice would show. Each killed run gets more records first, so that work is left for all of them. The driver
alone is killed, or its whole process group with the Java process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
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
from tests.logstore.both_readers import BothReaders
from tests.soak.counts import KILLED_RUNS, chance_of

pytestmark = [pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
KEYS = 300
RECORDS = 400
"""That each run finds when it starts; the last one finds no new ones."""
BATCH = 40
BROKEN_EVERY = 100
WAIT_S = 300
LATE_S = {"spark": (1, 8), "local": (0.2, 2)}
"""The longest pause before a kill: amid the batches, and before the first of them."""
NAMES = ("keyed", "listed", "logged")

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
    "logged": f"primary_key: [id]\n  options: {{bucket: 2, changelog-producer: lookup, {KEPT}, log.system: kafka, "
    "kafka.topic: 'log-TOPIC', kafka.bootstrap.servers: 'SERVERS'}",
}


class Runs:
    """A topic, two pipelines, and the processes that run them."""

    def __init__(
        self,
        folder: Path,
        broker: ForeignBroker,
        warehouse: str,
        options: Mapping[str, str],
        engines: Sequence[str],
        chance: Random,
    ) -> None:
        self._folder = folder
        self._engines = engines
        self._chance = chance
        self._broker = broker
        self._topic = f"killed-{os.getpid()}-{time.monotonic_ns()}"
        self._catalog = Catalog(warehouse, options=dict(options))
        self._environment = {**os.environ, "FRESHET_CATALOG_OPTIONS": json.dumps(dict(options))}
        self._readers: BothReaders | None = None
        self.records: list[dict[str, Any]] = []
        broker.create_topic(self._topic, kafka_partitions=2)
        for name, key in TABLES.items():
            text = PIPELINE.format(
                name=name,
                servers=broker.bootstrap_servers,
                topic=self._topic,
                batch=BATCH,
                warehouse=warehouse,
                key=key.replace("TOPIC", self._topic).replace("SERVERS", broker.bootstrap_servers),
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

    def start(self, engine: str) -> tuple[subprocess.Popen[Any], Path]:
        log = self._folder / f"run-{time.monotonic_ns()}.txt"
        files = [str(self._folder / f"{name}.yaml") for name in NAMES]
        command = [sys.executable, "-m", "freshet.pipeline.commands.command_line", "run", *files, "--on", engine]
        with log.open("wb") as output:
            return start_child(command, log=output, env=self._environment), log

    def kill_at_random(self) -> None:
        """Amid the batches; one time in four before the first of them."""
        chance = self._chance
        before, engine = self._newest(), chance.choice(self._engines)
        child, log = self.start(engine)
        wanted = 0 if chance.random() < 0.25 else chance.randint(1, RECORDS // BATCH)
        deadline = time.monotonic() + WAIT_S
        while wanted and self._newest() < before + wanted and child.poll() is None:
            assert time.monotonic() < deadline, tail(log)
            time.sleep(0.05)
            if (readers := self.readers()) is not None:
                readers.read()
        time.sleep(chance.random() * LATE_S[engine][not wanted])
        kill = os.killpg if chance.random() < 0.5 else os.kill
        try:
            kill(child.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has read everything meanwhile
            assert child.wait(300) == 0, tail(log)
        assert child.wait(300) in (0, -signal.SIGKILL), tail(log)

    def readers(self) -> BothReaders | None:
        """Of the log; None as long as there is nothing to read."""
        if self._readers is None and self._catalog.has_table("shop.logged"):
            table = self.table("logged")
            self._readers = None if table.latest_snapshot() is None else BothReaders(table)
        return self._readers

    def run_to_the_end(self) -> None:
        child, log = self.start(self._chance.choice(self._engines))
        assert child.wait(WAIT_S) == 0, tail(log)

    def _newest(self) -> int:
        name = "shop.listed"
        newest = self._catalog.table(name).latest_snapshot() if self._catalog.has_table(name) else None
        return 0 if newest is None else newest.id


def _value(record: Mapping[str, Any]) -> str:
    is_broken = record["number"] % BROKEN_EVERY == 0
    return json.dumps({**record, "number": "no number"} if is_broken else record)


@pytest.mark.parametrize(
    ("where", "engines"),
    [("a disk", ["spark"]), ("a disk", ["local"]), ("a disk", ["spark", "local"]), ("s3", ["spark", "local"])],
)
def test_killed_runs_write_every_record_once(
    tmp_path: Path, kafka_broker: ForeignBroker, request: pytest.FixtureRequest, where: str, engines: list[str]
) -> None:
    chance = chance_of("killed runs", where, *engines)
    warehouse, options = str(tmp_path / "warehouse"), {}
    if where == "s3":
        gateway: VersityGateway = request.getfixturevalue("versity")
        place = gateway.new_bucket()
        warehouse, options = f"{place.root}/warehouse", place.options
    runs = Runs(tmp_path, kafka_broker, warehouse, options, engines, chance)
    for _ in range(KILLED_RUNS.now()):
        runs.produce(RECORDS)
        runs.kill_at_random()
    runs.run_to_the_end()
    _check(runs)
    readers = runs.readers()
    assert readers is not None
    with readers:
        readers.check()


def _check(runs: Runs) -> None:
    good = [each for each in runs.records if each["number"] % BROKEN_EVERY]
    broken = [each["number"] for each in runs.records if not each["number"] % BROKEN_EVERY]
    listed = Counter(runs.table("listed").scan().to_arrow()["number"].to_pylist())
    assert listed == Counter(each["number"] for each in good)
    for name in ("keyed", "logged"):
        keyed = {row["id"]: row["number"] for row in runs.table(name).scan().to_arrow().to_pylist()}
        assert keyed == {each["id"]: each["number"] for each in good}, name
        emitted = folded(changelog(runs.table(name)).values(), ["id"], is_strict=True)
        assert {row["id"]: row["number"] for row in emitted.values()} == keyed, name
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
