"""`freshet run --skip-record`: a record that stops a pipeline at every start becomes a dead letter; a real broker."""

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
from tests.pipeline.records import change, with_schema

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
FIELDS = [{"type": "int64", "optional": False, "field": "id"}]
ALONE = """
sources:
  - kafka: {kafka}
    format: debezium-json
    select: {{id: id, doubled: "id * 2"}}
table:
  warehouse: "{folder}/w"
  name: s.orders
  columns: {{id: BIGINT, doubled: BIGINT}}
  primary_key: [id]
  options: {{bucket: 1}}
dead_letters: s.letters
"""
MANY = """
warehouse: "{folder}/w"
sync:
  source: {{kafka: {kafka}, format: debezium-json}}
  tables: [{{from: "shop.public.(.*)", to: "s.$1"}}]
dead_letters: s.letters
"""


def _run(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "freshet.pipeline.commands.command_line", "run", str(path), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("text", [ALONE, MANY], ids=["one table", "many tables"])
def test_a_record_that_stops_a_pipeline(tmp_path: Path, kafka_broker: ForeignBroker, text: str) -> None:
    topic = f"orders-{uuid.uuid4()}"
    kafka_broker.create_topic(topic, kafka_partitions=1)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers, "acks": "all"})
    rows: list[Any] = [change("c", None, {"id": number}) for number in range(5)]
    rows[2] = change("t")
    for row in rows:
        producer.produce(topic, json.dumps(with_schema(row, FIELDS)).encode(), json.dumps({"id": row["op"]}).encode())
    assert producer.flush(300) == 0
    options = {
        "kafka.bootstrap.servers": kafka_broker.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest",
    }  # fmt: skip
    file = tmp_path / "p.yaml"
    file.write_text(
        "name: orders\ntrigger: {available_now: true}\n"
        + f'checkpoint: "{tmp_path}/c"\nspark: {{spark.driver.defaultJavaOptions: "-XX:TieredStopAtLevel=1"}}'
        + text.format(folder=tmp_path, kafka=json.dumps(options))
    )
    stopped = _run(file)
    assert stopped.returncode == 65, stopped.stderr
    assert f"{topic} partition 0 offset 2: the source table was truncated" in stopped.stderr
    skipped = _run(file, "--skip-record", f"{topic}/0/2")
    assert skipped.returncode == 0, skipped.stderr
    assert sorted(Catalog(tmp_path / "w").table("s.orders").scan(["id"]).to_arrow()["id"].to_pylist()) == [0, 1, 3, 4]
    (letter,) = Catalog(tmp_path / "w").table("s.letters").scan().to_arrow().to_pylist()
    assert letter["reason"] == "skipped by --skip-record"
    late = _run(file, "--skip-record", f"{topic}/0/2")
    assert late.returncode == 2 and "orders has read that record, and goes on at offset 5" in late.stderr
