"""The partitions that a source reads: their ends, and waiting for what comes; of the mock cluster and of a real one."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.logstore.exceptions import LogConfigError, LogUnavailableError
from freshet.logstore.kafka import topic_watch
from freshet.logstore.kafka.topic_watch import EARLIEST, LATEST, Place, TopicWatch
from tests.kit.mock_kafka import LIST_OFFSETS, MockKafka, mock_kafka
from tests.kit.transactions import Transaction


@pytest.fixture
def cluster() -> Iterator[MockKafka]:
    with mock_kafka(topics={"a": 2, "b": 1}) as made:
        send(made.bootstrap_servers, ("a", 0), 5)
        yield made


def send(servers: str, place: Place, count: int = 1) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    for _ in range(count):
        producer.produce(place[0], b"x", partition=place[1])
    assert producer.flush(30) == 0


def watch(servers: str, topics: Any, assigned: set[Place] | None = None, isolation: str = "") -> TopicWatch:
    own = {"bootstrap.servers": servers, "reconnect.backoff.max.ms": "100"}
    own |= {"isolation.level": isolation} if isolation else {}
    return TopicWatch(own, topics, assigned, attempts=3, pause_s=0.01)


def test_one_that_is_left_does_not_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_watch, "ASK_S", 0.2)
    own = TopicWatch({"bootstrap.servers": "127.0.0.1:1"}, {"a"}, pause_s=60)
    leaving = threading.Timer(0.5, own.leave)  # in the first pause
    leaving.start()
    begun_s = time.monotonic()
    with pytest.raises(LogUnavailableError):
        own.places()
    assert time.monotonic() - begun_s < 30
    own.close()
    leaving.join()


def test_one_that_is_left_does_not_wait_for_a_whole_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What asks cannot be ended, and a supervisor waits for the end of the run."""
    monkeypatch.setattr(topic_watch, "PATIENCE_S", 0.2, raising=False)
    monkeypatch.setattr(topic_watch, "ASK_S", 20.0)
    own = TopicWatch({"bootstrap.servers": "127.0.0.1:1"}, {"a"})
    leaving = threading.Timer(0.1, own.leave)
    leaving.start()
    begun_s = time.monotonic()
    with pytest.raises(LogUnavailableError):
        own.places()
    assert time.monotonic() - begun_s < 15
    own.close()
    leaving.join()


def test_one_attempt_asks_until_its_time_is_over(cluster: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_watch, "PATIENCE_S", 0.4)
    monkeypatch.setattr(topic_watch, "ASK_S", 60.0)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "reconnect.backoff.max.ms": "100"}
    own = TopicWatch(settings, {"b"}, attempts=1)
    cluster.set_up(False)
    back = threading.Timer(0.5, cluster.set_up, [True])
    back.start()
    assert own.ends({}) == {("b", 0): 0}
    own.close()
    back.join()


@pytest.mark.parametrize(
    ("topics", "assigned", "ends"),
    [
        ({"a"}, None, {("a", 0): 5, ("a", 1): 0}),
        ({"a", "b"}, None, {("a", 0): 5, ("a", 1): 0, ("b", 0): 0}),
        (re.compile("[ac]"), None, {("a", 0): 5, ("a", 1): 0}),
        (re.compile("nothing"), None, {}),
        ({"a"}, {("a", 1), ("a", 7)}, {("a", 1): 0}),
    ],
)
def test_ends(cluster: MockKafka, topics: Any, assigned: set[Place] | None, ends: dict[Place, int]) -> None:
    own = watch(cluster.bootstrap_servers, topics, assigned)
    assert own.ends({}) == ends and own.places() == ends.keys()
    assert own.offsets({**dict.fromkeys(ends, EARLIEST), ("z", 9): EARLIEST}) == dict.fromkeys(ends, 0)
    assert own.offsets(dict.fromkeys(ends, LATEST)) == ends
    own.close()


def test_topics_that_come_are_seen_after_a_while(cluster: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    own = watch(cluster.bootstrap_servers, re.compile("."))
    assert len(own.ends({})) == 3
    cluster.create_topic("c")
    assert len(own.ends({})) == 3 and len(own.ends({}, fresh=True)) == 4
    cluster.create_topic("d")
    monkeypatch.setattr(topic_watch, "REFRESH_S", 0.0)
    assert len(own.ends({})) == 5
    own.close()


def test_a_topic_that_is_not_there(cluster: MockKafka) -> None:
    own = watch(cluster.bootstrap_servers, {"a", "nowhere"})
    with pytest.raises(LogUnavailableError, match="topic nowhere"):
        own.ends({})
    own.close()


@pytest.mark.parametrize(
    ("error", "times", "kind"),
    [
        (KafkaError.NOT_LEADER_FOR_PARTITION, 2, None),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, 100, LogConfigError),
    ],
)
def test_answers_that_fail(cluster: MockKafka, error: int, times: int, kind: type[Exception] | None) -> None:
    own = watch(cluster.bootstrap_servers, {"b"})
    assert own.ends({}) == {("b", 0): 0}
    cluster.fail(LIST_OFFSETS, error, times=times)
    if kind is None:
        assert own.ends({}) == {("b", 0): 0}
    else:
        with pytest.raises(kind, match="the partitions of b have ends that are not known: .*authorization.*127.0.0.1"):
            own.ends({})
    own.close()


def test_brokers_that_are_gone(cluster: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_watch, "ASK_S", 0.1)
    own = watch(cluster.bootstrap_servers, {"b"})
    own.ends({})
    cluster.set_up(False)
    with pytest.raises(LogUnavailableError, match="the partitions of b have ends that are not known"):
        own.ends({})
    assert not own.wait({("b", 0): 0}, 0.1)
    cluster.set_up(True)
    monkeypatch.setattr(topic_watch, "ASK_S", 20.0)
    assert own.ends({}) == {("b", 0): 0}
    own.close()


def test_an_end_that_went_back_is_asked_for_again(cluster: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    own = watch(cluster.bootstrap_servers, {"a"})
    asked, given = own._offsets, iter([{("a", 0): 3}, {("a", 0): 3}])
    monkeypatch.setattr(own, "_offsets", lambda times: next(given, None) or asked(times))
    assert own.ends({("a", 0): 5})["a", 0] == 5
    assert own.ends({("a", 0): 9})["a", 0] == 5, "as often as is allowed, and then it is so"
    own.close()


def test_waiting_ends_with_a_record(cluster: MockKafka) -> None:
    servers = cluster.bootstrap_servers
    own, ends = watch(servers, {"a", "b"}), {("a", 0): 5, ("a", 1): 0, ("b", 0): 0}
    begun_s = time.monotonic()
    assert not own.wait(ends, 0.05) and 0.04 < time.monotonic() - begun_s < 60
    for place in ends:
        late = threading.Timer(0.05, send, (servers, place))
        late.start()
        assert own.wait(ends, 20)
        late.join()
        assert own.wait(ends, 20), "it is still there"
        ends[place] += 1
        assert not own.wait(ends, 0.01)
    send(servers, ("a", 0), 3)
    assert own.wait(ends, 20)
    ends["a", 0] += 3
    assert not own.wait(ends, 0.05)
    assert own.wait({**ends, ("a", 0): 2}, 20), "what was there before counts too"
    own.close()


@pytest.mark.kafka
def test_ends_lie_before_an_open_transaction(kafka_broker: ForeignBroker) -> None:
    topic = f"watched-{uuid4()}"
    kafka_broker.create_topic(topic)
    servers, place = kafka_broker.bootstrap_servers, (topic, 0)
    send(servers, place, 2)
    committed = watch(servers, {topic}, isolation="read_committed")
    all_of_it = watch(servers, {topic}, isolation="read_uncommitted")
    begun = Transaction(servers, topic)
    begun.send([(None, b"held")] * 3)
    assert committed.ends({}) == {place: 2} and all_of_it.ends({}) == {place: 5}
    assert all_of_it.wait({place: 2}, 20) and not committed.wait({place: 2}, 0.3)
    begun.commit()
    assert committed.wait({place: 2}, 20) and committed.ends({}) == {place: 6}
    committed.close()
    all_of_it.close()


@pytest.mark.kafka
def test_partitions_and_topics_that_come_and_go(kafka_broker: ForeignBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = f"watched-{uuid4()}"
    kafka_broker.create_topic(f"{prefix}-a")
    kafka_broker.create_topic(f"{prefix}-b")
    servers = kafka_broker.bootstrap_servers
    own, named = watch(servers, re.compile(prefix)), watch(servers, {f"{prefix}-b"})
    assert len(own.ends({})) == 2 and len(named.ends({})) == 1
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(f"{prefix}-a", 3)])[f"{prefix}-a"].result(60)
    monkeypatch.setattr(topic_watch, "REFRESH_S", 0.0)
    deadline = time.monotonic() + 60
    while len(own.ends({})) < 4:
        assert time.monotonic() < deadline
    kafka_broker.delete_topic(f"{prefix}-b")
    while len(own.ends({})) != 3:
        assert time.monotonic() < deadline
    with pytest.raises(LogUnavailableError, match=f"topic {prefix}-b"):
        named.ends({})
    own.close()
    named.close()
