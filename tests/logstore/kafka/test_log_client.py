"""The client of the log over librdkafka's mock cluster, and the settings it makes of a table's options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from freshet.logstore.exceptions import LogConfigError, LogUnavailableError
from freshet.logstore.kafka import log_client as kafka_log_client
from freshet.logstore.kafka.connection import log_client_settings
from freshet.logstore.kafka.log_client import KafkaLogClient
from freshet.logstore.kafka.logs import _open_client
from freshet.logstore.protocol.client import Fetched, OffsetBounds, StoredRecord, TopicPartition
from freshet.logstore.protocol.topic import check_topic_options
from freshet.storage.exceptions import InvalidRequestError

UNKNOWN, NO_LEADER = KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.NOT_LEADER_FOR_PARTITION

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="hunter2";'

NOTHING: Mapping[TopicPartition, int] = {}


@pytest.fixture
def client() -> Iterator[KafkaLogClient]:
    host = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    brokers = host.list_topics(timeout=300).brokers.values()
    found = KafkaLogClient({"bootstrap.servers": ",".join(f"{broker.host}:{broker.port}" for broker in brokers)})
    yield found
    found.close()


def fetched(
    client: KafkaLogClient,
    place: TopicPartition,
    position: int,
    others: Mapping[TopicPartition, int] = NOTHING,
    *,
    until: int = 4,
) -> Fetched:
    """Records from there up to an offset: brokers give them in pieces, as they were sent, and nothing of others."""
    records: list[StoredRecord] = []
    while position < until:
        [(found, piece)] = client.fetch({**others, place: position}, wait_s=300).items()
        assert found == place
        records += piece.records
        position = piece.next_offset
    return Fetched(tuple(records), position)


def test_what_is_sent_is_acknowledged_and_fetched(client: KafkaLogClient) -> None:
    places = [TopicPartition("t", number) for number in range(2)]
    producer = client.producer()
    for number in range(4):
        producer.send(places[1], b"h%d" % number, b"v%d" % number, 1000, ("token", number))
    assert producer.flush() == [(("token", number), number) for number in range(4)]
    assert producer.flush() == []
    stored = tuple(StoredRecord(number, b"h%d" % number, b"v%d" % number, 1000) for number in range(4))
    assert fetched(client, places[1], 1, {places[0]: 0}) == Fetched(stored[1:], 4)
    assert client.fetch({places[0]: 0, places[1]: 4}, wait_s=0.2) == {}
    assert fetched(client, places[1], 0, until=4) == Fetched(stored, 4)
    producer.send(places[0], b"h", b"v", 1000, None)
    producer.flush()
    found = client.fetch({places[0]: 0, places[1]: 4}, wait_s=300)
    assert found == {places[0]: Fetched((StoredRecord(0, b"h", b"v", 1000),), 1)}
    assert client.fetch({}, wait_s=300) == {}


def test_what_was_given_up_is_forgotten(client: KafkaLogClient) -> None:
    producer = client.producer()
    producer.send(TopicPartition("t", 0), b"h", b"v", 1000, "one")
    producer.discard()
    producer.send(TopicPartition("t", 0), b"h", b"v", 1000, "two")
    assert [token for token, _ in producer.flush()] == ["two"]


def test_a_record_that_is_not_acknowledged_in_time_fails_the_flush() -> None:
    away = KafkaLogClient({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": "300"})
    producer = away.producer()
    producer.send(TopicPartition("t", 0), b"h", b"v", 1000, None)
    with pytest.raises(LogUnavailableError, match=r"t partition 0: .*timed out.*nothing is committed"):
        producer.flush()
    with pytest.raises(LogUnavailableError):
        producer.send(TopicPartition("t", 0), b"h", b"v", 1000, None)
    producer.discard()


class LosesExceptions:
    """As confluent-kafka does now and then, where reports of deliveries follow a fatal error."""

    def __init__(self, producer: Producer) -> None:
        self.produce = producer.produce

    def flush(self) -> None:
        raise SystemError("<method 'flush' of 'cimpl.Producer' objects> returned NULL without setting an exception")

    def poll(self, seconds: float) -> int:
        return 0

    def commit_transaction(self, seconds: float) -> None:
        self.flush()


def test_a_fatal_error_whose_exception_is_lost_is_an_error_of_the_log(client: KafkaLogClient) -> None:
    producer = client.producer()
    producer._client = LosesExceptions(producer._client)
    producer.send(TopicPartition("t", 0), b"h", b"v", 1000, "lost")
    with pytest.raises(LogUnavailableError, match="the log: the client met a fatal error"):
        producer.flush()
    producer.discard()
    producer.send(TopicPartition("t", 0), b"h", b"v", 1000, "sent")
    assert [token for token, _ in producer.flush()] == ["sent"]
    transactions = client.transactions("name")
    transactions._client = LosesExceptions(transactions._client)
    with pytest.raises(LogUnavailableError, match="the log: the client met a fatal error"):
        transactions.commit()


def test_settings() -> None:
    brokers = {"kafka.bootstrap.servers": "b:9"}
    assert log_client_settings({**brokers, "kafka.topic": "t", "bucket": "1", "kafka.linger.ms": "7"}) == {
        "bootstrap.servers": "b:9",
        "linger.ms": "7",
    }
    own = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "me"}
    assert log_client_settings({**brokers, **own})["sasl.username"] == "me"
    java = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": JAAS}
    assert log_client_settings({**brokers, **java}) == {
        "bootstrap.servers": "b:9",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "hunter2",
    }
    with pytest.raises(LogConfigError, match="needs kafka.bootstrap.servers"):
        log_client_settings({"kafka.topic": "t"})
    stores = {"kafka.ssl.truststore.location": "trust.jks"}
    with pytest.raises(LogConfigError, match=r"kafka.ssl.truststore.location is an option of the Java client"):
        log_client_settings({**brokers, **stores})


@pytest.mark.parametrize(
    ("key", "value", "is_refused"),
    [
        ("kafka.plugin.library.paths", "/tmp/code.so", True),
        ("kafka.ssl.engine.location", "/tmp/code.so", True),
        ("kafka.ssl.engine.id", "dynamic", True),
        ("kafka.ssl.providers", "/tmp/code", True),
        ("kafka.sasl.kerberos.kinit.cmd", "touch /tmp/code", True),
        ("kafka.sasl.kerberos.principal", "me; touch /tmp/code", True),
        ("kafka.sasl.kerberos.keytab", '"$(touch /tmp/code)"', True),
        ("kafka.sasl.kerberos.principal", "me/host.example-1@REALM", False),
        ("kafka.sasl.kerberos.keytab", "/etc/me.keytab", False),
    ],
)
def test_no_option_of_a_table_runs_code(key: str, value: str, is_refused: bool) -> None:
    """Neither where it is given, nor where a table that another program has made has it."""
    options = {"kafka.bootstrap.servers": "b:9", "kafka.topic": "t", key: value}
    for use in (check_topic_options, log_client_settings):
        if not is_refused:
            use(options)
            continue
        with pytest.raises(InvalidRequestError, match="run code") as caught:
            use(options)
        assert caught.value.option == key


def test_options_that_are_refused_are_named_without_secrets() -> None:
    with pytest.raises(LogConfigError, match=r'No such configuration property: "no.such"'):
        KafkaLogClient({"bootstrap.servers": "b:9", "no.such": "x"}).producer()
    with pytest.raises(LogConfigError) as caught:
        KafkaLogClient({"bootstrap.servers": "b:9", "ssl.key.pem": "hunter2", "security.protocol": "SSL"}).producer()
    assert "hunter2" not in str(caught.value)


def test_giving_up_takes_nothing_of_what_follows(client: KafkaLogClient) -> None:
    producer = client.producer()
    for number in range(100):
        producer.discard()
        producer.send(TopicPartition("t", 0), b"h", b"v", 1000, number)
        assert [token for token, _ in producer.flush()] == [number]


def test_other_consumers_see_keys_values_and_tombstones(client: KafkaLogClient) -> None:
    place = TopicPartition("t", 1)
    producer = client.producer()
    producer.send(place, b"h0", b'{"k":1}', 1000, None, b"key")
    producer.send(place, b"h1", None, 1000, None, b"key")
    producer.flush()
    other = Consumer({"bootstrap.servers": client._settings["bootstrap.servers"], "group.id": "other"})
    other.assign([KafkaPartition("t", 1, 0)])
    messages: list[Message] = []
    while len(messages) < 2:
        messages += other.consume(2, timeout=300)
    other.close()
    assert [(each.key(), each.value()) for each in messages] == [(b"key", b'{"k":1}'), (b"key", None)]
    found = fetched(client, place, 0, until=2)
    assert [(each.header, each.value) for each in found.records] == [(b"h0", b'{"k":1}'), (b"h1", b"")]


class LateAdmin:
    """Brokers that answer for a topic some time after they have said that it is created, or that it is there."""

    def __init__(self, created: int | None, described: list[int], listed: list[int]) -> None:
        """`created` is the error of the creation; `described` and `listed` those of the first questions."""
        self.created, self.described, self.listed = created, described, listed

    def create_topics(self, topics: list[Any], **options: Any) -> dict[str, Future[None]]:
        return {topic.topic: answered(None, [] if self.created is None else [self.created]) for topic in topics}

    def describe_topics(self, topics: Any, **options: Any) -> dict[str, Future[Any]]:
        bits = SimpleNamespace(get_most_significant_bits=lambda: 0, get_least_significant_bits=lambda: 7)
        return {"t": answered(SimpleNamespace(topic_id=bits, partitions=[0, 1]), self.described)}

    def describe_configs(self, resources: list[Any], **options: Any) -> dict[Any, Future[dict[str, Any]]]:
        return {resource: answered({}, []) for resource in resources}

    def list_offsets(self, asked: Mapping[KafkaPartition, Any], **options: Any) -> dict[KafkaPartition, Future[Any]]:
        return {place: answered(SimpleNamespace(offset=place.partition), self.listed) for place in asked}


def answered(value: Any, errors: list[int]) -> Future[Any]:
    future: Future[Any] = Future()
    if errors:
        future.set_exception(KafkaException(KafkaError(errors.pop(0))))
    else:
        future.set_result(value)
    return future


@pytest.mark.parametrize("created", [None, KafkaError.TOPIC_ALREADY_EXISTS])
def test_a_new_topic_is_waited_for(created: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_log_client, "PAUSE_S", 0.0)
    client = KafkaLogClient({"bootstrap.servers": "nobody:9"})
    monkeypatch.setattr(client, "_admin", LateAdmin(created, [UNKNOWN] * 3, [NO_LEADER] * 3))
    assert client.create_topic("t", 2, {}) is (created is None)
    facts = client.topic("t")
    assert facts is not None and facts.partition_count == 2
    assert client.bounds("t") == {0: OffsetBounds(0, 0), 1: OffsetBounds(1, 1)}


def test_a_new_topic_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_log_client, "ANSWER_TIMEOUT_S", 0.0)
    client = KafkaLogClient({"bootstrap.servers": "nobody:9"})
    monkeypatch.setattr(client, "_admin", LateAdmin(None, [UNKNOWN] * 1000, []))
    with pytest.raises(LogUnavailableError, match="topic t was created, and the brokers do not know it"):
        client.create_topic("t", 2, {})
    monkeypatch.setattr(client, "_admin", LateAdmin(None, [], [NO_LEADER] * 1000))
    with pytest.raises(LogUnavailableError, match="topic t: "):
        client.bounds("t")


def test_a_secret_of_a_table_is_looked_up_by_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[dict[str, str]] = []
    monkeypatch.setattr(KafkaLogClient, "__init__", lambda self, settings: found.append(settings))
    monkeypatch.setenv("KAFKA_JAAS", 'ScramLoginModule required username="me" password="hunter2";')
    options = {
        "kafka.bootstrap.servers": "localhost:9",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": "env:KAFKA_JAAS",
        "bucket": "1",
    }
    _open_client(options)
    assert found[0]["sasl.password"] == "hunter2"
    with pytest.raises(InvalidRequestError, match="begin with KAFKA_"):
        _open_client(options | {"kafka.sasl.jaas.config": "env:HOME"})
