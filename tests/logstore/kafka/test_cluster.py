"""Options of the Java client as librdkafka knows them, and a cluster that does not answer."""

from __future__ import annotations

import socket
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.logstore.kafka.cluster import KafkaCluster
from freshet.logstore.kafka.connection import LastError
from freshet.logstore.kafka.java_options import client_settings

SERVERS = {"kafka.bootstrap.servers": "h:1"}
PLAIN = {
    **SERVERS,
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": 'org.x.PlainLoginModule required username=\'me\' password="a \\"b\\" c";',
    "subscribe": "t",
    "kafka.max.poll.records": "5",
}


def test_options_that_do_not_concern_the_connection_are_left_out() -> None:
    assert client_settings({**SERVERS, "subscribe": "t", "kafka.fetch.max.bytes": "1"}).values == {
        "bootstrap.servers": "h:1"
    }


def test_user_and_password_come_from_the_jaas_line() -> None:
    assert client_settings(PLAIN).values == {
        "bootstrap.servers": "h:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": 'a "b" c',
    }
    bare = {**PLAIN, "kafka.sasl.jaas.config": "M required username=me password=p;"}
    assert client_settings(bare).values["sasl.password"] == "p"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kafka.sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism = GSSAPI"),
        ({"kafka.sasl.jaas.config": "M required;"}, "kafka.sasl.mechanism = PLAIN"),
        ({"kafka.ssl.truststore.location": "/t.jks"}, "kafka.ssl.truststore.location"),
        ({"kafka.ssl.keystore.location": "/k.p12", "kafka.ssl.keystore.type": "PKCS12"}, "kafka.ssl.keystore.location"),
    ],
)
def test_what_only_the_java_client_knows_is_named(options: dict[str, str], named: str) -> None:
    assert client_settings({**PLAIN, **options}).untranslated == named


def test_a_pem_trust_store_is_taken() -> None:
    options = {**PLAIN, "kafka.ssl.truststore.location": "/ca.pem", "kafka.ssl.truststore.type": "PEM"}
    assert client_settings({**options, "kafka.ssl.endpoint.identification.algorithm": ""}).values.items() >= {
        ("ssl.ca.location", "/ca.pem"),
        ("ssl.endpoint.identification.algorithm", "none"),
    }


def test_settings_that_librdkafka_refuses() -> None:
    with pytest.raises(ValueError, match="security.protocol"):
        KafkaCluster(client_settings({**SERVERS, "kafka.security.protocol": "NONSENSE"}))


def test_a_cluster_that_does_not_answer_says_why() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # not listening: connections are refused
        cluster = KafkaCluster(client_settings({"kafka.bootstrap.servers": f"127.0.0.1:{taken.getsockname()[1]}"}))
        # A busy machine may not have tried to connect by the end of a question; the reason is kept for the next one.
        answers = (cluster.ask(1.0) for _ in range(300))
        answer = next(each for each in answers if "refused" in (each.failure or "").lower())
    assert answer.topics == frozenset()
    assert "after" not in (answer.failure or "")


@pytest.mark.kafka
def test_a_cluster_that_answers_names_its_topics(kafka_broker: ForeignBroker) -> None:
    topic = f"reach-{uuid4().hex}"
    kafka_broker.create_topic(topic)
    answer = KafkaCluster(client_settings({"kafka.bootstrap.servers": kafka_broker.bootstrap_servers})).ask(30.0)
    assert answer.failure is None
    assert topic in answer.topics
    assert answer.partition_counts[topic] == 1


@pytest.mark.parametrize(
    "around", ["", " (after 0ms in state CONNECT)", " (after 1ms in state UP, 2 identical error(s) suppressed)"]
)
def test_the_reason_of_an_error_stands_without_what_the_client_puts_around_it(around: str) -> None:
    errors = LastError({})
    errors.keep(KafkaError(KafkaError._TRANSPORT, f"127.0.0.1:9/bootstrap: Connect to ipv4#127.0.0.1:9 failed{around}"))
    assert errors.heard() is not None
    assert "after" not in str(errors.heard())
    assert str(errors.heard()).endswith("failed")
