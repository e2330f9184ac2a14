"""A real Apache Kafka broker for the demos and the tests: one node on loopback, in a folder of its own.

    with KafkaBroker.start() as broker:
        broker.create_topic("orders", kafka_partitions=4)
        … broker.bootstrap_servers …
        broker.kill()       # SIGKILL: what a crash leaves
        broker.restart()    # on the same folder and port, after a kill or a stop

The broker runs from the pinned jars (`kafka-broker`), needs no container and dies with its parent process, however that
ends. `any_broker` uses the one at `KAFKA_BOOTSTRAP_SERVERS` instead, which is not ours to kill. Ready means: a raw
ApiVersions request is answered.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, TopicMetadata
from confluent_kafka.cimpl import NewTopic

from freshet.jobs.demo.child_process import free_ports, start_child, stop_child, tail
from freshet.pipeline.spark.jars import ensure_jars, java_command

CLUSTER_ID: Final = "FreshetTestsClusterAAA"
START_TIMEOUT_S: Final = 300.0
ANSWER_TIMEOUT_S: Final = 300.0
JVM_OPTIONS: Final = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)

SERVER_PROPERTIES: Final = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
log.dirs={folder}/logs
auto.create.topics.enable=false
# one node: every internal topic has one replica
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=4
group.initial.rebalance.delay.ms=0
# small, and quick to come back after SIGKILL
log.cleaner.dedupe.buffer.size=16777216
file.delete.delay.ms=1000
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500
"""


class ForeignBroker:
    """A broker that another program runs; it can be used, not killed."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    @property
    def bootstrap_servers(self) -> str:
        """What clients connect to."""
        return self._bootstrap_servers

    def create_topic(self, name: str, *, kafka_partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Creates a topic and waits until the broker answers for it."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        topic = NewTopic(name, num_partitions=kafka_partitions, replication_factor=1, config=dict(config or {}))
        admin.create_topics([topic], operation_timeout=ANSWER_TIMEOUT_S)[name].result(ANSWER_TIMEOUT_S)
        self._wait_for_topic(admin, name, is_there=True)

    def topics(self) -> frozenset[str]:
        """The names of all topics."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        return frozenset(admin.list_topics(timeout=ANSWER_TIMEOUT_S).topics)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic and waits until the broker no longer knows it."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        admin.delete_topics([name], operation_timeout=ANSWER_TIMEOUT_S)[name].result(ANSWER_TIMEOUT_S)
        self._wait_for_topic(admin, name, is_there=False)

    def _wait_for_topic(self, admin: AdminClient, name: str, *, is_there: bool) -> None:
        """The controller answers for a change before the broker has heard of it."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            topic = admin.list_topics(name, timeout=ANSWER_TIMEOUT_S).topics[name]
            if is_there and topic.error is None and topic.partitions and _has_leaders(topic):
                return
            if not is_there and topic.error is not None:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"topic {name}: {topic.error or topic.partitions} after {ANSWER_TIMEOUT_S} s")
            time.sleep(0.02)


class KafkaBroker(ForeignBroker):
    """Our own broker; `start` gives one that is ready."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.port, self.controller_port = free_ports(2)
        super().__init__(f"127.0.0.1:{self.port}")
        self._properties = folder / "server.properties"
        self._properties.write_text(
            SERVER_PROPERTIES.format(port=self.port, controller_port=self.controller_port, folder=folder)
        )
        self.set(settings or {})
        self._class_path = ":".join(map(str, ensure_jars("kafka-broker")))
        self._child: subprocess.Popen[Any] | None = None

    @classmethod
    @contextlib.contextmanager
    def start(cls, folder: Path | None = None, **options: Any) -> Iterator[Self]:
        """Formats, starts and finally stops a broker; without `folder` its files go away too. A folder in which a
        broker has run is used as it is. `settings` are the broker's own."""
        own_folder = Path(tempfile.mkdtemp(prefix="freshet-kafka-")) if folder is None else folder
        own_folder.mkdir(parents=True, exist_ok=True)
        broker = cls(own_folder, **options)
        try:
            if not (own_folder / "logs" / "meta.properties").exists():
                broker._format()
            broker.restart()
            yield broker
        finally:
            broker.stop()
            if folder is None:
                shutil.rmtree(own_folder, ignore_errors=True)

    def set(self, settings: Mapping[str, str]) -> None:
        """Settings for the next start; later ones win."""
        with self._properties.open("a") as properties:
            properties.writelines(f"{name}={text}\n" for name, text in settings.items())

    @property
    def pid(self) -> int:
        """The broker's process id."""
        assert self._child is not None
        return self._child.pid

    def restart(self) -> None:
        """Starts on the same folder and port, and returns when the broker answers."""
        assert self._child is None or self._child.poll() is not None, "the broker is still running"
        with (self.folder / "broker.log").open("ab") as log:
            self._child = start_child(self._java("kafka.Kafka", self._properties), log=log)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _answers_api_versions(self.port):
            if self._child.poll() is not None:
                raise RuntimeError(f"the Kafka broker ended (exit code {self._child.returncode}):\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the Kafka broker did not answer within {START_TIMEOUT_S} s:\n{self.log_tail()}")
            time.sleep(0.05)
        self._wait_for_leaders(deadline)

    def _wait_for_leaders(self, deadline: float) -> None:
        """A broker answers before the controller has made it the leader of its partitions again."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        while True:
            with contextlib.suppress(KafkaException):
                cluster = admin.list_topics(timeout=10)
                if cluster.brokers and all(_has_leaders(topic) for topic in cluster.topics.values()):
                    return
            if time.monotonic() > deadline:
                raise RuntimeError(f"the Kafka broker leads nothing after {START_TIMEOUT_S} s:\n{self.log_tail()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """An orderly end (half a second); nothing if it is down already."""
        if self._child is not None:
            stop_child(self._child)

    def kill(self) -> None:
        """SIGKILL: acknowledged records survive, nothing else is promised."""
        assert self._child is not None
        self._child.send_signal(signal.SIGKILL)
        self._child.wait()

    def log_tail(self) -> str:
        """The end of what the broker has logged."""
        return tail(self.folder / "broker.log")

    def _format(self) -> None:
        arguments = ("format", "--standalone", "-t", CLUSTER_ID, "-c", self._properties)
        with (self.folder / "broker.log").open("ab") as log:
            child = start_child(self._java("kafka.tools.StorageTool", *arguments), log=log)
        if child.wait(START_TIMEOUT_S) != 0:
            raise RuntimeError(f"Kafka's storage could not be formatted:\n{self.log_tail()}")

    def _java(self, main_class: str, *arguments: str | Path) -> list[str | Path]:
        return [java_command(), *JVM_OPTIONS, "-cp", self._class_path, main_class, *arguments]


@contextlib.contextmanager
def any_broker() -> Iterator[ForeignBroker]:
    """The broker that `KAFKA_BOOTSTRAP_SERVERS` names, or our own."""
    if given := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        yield ForeignBroker(given)
    else:
        with KafkaBroker.start() as broker:
            yield broker


def _has_leaders(topic: TopicMetadata) -> bool:
    return all(each.error is None and each.leader >= 0 for each in topic.partitions.values())


def _answers_api_versions(port: int) -> bool:
    """Sends ApiVersions v0 (api key 18, correlation id 7, client id "freshet") and waits for its answer."""
    client_id = b"freshet"
    request = struct.pack(">hhih", 18, 0, 7, len(client_id)) + client_id
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.recv(8)
    except OSError:
        return False
    return len(answer) == 8 and struct.unpack(">ii", answer)[1] == 7
