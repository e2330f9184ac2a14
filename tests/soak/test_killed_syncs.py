"""`freshet run` of a database of twenty tables, killed (SIGKILL) at random and started again, over a real broker.

Midway columns are added and widened. In the end each table equals its source: no row is lost or there twice, and no
value is NULL that was not.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer

from freshet import Catalog
from freshet.jobs.demo.child_process import start_child, tail
from freshet.jobs.demo.kafka_broker import ForeignBroker
from tests.kit.source_database import Row, SourceTable
from tests.soak.counts import KILLED_SYNCS, chance_of

pytestmark = [pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(3600)]

TABLES = 20
RECORDS = 200
KEYS = 60
WAIT_S = 300


class Database:
    """Twenty tables, their topics, and the pipeline."""

    def __init__(self, folder: Path, broker: ForeignBroker, chance: Random) -> None:
        self._folder, self._chance = folder, chance
        self._producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})
        self._db = f"killed{os.getpid()}x{time.monotonic_ns()}"
        self.tables = [
            SourceTable(self._db, "public", f"t{number:02}", {"id": "int", "n": "int", "text": "text"})
            for number in range(TABLES)
        ]
        for table in self.tables:
            broker.create_topic(table.topic, kafka_partitions=2)
        self.file = folder / "database.yaml"
        kafka = {
            "kafka.bootstrap.servers": broker.bootstrap_servers, "subscribePattern": f"{self._db}[.].*",
            "startingOffsets": "earliest", "maxOffsetsPerTrigger": RECORDS * 2,
        }  # fmt: skip
        self.file.write_text(
            f"""
name: database
sync:
  source: {{kafka: {json.dumps(kafka)}, format: debezium-json, read: python}}
  tables: [{{from: '{self._db}.public.(.*)', to: 'lake.$1', options: {{bucket: 2}}}}]
warehouse: "{folder}/w"
checkpoint: "{folder}/c"
dead_letters: lake.dead
trigger: {{available_now: true}}
"""
        )

    def change(self) -> None:
        for _ in range(RECORDS):
            table = self._chance.choice(self.tables[: 4 if self._chance.random() < 0.6 else TABLES])
            key = self._chance.randrange(KEYS)
            if key in table.rows and self._chance.random() < 0.2:
                self._send(table, table.delete(key))
                continue
            values = {"int": self._chance.randrange(1000), "bigint": self._chance.getrandbits(50)}
            row: Row = {name: values.get(kind, f"row {key}") for name, kind in table.columns.items()}
            self._send(table, table.upsert({**row, "id": key}))
        self._producer.flush(60)

    def alter(self) -> None:
        for table in self._chance.sample(self.tables, 8):
            table.add_column("more", "text")
            self._send(table, table.upsert({"id": KEYS, "n": 1, "text": None, "more": "new"}))
        for table in self._chance.sample(self.tables, 8):
            table.columns["n"] = "bigint"

    def run(self, *, kill_after_s: float | None) -> None:
        log = self._folder / "log.txt"
        command = [sys.executable, "-m", "freshet.pipeline.commands.command_line", "run", str(self.file)]
        with log.open("ab") as file:
            child = start_child(command, log=file)
        try:
            child.wait(timeout=WAIT_S if kill_after_s is None else kill_after_s)
        except subprocess.TimeoutExpired:
            assert kill_after_s is not None, tail(log)
            os.killpg(child.pid, signal.SIGKILL)
            child.wait(60)
        else:
            assert child.returncode == 0, tail(log)

    def assert_equal(self) -> None:
        catalog = Catalog(str(self._folder / "w"))
        for table in self.tables:
            found = catalog.table(f"lake.{table.name}").scan().to_arrow().to_pylist()
            assert len(found) == len(table.rows), table.name
            assert {row["id"]: row for row in found} == table.rows, table.name
        assert not catalog.table("lake.dead").scan().to_arrow().num_rows

    def _send(self, table: SourceTable, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        for key, value in records:
            self._producer.produce(table.topic, value, key=key)


def test_killed_runs_lose_and_double_nothing(tmp_path: Path, kafka_broker: ForeignBroker) -> None:
    rounds = KILLED_SYNCS.now()
    chance = chance_of("killed syncs")
    database = Database(tmp_path, kafka_broker, chance)
    for number in range(rounds):
        database.change()
        if number == rounds // 2:
            database.alter()
            database.change()
        database.run(kill_after_s=chance.uniform(8, 25))
    database.run(kill_after_s=None)
    database.run(kill_after_s=None)
    database.assert_equal()
