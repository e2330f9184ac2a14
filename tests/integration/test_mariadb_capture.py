"""A real MariaDB, read by a real Debezium, into a lake that follows it: every table equals its source in the end.

Meanwhile columns are added and become wider, a table is created, one is truncated, and both Debezium
and the writer are killed. What was sent is then read once more, in one batch, by another pipeline.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from freshet import Catalog
from freshet.jobs.demo.child_process import start_child, stop_child, tail
from freshet.jobs.demo.database_demo import differences
from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.jobs.demo.kafka_connect import KafkaConnect
from freshet.jobs.demo.paimon_reader import read_by_paimon
from tests.integration.mariadb_shop import END, JARS, ROUNDS, ROWS, TABLES, WORK, connector, rows_of
from tests.kit.mariadb_server import MariadbServer

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.judge, pytest.mark.slow]

WAIT_S = 240
NAMES = ("every_type", "pairs", "events", "people", "totals", "durations", "later")

PIPELINE = """
name: shop
sync:
  source:
    kafka: {{kafka.bootstrap.servers: "{servers}", subscribePattern: "{prefix}[.].*", startingOffsets: earliest,
             kafka.metadata.max.age.ms: 500}}
    format: debezium-json
    on_truncate: apply
  tables:
    - {{from: "shop.done", to: "lake.done"}}
    - {{from: "shop.events", to: "lake.events", without_key: append, options: {{bucket: -1}}}}
    - {{from: "shop.(.*)", to: "lake.$1", options: {{bucket: 2}}}}
warehouse: "{folder}/w"
checkpoint: "{folder}/c"
dead_letters: lake.dead_letters
trigger: {trigger}
spark: {{spark.driver.defaultJavaOptions: "-XX:TieredStopAtLevel=1"}}
"""


class Lake:
    """A warehouse and the pipeline that fills it, run by a process of its own."""

    def __init__(self, folder: Path, broker: ForeignBroker, prefix: str, trigger: str) -> None:
        folder.mkdir()
        self.folder = folder
        self.catalog = Catalog(str(folder / "w"))
        self._log = folder / "log"
        self._file = folder / "shop.yaml"
        self._file.write_text(
            PIPELINE.format(servers=broker.bootstrap_servers, prefix=prefix, folder=folder, trigger=trigger)
        )
        self._child: subprocess.Popen[Any] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "freshet.pipeline.commands.command_line", "run", str(self._file)]
        with self._log.open("ab") as log:
            self._child = start_child(command, log=log)

    def kill(self) -> None:
        assert self._child is not None
        os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait(60)

    def stop(self) -> None:
        if self._child is not None:
            stop_child(self._child)

    def wait(self) -> None:
        assert self._child is not None
        assert self._child.wait(WAIT_S) == 0, self.log_tail()

    def log_tail(self) -> str:
        return tail(self._log)

    def runs(self) -> bool:
        assert self._child is not None
        assert self._child.poll() is None, self.log_tail()
        return True

    def has_read(self, ends: Mapping[tuple[str, int], int]) -> bool:
        """True when the checkpoint says that all records before these offsets are in the tables."""
        done = [int(file.name) for file in (self.folder / "c/commits").glob("*") if file.name.isdecimal()]
        if not done:
            return False
        read = json.loads((self.folder / f"c/offsets/{max(done)}").read_text().splitlines()[-1])
        return all(read.get(topic, {}).get(str(number), 0) >= end for (topic, number), end in ends.items())


def _assert_equal(lakes: Sequence[Lake], source: Mapping[str, list[dict[str, Any]]]) -> None:
    """As Freshet and as Apache Paimon read them."""
    tables = [(lake, name, lake.catalog.table(f"lake.{name}")) for lake in lakes for name in source]
    read = read_by_paimon([("rows", table) for _, _, table in tables])
    for (lake, name, table), theirs in zip(tables, read, strict=True):
        ours = table.scan().to_arrow()
        for reader, rows in (("Freshet", ours), ("Apache Paimon", theirs.cast(ours.schema))):
            if table.schema.primary_keys:
                found = differences(source[name], rows)
            else:  # what a killed connector sends again is there twice
                assert rows.num_rows >= len(source[name])
                found = differences(_distinct(source[name]), _distinct_rows(rows))
            assert not found, f"{name} by {reader}: {found}\n{lake.log_tail()}"
    for lake in lakes:
        dead = lake.catalog.table("lake.dead_letters").scan().to_arrow().to_pylist()
        assert not [f"{row['topic']}: {row['reason']}" for row in dead], lake.log_tail()


def _distinct(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({tuple(row.values()): row for row in rows}.values())


def _distinct_rows(rows: pa.Table) -> pa.Table:
    return rows.group_by(rows.column_names).aggregate([])


def _until(is_true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def _ends(broker: ForeignBroker, prefix: str) -> dict[tuple[str, int], int]:
    """Where the Kafka partitions end that have records."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": prefix})
    try:
        topics = consumer.list_topics(timeout=60).topics
        places = [
            (name, number) for name in topics if name.split(".")[0] == prefix for number in topics[name].partitions
        ]
        ends = {place: consumer.get_watermark_offsets(TopicPartition(*place), timeout=60)[1] for place in places}
    finally:
        consumer.close()
    return {place: end for place, end in ends.items() if end}


def _runs(connect: KafkaConnect) -> bool:
    failure = connect.failure()
    assert failure is None, failure
    return connect.runs()


def test_a_lake_follows_mariadb(tmp_path: Path, kafka_broker: ForeignBroker) -> None:
    prefix = f"maria{os.getpid()}x{time.monotonic_ns()}"
    lake = Lake(tmp_path / "lake", kafka_broker, prefix, "{processing_time: 1 second}")
    servers = kafka_broker.bootstrap_servers
    with MariadbServer.start("shop") as server:
        server.run(TABLES + ROWS)
        settings = connector(server, prefix, tmp_path)
        try:
            with KafkaConnect.start(tmp_path, servers, settings, JARS) as connect:
                lake.start()
                _until(lambda: _runs(connect), "Debezium runs")
                snapshot = {(f"{prefix}.shop.totals", 0): 20}
                _until(lambda: lake.runs() and lake.has_read(snapshot), "the snapshot is read")
                for number, statements in enumerate(ROUNDS[:3], 1):
                    server.run(WORK.format(n=number) + statements)
                    time.sleep(0.5)
                lake.kill()
                server.run(WORK.format(n=4) + ROUNDS[3])
                time.sleep(0.5)
                assert _runs(connect)
                connect.kill()
            lake.start()
            server.run(ROUNDS[4] + END)
            with KafkaConnect.start(tmp_path, servers, settings, JARS) as connect:
                end = (f"{prefix}.shop.done", 0)
                _until(lambda: end in _ends(kafka_broker, prefix), "Debezium has sent all")
            ends = _ends(kafka_broker, prefix)
            _until(lambda: lake.runs() and lake.has_read(ends), "all is read")
        finally:
            lake.stop()
        source = {name: rows_of(server, name) for name in NAMES}
        columns = {name: set(server.types(name)) for name in NAMES}
    again = Lake(tmp_path / "again", kafka_broker, prefix, "{available_now: true}")
    again.start()
    for each in NAMES:
        assert set(lake.catalog.table(f"lake.{each}").schema.column_names) == columns[each]
    again.wait()
    _assert_equal([lake, again], source)
