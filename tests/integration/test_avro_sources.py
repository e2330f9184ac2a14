"""Records in Avro from a real broker through a real run: by Spark and by the workers, registry there and away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.storage.catalog import Catalog
from tests.kit.schema_registry import SchemaRegistry
from tests.pipeline.avro_records import AvroTopic, avro_change, connect, decimal, envelope_of, optional, record_of

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
IMPATIENT = Path(__file__).with_name("impatient")
PIPELINE = """
name: avro
sources:
  - kafka: {{kafka.bootstrap.servers: "{servers}", subscribe: "{topic}", startingOffsets: earliest}}
    format: {format}
    read: {read}
    schema_registry: {{url: "{url}", basic.auth.user.info: "env:REGISTRY_USER"}}
table:
  warehouse: "{folder}/warehouse"
  name: shop.orders
  columns: {{id: BIGINT, status: STRING, total: "DECIMAL(10,2)", at: TIMESTAMP(6), note: STRING}}
  primary_key: [id]
  options: {{bucket: 2, changelog-producer: input}}
trigger: {{available_now: true}}
checkpoint: "{folder}/checkpoint"
spark: {{spark.driver.defaultJavaOptions: "-XX:TieredStopAtLevel=1"}}
"""
USER = "reader:sesame"
ROW = {
    "id": "long", "status": optional("string"), "total": optional(decimal(2)),
    "at": optional(connect("long", "io.debezium.time.MicroTimestamp")),
}  # fmt: skip
LATER_ROW = {
    **ROW,
    "status": {"type": "enum", "name": "Status", "symbols": ["new", "paid"]},
    "note": optional("string"),
}


def row(key: int, status: str = "new", **more: Any) -> dict[str, Any]:
    return {"id": key, "status": status, "total": Decimal("1.50"), "at": 1700000000123456, **more}


class Stream:
    """A topic of one Kafka partition, and the pipeline that reads it."""

    def __init__(self, folder: Path, broker: ForeignBroker, **given: str) -> None:
        self.topic, self._broker = f"orders-{uuid.uuid4()}", broker
        broker.create_topic(self.topic, kafka_partitions=1)
        self._file, self._warehouse = folder / "avro.yaml", str(folder / "warehouse")
        self._file.write_text(
            PIPELINE.format(servers=broker.bootstrap_servers, topic=self.topic, folder=folder, **given)
        )

    def send(self, *values: bytes | None) -> None:
        producer = Producer({"bootstrap.servers": self._broker.bootstrap_servers, "acks": "all"})
        for value in values:
            producer.produce(self.topic, value)
        assert producer.flush(300) == 0

    def freshet(self, command: str, *arguments: str, code: int = 0, is_impatient: bool = False) -> str:
        """What the command says; one that `is_impatient` waits for a registry that is away for three seconds."""
        called = [sys.executable, "-m", "freshet.pipeline.commands.command_line", command, str(self._file), *arguments]
        environment = {**os.environ, "REGISTRY_USER": USER}
        if is_impatient:
            environment["PYTHONPATH"] = os.pathsep.join([str(IMPATIENT), *filter(None, [os.environ.get("PYTHONPATH")])])
        ran = subprocess.run(called, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
        assert ran.returncode == code, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    def rows(self, table: str = "shop.orders") -> list[dict[str, Any]]:
        return Catalog(self._warehouse).table(table).scan().to_arrow().to_pylist()


@pytest.mark.parametrize("read", ["spark", "python"])
def test_changes_of_two_schemas(tmp_path: Path, kafka_broker: ForeignBroker, read: str) -> None:
    with SchemaRegistry(user=USER) as registry:
        stream = Stream(tmp_path, kafka_broker, format="debezium-avro", read=read, url=registry.url)
        first = AvroTopic(registry, envelope_of(ROW), f"{stream.topic}-value")
        second = AvroTopic(registry, envelope_of(LATER_ROW), f"{stream.topic}-value")
        broken = first.value(avro_change("c", None, row(90)))[:-1]
        stream.send(
            *(first.value(avro_change("c", None, row(key))) for key in range(1, 41)),
            *(
                second.value(avro_change("u", row(key, note=None), row(key, "paid", note=f"n{key}")))
                for key in range(1, 21)
            ),
            first.value(avro_change("u", row(21), row(100))), broken, None,
            *(second.value(avro_change("d", row(key, note=None))) for key in range(31, 41)),
        )  # fmt: skip
        stream.freshet("check", "--no-spark")
        out = stream.freshet("run")
    assert "73 records in" in out and "71 applied, 1 dead letter, 1 skipped" in out, out
    found = {each["id"]: (each["status"], each["note"]) for each in stream.rows()}
    assert found == {
        **{key: ("paid", f"n{key}") for key in range(1, 21)},
        **dict.fromkeys([*range(22, 31), 100], ("new", None)),
    }  # fmt: skip
    (dead,) = stream.rows("shop.orders_dead_letters")
    assert dead["raw_value"] == broken and "does not decode with the schema of id 1" in dead["reason"]


def test_rows_while_the_registry_is_away(tmp_path: Path, kafka_broker: ForeignBroker) -> None:
    with SchemaRegistry(user=USER) as registry:
        stream = Stream(tmp_path, kafka_broker, format="avro", read="auto", url=registry.url)
        topic = AvroTopic(registry, record_of(ROW), f"{stream.topic}-value")
        stream.send(*(topic.value(row(key)) for key in range(5)))
        registry.failure = 503
        said = stream.freshet("check", "--no-spark", code=2)
        assert f"no schema registry answers at {registry.url}" in said and "schema_registry.url" in said, said
        said = stream.freshet("run", "--restart", "0", code=75, is_impatient=True)
        assert "did not give it within 3 s" in said, said
        assert f"id {topic.schema_id}," in said and stream.topic in said and registry.url in said, said
        assert "sesame" not in said
        registry.failure = None
        out = stream.freshet("run", "--progress", "json")
        assert json.loads(out.splitlines()[0])["applied"] == 5, out
    assert sorted(each["id"] for each in stream.rows()) == list(range(5))
