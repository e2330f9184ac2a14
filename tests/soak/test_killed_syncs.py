"""`freshet run` of a database of twenty tables, killed (SIGKILL) at random and started again, over a real broker.

Rows change between the runs and under them; so do columns, which are added and widened, and tables appear. In the end
each table equals its source: no row is lost or there twice, and no value is NULL that was not.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
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
TABLES_MAX = 26
RECORDS = 200
KEYS = 60
WAIT_S = 300
KILL_AFTER_S = {"spark": (8, 25), "local": (0.5, 6)}
STEP_S = 0.3
"""Between two changes under a run."""
WIDER = {"int": "bigint"}


class Database:
    """Twenty tables, their topics, and the pipeline."""

    def __init__(self, folder: Path, broker: ForeignBroker, chance: Random, engines: Sequence[str]) -> None:
        self._folder, self._chance, self._engines = folder, chance, engines
        self._producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})
        self._broker = broker
        self._db = f"killed{os.getpid()}x{time.monotonic_ns()}"
        self.tables: list[SourceTable] = []
        for _ in range(TABLES):
            self.add_table()

    def add_table(self) -> None:
        name = f"t{len(self.tables):02}"
        table = SourceTable(self._db, "public", name, {"id": "int", "n": "int", "text": "text"})
        self._broker.create_topic(table.topic, kafka_partitions=2)
        self.tables.append(table)
        self._send(table, table.upsert({"id": 0, "n": 0, "text": None}))

    def _file(self, trigger: str) -> Path:
        kafka = {
            "kafka.bootstrap.servers": self._broker.bootstrap_servers, "subscribePattern": f"{self._db}[.].*",
            "startingOffsets": "earliest", "maxOffsetsPerTrigger": RECORDS * 2, "kafka.metadata.max.age.ms": 500,
        }  # fmt: skip
        folder, path = self._folder, self._folder / "database.yaml"
        path.write_text(
            f"""
name: database
sync:
  source: {{kafka: {json.dumps(kafka)}, format: debezium-json, read: python}}
  tables: [{{from: '{self._db}.public.(.*)', to: 'lake.$1', options: {{bucket: 2}}}}]
warehouse: "{folder}/w"
checkpoint: "{folder}/c"
dead_letters: lake.dead
trigger: {trigger}
"""
        )
        return path

    def change(self, records: int = RECORDS) -> None:
        for _ in range(records):
            table = self._chance.choice(self.tables[: 4 if self._chance.random() < 0.6 else len(self.tables)])
            key = self._chance.randrange(KEYS)
            if key in table.rows and self._chance.random() < 0.2:
                self._send(table, table.delete(key))
                continue
            values = {"int": self._chance.randrange(1000), "bigint": self._chance.getrandbits(50)}
            row: Row = {name: values.get(kind, f"row {key}") for name, kind in table.columns.items()}
            self._send(table, table.upsert({**row, "id": key}))
        self._producer.flush(60)

    def alter(self, tables: int) -> None:
        """Some get a column more, others a wider one; the rows that follow say so."""
        for table in self._chance.sample(self.tables, tables):
            table.add_column(f"more{len(table.columns)}", self._chance.choice(["text", "int"]))
            self._send(table, table.upsert({**dict.fromkeys(table.columns), "id": KEYS, "n": 1}))
        for table in self._chance.sample(self.tables, tables):
            narrow = [name for name, kind in table.columns.items() if kind in WIDER and name != table.key]
            if narrow:
                name = self._chance.choice(narrow)
                table.columns[name] = WIDER[table.columns[name]]

    def anything(self) -> None:
        """What may happen at any moment."""
        what = self._chance.random()
        if what < 0.2:
            self.alter(2)
        elif what < 0.3 and len(self.tables) < TABLES_MAX:
            self.add_table()
        self.change(RECORDS // 10)

    def run(self, *, is_killed: bool) -> None:
        """To the end of what is there; or while the database changes, until it is killed."""
        log, engine = self._folder / "log.txt", self._chance.choice(self._engines)
        file = self._file("{processing_time: 100 ms}" if is_killed else "{available_now: true}")
        command = [sys.executable, "-m", "freshet.pipeline.commands.command_line", "run", str(file), "--on", engine]
        with log.open("ab") as output:
            child = start_child(command, log=output)
        if not is_killed:
            assert child.wait(WAIT_S) == 0, tail(log)
            return
        until = time.monotonic() + self._chance.uniform(*KILL_AFTER_S[engine])
        while (left := until - time.monotonic()) > 0:
            with suppress(subprocess.TimeoutExpired):
                child.wait(min(STEP_S, left))
            assert child.poll() is None, tail(log)
            self.anything()
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(300)

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


@pytest.mark.parametrize("engines", [["spark"], ["local"], ["spark", "local"]])
def test_killed_runs_lose_and_double_nothing(tmp_path: Path, kafka_broker: ForeignBroker, engines: list[str]) -> None:
    rounds = KILLED_SYNCS.now()
    chance = chance_of("killed syncs", *engines)
    database = Database(tmp_path, kafka_broker, chance, engines)
    for number in range(rounds):
        database.change()
        if number in (0, rounds // 2):
            database.alter(8)
            database.add_table()
            database.change()
        database.run(is_killed=True)
    for _ in ("what was left", "nothing"):
        database.run(is_killed=False)
    database.assert_equal()
