"""Brokers as only tests need them: one that asks for passwords, and one in a container.

The broker itself is that of the demos, `freshet.jobs.demo.kafka_broker`. `FRESHET_KAFKA=container` lets testcontainers
start the one that most tests share.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from testcontainers.community.kafka import KafkaContainer

from freshet.jobs.demo import kafka_broker
from freshet.jobs.demo.kafka_broker import ForeignBroker, KafkaBroker, free_ports

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


@contextlib.contextmanager
def any_broker() -> Iterator[ForeignBroker]:
    """The broker the environment asks for: a given one, a container, or our own."""
    if os.environ.get("FRESHET_KAFKA") == "container" and not os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        with KafkaContainer(CONTAINER_IMAGE).with_kraft() as container:
            yield ForeignBroker(container.get_bootstrap_server())
    else:
        with kafka_broker.any_broker() as broker:
            yield broker
