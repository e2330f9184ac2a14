"""The broker of the tests: what was acknowledged survives SIGKILL, and no broker survives its parent."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer

from freshet.jobs.demo.kafka_broker import ForeignBroker, KafkaBroker

pytestmark = pytest.mark.kafka

ORPHAN_MAKER = """
import sys, time
from freshet.jobs.demo.kafka_broker import KafkaBroker
with KafkaBroker.start() as broker:
    print(broker.pid, broker.folder, flush=True)
    time.sleep(3600)
"""


def _produce(broker: ForeignBroker, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce(topic, value.encode())
    assert producer.flush(300) == 0


def _runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def _consume(broker: ForeignBroker, topic: str, count: int) -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": str(uuid.uuid4()), "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    deadline, values = time.monotonic() + 300, []
    while len(values) < count and time.monotonic() < deadline:
        for message in consumer.consume(count, 1):
            assert message.error() is None
            values.append(message.value().decode())
    consumer.close()
    return values


def test_records_come_back(kafka_broker: ForeignBroker) -> None:
    topic = f"records-{uuid.uuid4()}"
    kafka_broker.create_topic(topic)
    _produce(kafka_broker, topic, ["a", "b", "c"])
    assert _consume(kafka_broker, topic, 3) == ["a", "b", "c"]
    kafka_broker.delete_topic(topic)


@pytest.mark.slow
def test_acknowledged_records_survive_sigkill(tmp_path: Path) -> None:
    with KafkaBroker.start(tmp_path / "kafka") as broker:
        broker.create_topic("t")
        _produce(broker, "t", ["before"])
        broker.kill()
        broker.restart()
        _produce(broker, "t", ["after"])
        assert _consume(broker, "t", 2) == ["before", "after"]
        pid = broker.pid
    assert not psutil.pid_exists(pid)


@pytest.mark.slow
def test_no_broker_survives_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", ORPHAN_MAKER], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        os.kill(parent.pid, signal.SIGKILL)
    deadline = time.monotonic() + 300
    while _runs(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(int(pid))
    shutil.rmtree(folder)


def test_a_broker_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    broker = KafkaBroker(tmp_path)  # never formatted
    with pytest.raises(RuntimeError, match=r"the Kafka broker ended[\s\S]*meta.properties"):
        broker.restart()
