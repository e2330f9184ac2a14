"""Two Kafka topics of different formats, united in one pipeline: a real broker, a real run, every record counted."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.storage.catalog import Catalog
from tests.pipeline.records import change

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]

PIPELINE = """
name: two-sources
sources:
  - kafka: {{kafka.bootstrap.servers: "{servers}", subscribe: "{changes}", startingOffsets: earliest}}
    format: debezium-json
    select: {{id: id, status: status, at: _source.lsn, origin: "'changes'"}}
  - kafka: {{kafka.bootstrap.servers: "{servers}", subscribe: "{corrections}", startingOffsets: earliest}}
    format: json
    schema: {{order: BIGINT}}
    select: {{id: order, status: "upper(new_status)", at: position, origin: "'corrections'"}}
table:
  warehouse: "{folder}/warehouse"
  name: shop.orders
  columns: {{id: BIGINT, status: STRING, at: BIGINT, origin: STRING}}
  primary_key: [id]
  options: {{bucket: 2, sequence.field: at}}
trigger: {{available_now: true}}
checkpoint: "{folder}/checkpoint"
spark: {{spark.driver.defaultJavaOptions: "-XX:TieredStopAtLevel=1"}}
"""


def _send(broker: ForeignBroker, topic: str, *records: tuple[Any, Any]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    for key, value in records:
        producer.produce(topic, None if value is None else json.dumps(value).encode(), json.dumps({"id": key}).encode())
    assert producer.flush(300) == 0


def _run(path: Path) -> str:
    command = [sys.executable, "-m", "freshet.pipeline.commands.command_line", "run", str(path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_changes_and_corrections_of_one_table(tmp_path: Path, kafka_broker: ForeignBroker) -> None:
    changes, corrections = (f"{name}-{uuid.uuid4()}" for name in ("changes", "corrections"))
    for topic in (changes, corrections):
        kafka_broker.create_topic(topic, kafka_partitions=2)
    path = tmp_path / "two.yaml"
    servers = kafka_broker.bootstrap_servers
    path.write_text(PIPELINE.format(folder=tmp_path, servers=servers, changes=changes, corrections=corrections))

    _send(
        kafka_broker, changes,
        *((key, change("c", None, {"id": key, "status": "new"}, lsn=10 + key)) for key in range(1, 5)),
        (4, change("d", {"id": 4}, lsn=30)), (4, None),
    )  # fmt: skip
    _send(
        kafka_broker, corrections,
        (1, {"order": 1, "new_status": "lost", "position": 20}),  # later than the change
        (2, {"order": 2, "new_status": "late", "position": 5}),  # before it
        (4, {"order": 4, "new_status": "late", "position": 25}),  # before the deletion
        (9, {"order": "nine", "new_status": "x", "position": 1}),
        (7, {"order": 7, "new_status": "known here only", "position": 1}),
    )  # fmt: skip
    out = _run(path)
    assert "9 applied, 1 dead letter, 1 skipped" in out and "11 records" in out, out
    catalog = Catalog(str(tmp_path / "warehouse"))
    rows = {row["id"]: (row["status"], row["at"], row["origin"]) for row in _rows(catalog, "shop.orders")}
    assert rows == {
        1: ("LOST", 20, "corrections"), 2: ("new", 12, "changes"), 3: ("new", 13, "changes"),
        7: ("KNOWN HERE ONLY", 1, "corrections"),
    }  # fmt: skip
    (dead,) = _rows(catalog, "shop.orders_dead_letters")
    assert (dead["topic"], dead["column_name"], json.loads(dead["raw_value"])["order"]) == (corrections, "id", "nine")

    # The checkpoint knows the offsets of both topics.
    _send(kafka_broker, corrections, (3, {"order": 3, "new_status": "again", "position": 99}))
    again = _run(path)
    assert "1 record in" in again and "1 applied" in again, again
    assert {row["id"]: row["status"] for row in _rows(catalog, "shop.orders")}[3] == "AGAIN"


def _rows(catalog: Catalog, table: str) -> list[dict[str, Any]]:
    return catalog.table(table).scan().to_arrow().to_pylist()
