"""Messages of Canal and Maxwell from a real broker through a real run: every record counted."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.storage.catalog import Catalog
from tests.pipeline.binlog_records import canal, maxwell

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]

PIPELINE = """
name: binlog
sources:
  - kafka: {{kafka.bootstrap.servers: "{servers}", subscribe: "{topic}", startingOffsets: earliest}}
    format: {format}
    {keys}
table:
  warehouse: "{folder}/warehouse"
  name: shop.orders
  columns: {{id: BIGINT, status: STRING, total: "DECIMAL(10,2)", at: TIMESTAMP(6)}}
  primary_key: [id]
  options: {{bucket: 4, changelog-producer: {producer}}}
trigger: {{available_now: true}}
checkpoint: "{folder}/checkpoint"
spark: {{spark.driver.defaultJavaOptions: "-XX:TieredStopAtLevel=1"}}
"""
SELECT = '{id: id, status: status, total: total, at: "try_cast(at AS TIMESTAMP_NTZ)"}'
AT = "2024-02-29 10:00:00.500000"


def _row(key: int, status: str, total: Any = "1.50", at: str = AT) -> dict[str, Any]:
    return {"id": key, "status": status, "total": total, "at": at}


def _texts(*rows: dict[str, Any]) -> list[dict[str, str]]:
    return [{name: str(value) for name, value in row.items()} for row in rows]


class Stream:
    """A topic of one Kafka partition, and the pipeline that reads it."""

    def __init__(self, folder: Path, broker: ForeignBroker, **given: str) -> None:
        self._topic, self._broker, self._given = f"orders-{uuid.uuid4()}", broker, {**given, "folder": str(folder)}
        broker.create_topic(self._topic, kafka_partitions=1)
        self.file, self.warehouse = folder / "binlog.yaml", str(folder / "warehouse")
        self.write()

    def write(self, **given: str) -> None:
        servers = self._broker.bootstrap_servers
        self.file.write_text(PIPELINE.format(servers=servers, topic=self._topic, **{**self._given, **given}))

    def send(self, *messages: Any) -> None:
        producer = Producer({"bootstrap.servers": self._broker.bootstrap_servers, "acks": "all"})
        for message in messages:
            producer.produce(self._topic, None if message is None else json.dumps(message).encode())
        assert producer.flush(300) == 0

    def freshet(self, *arguments: object) -> str:
        called = [sys.executable, "-m", "freshet.pipeline.commands.command_line", *map(str, arguments)]
        ran = subprocess.run(called, cwd=ROOT, capture_output=True, text=True, timeout=600)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def run(self) -> str:
        return self.freshet("run", self.file)

    def rows(self, table: str = "shop.orders") -> list[dict[str, Any]]:
        return Catalog(self.warehouse).table(table).scan().to_arrow().to_pylist()

    def statuses(self) -> dict[int, tuple[str, str]]:
        return {row["id"]: (row["status"], str(row["total"])) for row in self.rows()}


def test_messages_of_canal(tmp_path: Path, kafka_broker: ForeignBroker) -> None:
    keys = "on_truncate: skip"
    stream = Stream(tmp_path, kafka_broker, format="canal-json", keys=keys, producer="input")
    bad = canal("INSERT", _texts(_row(90, "new"), _row(91, "new", at="0000-00-00 00:00:00"), _row(92, "new")))
    stream.send(
        canal("CREATE", None, isDdl=True, sql="create table orders …"),
        canal("INSERT", _texts(*(_row(key, "new") for key in range(1, 41)))),
        canal(
            "UPDATE",
            _texts(*(_row(key, "paid", "2.50") for key in range(1, 21))),
            [{"status": "new", "total": "1.50"}] * 20,
        ),
        canal("UPDATE", _texts(_row(101, "new"), _row(41, "new")), [{"id": "21"}, {"id": "22"}]),
        canal("DELETE", _texts(*(_row(key, "new") for key in range(23, 41)))),
        bad, canal("TRUNCATE", None, isDdl=True), None,
    )  # fmt: skip
    stream.freshet("check", stream.file)
    out = stream.run()
    assert "8 records in" in out and "4 applied, 1 dead letter, 3 skipped" in out, out
    expected = dict.fromkeys(range(1, 21), ("paid", "2.50")) | dict.fromkeys((41, 101), ("new", "1.50"))
    assert stream.statuses() == expected
    (dead,) = stream.rows("shop.orders_dead_letters")
    assert (dead["column_name"], dead["raw_value"]) == ("at", json.dumps(bad).encode())

    changes = stream.freshet("changelog", stream.warehouse, "shop.orders", "--format", "json").splitlines()
    assert Counter(json.loads(line)["_ROW_KIND"] for line in changes) == {"+I": 42, "-U": 20, "+U": 20, "-D": 20}

    # The checkpoint knows the offsets.
    stream.send(canal("UPDATE", _texts(_row(1, "sent", "2.50")), [{"status": "paid"}]))
    again = stream.run()
    assert "1 record in" in again and "1 applied" in again, again
    assert stream.statuses()[1] == ("sent", "2.50")

    # With a date that may be none, the message is applied as a whole.
    stream.write(keys=f"{keys}, schema: {{at: STRING}}, select: {SELECT}".replace(", ", "\n    ", 2))
    replayed = stream.freshet("dead-letters", stream.warehouse, "shop.orders", "--replay", stream.file)
    assert "1 applied" in replayed, replayed
    assert {row["id"]: row["at"] is None for row in stream.rows() if 90 <= row["id"] < 100} == {
        90: False, 91: True, 92: False,
    }  # fmt: skip
    assert not stream.rows("shop.orders_dead_letters")


def test_messages_of_maxwell(tmp_path: Path, kafka_broker: ForeignBroker) -> None:
    keys = "only: {db: shop, table: orders}"
    stream = Stream(tmp_path, kafka_broker, format="maxwell-json", keys=keys, producer="lookup")
    stream.send(
        maxwell("bootstrap-start", {}), *(maxwell("bootstrap-insert", _row(key, "new", 1.5)) for key in range(1, 31)),
        maxwell("bootstrap-complete", {}), maxwell("insert", _row(7, "x"), table="users"),
        *(maxwell("update", _row(key, "paid", "2.50"), {"status": "new", "total": 1.5}) for key in range(1, 11)),
        maxwell("update", _row(100, "new"), {"id": 30}), maxwell("delete", _row(29, "new")),
        maxwell("insert", _row(31, "new", at="0000-00-00 00:00:00")), maxwell("table-alter", None),
    )  # fmt: skip
    out = stream.run()
    assert "47 records in" in out and "42 applied, 1 dead letter, 4 skipped" in out, out
    paid = dict.fromkeys(range(1, 11), ("paid", "2.50"))
    assert stream.statuses() == paid | dict.fromkeys((*range(11, 29), 100), ("new", "1.50"))
    (dead,) = stream.rows("shop.orders_dead_letters")
    assert (dead["column_name"], dead["reason"]) == ("at", "the value of field at does not fit TIMESTAMP(6)")
    stream.send(maxwell("delete", _row(28, "new")))
    assert "1 record in" in stream.run() and 28 not in stream.statuses()
