"""Brokers as only tests need them: one that asks for passwords, two in a cluster, and one in a container.

The broker itself is that of the demos, `freshet.jobs.demo.kafka_broker`. `FRESHET_KAFKA=container` lets testcontainers
start the one that most tests share.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from testcontainers.community.kafka import KafkaContainer

from freshet.jobs.demo import kafka_broker
from freshet.jobs.demo.child_process import free_ports, start_child
from freshet.jobs.demo.kafka_broker import CLUSTER_ID, START_TIMEOUT_S, ForeignBroker, KafkaBroker

CONTAINER_IMAGE = "apache/kafka:4.3.1"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class SaslBroker(KafkaBroker):
    """A broker with one address more, `sasl_servers`, that asks for the passwords of `users` (SASL/PLAIN)."""

    def __init__(self, folder: Path, *, users: Mapping[str, str]) -> None:
        super().__init__(folder)
        [sasl_port] = free_ports(1)
        self.sasl_servers = f"127.0.0.1:{sasl_port}"
        plain, sasl = f"PLAINTEXT://127.0.0.1:{self.port}", f"SASL_PLAINTEXT://{self.sasl_servers}"
        passwords = " ".join(f'user_{name}="{password}"' for name, password in users.items())
        self.set(
            {
                "listeners": f"{plain},CONTROLLER://127.0.0.1:{self.controller_port},{sasl}",
                "advertised.listeners": f"{plain},{sasl}",
                "listener.security.protocol.map": (
                    "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
                ),
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {passwords};",
            }
        )


class SecondBroker(KafkaBroker):
    """Another broker of the cluster of `first`, which alone is its controller."""

    def __init__(self, folder: Path, *, first: KafkaBroker) -> None:
        super().__init__(folder)
        self.set(
            {
                "node.id": "2",
                "process.roles": "broker",
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
                "controller.quorum.bootstrap.servers": f"127.0.0.1:{first.controller_port}",
            }
        )

    def _format(self) -> None:
        arguments = ("format", "--no-initial-controllers", "-t", CLUSTER_ID, "-c", self._properties)
        with (self.folder / "broker.log").open("ab") as log:
            child = start_child(self._java("kafka.tools.StorageTool", *arguments), log=log)
        assert child.wait(START_TIMEOUT_S) == 0, self.log_tail()


def create_replicated(broker: KafkaBroker, name: str, leaders: Sequence[int]) -> None:
    """A topic with a partition for each of these leaders, 1 or 2, and a copy on the other broker."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topic = NewTopic(name, num_partitions=len(leaders), replica_assignment=[[each, 3 - each] for each in leaders])
    admin.create_topics([topic])[name].result(60)
    deadline = time.monotonic() + 60
    while leaders_of(broker, name) != list(leaders):
        assert time.monotonic() < deadline, leaders_of(broker, name)
        time.sleep(0.05)


def leaders_of(broker: KafkaBroker, name: str) -> list[int]:
    """The leader of each partition."""
    found = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(name, timeout=10).topics[name]
    return [found.partitions[number].leader for number in sorted(found.partitions)]


@contextlib.contextmanager
def any_broker() -> Iterator[ForeignBroker]:
    """The broker the environment asks for: a given one, a container, or our own."""
    if os.environ.get("FRESHET_KAFKA") == "container" and not os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        with KafkaContainer(CONTAINER_IMAGE).with_kraft() as container:
            yield ForeignBroker(container.get_bootstrap_server())
    else:
        with kafka_broker.any_broker() as broker:
            yield broker
