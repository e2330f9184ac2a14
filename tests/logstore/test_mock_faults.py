"""Brokers that refuse, vanish and answer late: the client over librdkafka's mock cluster."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from freshet.logstore.exceptions import LogConfigError, LogUnavailableError
from freshet.logstore.kafka import log_client as kafka_log_client
from freshet.logstore.kafka.log_client import KafkaLogClient
from freshet.logstore.protocol.client import TopicPartition
from freshet.logstore.writing.writer import LogWriter, WriterSettings
from freshet.storage.model.table_log import LogIdentity
from tests.kit.mock_kafka import PRODUCE, MockKafka, _library, mock_kafka
from tests.logstore.logged_tables import make_logged

PLACE = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> Iterator[MockKafka]:
    with mock_kafka({"t": 1}) as found:
        yield found


def client_of(cluster: MockKafka, **options: str) -> KafkaLogClient:
    fast = {"retry.backoff.ms": "10", "reconnect.backoff.ms": "10", "reconnect.backoff.max.ms": "50"}
    spelled = {key.replace("_", "."): value for key, value in options.items()}
    return KafkaLogClient({"bootstrap.servers": cluster.bootstrap_servers, **fast, **spelled})


@pytest.mark.parametrize(
    "error",
    [KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, KafkaError.NOT_LEADER_FOR_PARTITION],
)
def test_too_few_replicas_are_waited_for(cluster: MockKafka, error: int) -> None:
    producer = client_of(cluster).producer()
    cluster.fail(PRODUCE, error, times=3)
    for number in range(3):
        producer.send(PLACE, b"h", b"v", 0, number)
    assert [token for token, _ in producer.flush()] == [0, 1, 2]


def test_too_few_replicas_for_too_long_fail_the_commit(cluster: MockKafka) -> None:
    producer = client_of(cluster, message_timeout_ms="400").producer()
    cluster.fail(PRODUCE, KafkaError.NOT_ENOUGH_REPLICAS, times=1000)
    producer.send(PLACE, b"h", b"v", 0, None)
    with pytest.raises(LogUnavailableError, match=r"topic t partition 0: .* not acknowledged.*nothing is committed"):
        producer.flush()


def test_a_record_that_the_broker_finds_too_large_names_the_settings(cluster: MockKafka) -> None:
    producer = client_of(cluster).producer()
    cluster.fail(PRODUCE, KafkaError.MSG_SIZE_TOO_LARGE, times=1)
    producer.send(PLACE, b"h", b"v", 0, None)
    with pytest.raises(LogConfigError, match=r"topic t partition 0.*Raise max.message.bytes of the topic"):
        producer.flush()


def test_no_permission_is_reported_at_once(cluster: MockKafka) -> None:
    producer = client_of(cluster).producer()
    cluster.fail(PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED, times=1)
    producer.send(PLACE, b"h", b"v", 0, None)
    with pytest.raises(LogUnavailableError, match=r"topic t partition 0.*(?i:authorization)"):
        producer.flush()


def test_a_producer_that_librdkafka_gives_up_is_replaced(cluster: MockKafka) -> None:
    producer = client_of(cluster).producer()
    for number in range(2):
        cluster.fail(PRODUCE, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, times=1)
        producer.send(PLACE, b"h", b"v", 0, "lost")
        with pytest.raises(LogUnavailableError, match="the log: .*sequence"):
            producer.flush()
        with pytest.raises(LogUnavailableError):
            producer.send(PLACE, b"h", b"v", 0, "refused by a client that was given up")
        producer.discard()
        producer.send(PLACE, b"h", b"v", 0, number)
        assert [token for token, _ in producer.flush()] == [number]


def test_a_task_works_after_one_whose_producer_was_given_up(cluster: MockKafka) -> None:
    """Tasks of a process share a producer: `begin` of the next one discards what the last one left."""
    producer = client_of(cluster).producer()
    settings = WriterSettings(LogIdentity("t", "", "u", {}), 0, 0, 1_000_000)
    rows = pa.table({"_ROW_KIND": pa.array([0], pa.int8()), "k": [1]})
    for attempt, is_lost in enumerate((True, False)):
        writer = LogWriter(producer, settings, attempt=attempt)
        writer.begin(1, 0)
        if is_lost:
            cluster.fail(PRODUCE, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, times=1)
            writer.log(b"", 0, rows)
            with pytest.raises(LogUnavailableError):
                writer.finish()
        else:
            writer.log(b"", 0, rows)
            assert [each.row_count for each in writer.finish().values()] == [1]


def test_a_suite_without_the_mock_cluster_fails_where_nothing_may_be_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="librdkafka .* is missing"):
        _library(tmp_path)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="librdkafka .* is missing"):
        _library(tmp_path)


def test_a_broker_that_is_lost_and_comes_back_costs_time_alone(cluster: MockKafka) -> None:
    client = client_of(cluster)
    producer = client.producer()
    producer.send(PLACE, b"h", b"one", 0, 1)
    assert producer.flush() == [(1, 0)]
    assert [each.value for each in client.fetch({PLACE: 0}, wait_s=300)[PLACE].records] == [b"one"]
    cluster.set_up(False)
    producer.send(PLACE, b"h", b"two", 0, 2)
    assert client.fetch({PLACE: 1}, wait_s=0.3) == {}
    back = threading.Timer(0.3, cluster.set_up, [True])
    back.start()
    assert producer.flush() == [(2, 1)]
    back.join()
    assert [each.value for each in client.fetch({PLACE: 1}, wait_s=300)[PLACE].records] == [b"two"]


def test_brokers_that_are_down_are_named_within_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_log_client, "REACH_TIMEOUTS_S", (5.0,))
    made = make_logged(tmp_path, kafka__bootstrap__servers="127.0.0.1:1")
    table = made.with_options({"kafka.sasl.password": "hunter2"})
    with pytest.raises(LogUnavailableError, match=r"no broker of the log answers.*127.0.0.1:1.*refused") as caught:
        table.writer("u")
    assert "hunter2" not in str(caught.value)


def test_errors_of_transactions_are_without_the_word_commit_where_brokers_are_lost(cluster: MockKafka) -> None:
    transactions = client_of(cluster, message_timeout_ms="5000").transactions("name")
    transactions.start()
    transactions.begin()
    transactions.send(PLACE, b"h", b"v", 0, None)
    transactions.flush()
    transactions.commit()
    transactions.begin()
    cluster.set_up(False)
    transactions.send(PLACE, b"h", b"v", 0, None)
    with pytest.raises(LogUnavailableError, match=r"topic t partition 0: .* its transaction is aborted"):
        transactions.flush()
