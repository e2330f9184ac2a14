"""What a cluster says of topics with transactions, aborted and open: of a real broker, as the mock knows none."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.logstore.exceptions import LogUnavailableError
from freshet.logstore.kafka import range_reader
from freshet.logstore.kafka.cluster import KafkaCluster, last_records
from freshet.logstore.kafka.java_options import READ_COMMITTED, READ_UNCOMMITTED, ClientSettings
from freshet.logstore.kafka.look import look_at_records
from freshet.logstore.kafka.offset_range import OffsetRange, RangeProgress
from freshet.logstore.kafka.range_reader import RangeReader
from freshet.logstore.kafka.record_sizes import NOTHING_SEEN, RecordSizes
from freshet.logstore.protocol.client import OffsetBounds
from tests.kit.transactions import Transaction

pytestmark = pytest.mark.kafka

ANSWER_S = 60.0


class Topic:
    """A topic of one partition: five records, then what the test adds."""

    def __init__(self, broker: ForeignBroker) -> None:
        self.name = f"transactions-{uuid.uuid4()}"
        broker.create_topic(self.name)
        self.settings = ClientSettings({"bootstrap.servers": broker.bootstrap_servers})
        self._producer = Producer({**self.settings.values, "linger.ms": 5, "log_level": 0})
        self.send(5)

    def send(self, count: int) -> None:
        for number in range(count):
            self._producer.produce(self.name, b"plain%d" % number)
        assert self._producer.flush(60) == 0

    def begin(self, count: int) -> Transaction:
        begun = Transaction(self.settings.values["bootstrap.servers"], self.name)
        begun.send((None, b"held%d" % number) for number in range(count))
        return begun

    def last(self, isolation: str, count: int) -> list[bytes | None]:
        found = last_records(self.settings, {self.name: 1}, count=count, timeout_s=ANSWER_S, isolation=isolation)
        return [each.value for each in found]


@pytest.fixture
def topic(kafka_broker: ForeignBroker) -> Topic:
    return Topic(kafka_broker)


def test_an_open_transaction_is_known_by_its_first_record(topic: Topic) -> None:
    cluster, place = KafkaCluster(topic.settings), (topic.name, 0)
    assert cluster.open_transactions([place], ANSWER_S) == []
    before_ms = time.time() * 1000 - 1000
    begun = topic.begin(3)
    topic.send(2)
    (found,) = cluster.open_transactions([place], ANSWER_S)
    assert (found.place, found.first, found.stable, found.end) == (place, 0, 5, 10)
    assert found.since_ms is not None and before_ms < found.since_ms < time.time() * 1000 + 1000
    assert " UTC: topic " in str(found) and str(found).endswith("partition 0, offsets 5 to 9")
    assert cluster.bounds([place], ANSWER_S) == {place: OffsetBounds(0, 10)}
    assert cluster.bounds([place], ANSWER_S, isolation=READ_COMMITTED) == {place: OffsetBounds(0, 5)}
    begun.abort()
    assert cluster.open_transactions([place], ANSWER_S) == []


@pytest.mark.parametrize("end", [Transaction.abort, None], ids=["aborted", "open"])
def test_samples_are_of_records_that_count(topic: Topic, end: Callable[[Transaction], None] | None) -> None:
    """The last ones lie far before the end; nothing is waited for that does not come."""
    begun = topic.begin(40)
    if end is not None:
        end(begun)
    begun_s = time.monotonic()
    assert topic.last(READ_COMMITTED, 2)[-2:] == [b"plain3", b"plain4"]
    assert topic.last(READ_UNCOMMITTED, 2)[-1] == b"held39"
    size = len("plain0")
    assert look_at_records(topic.settings, {topic.name: 1}, {}) == RecordSizes(size, size)
    assert look_at_records(topic.settings, {topic.name: 1}, {(topic.name, 0): 5}) == NOTHING_SEEN  # type: ignore[dict-item]
    assert time.monotonic() - begun_s < ANSWER_S / 2
    if end is None:
        begun.abort()


@pytest.mark.parametrize("takes_losses", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_what_an_open_transaction_holds_back_is_not_lost(
    topic: Topic, takes_losses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range that ends behind its first record is waited for, and never passed over."""
    monkeypatch.setattr(range_reader, "ENDED_S", 0.1)
    begun = topic.begin(3)
    settings = {**topic.settings.values, "isolation.level": READ_COMMITTED}
    reader = RangeReader(settings, timeout_s=1, takes_losses=takes_losses)
    wanted, progress = OffsetRange(topic.name, 0, 0, 8), RangeProgress(0)
    with pytest.raises(LogUnavailableError, match="nothing came for 1 s behind offset 5"):
        list(reader.read(wanted, progress))
    assert (progress.reached, progress.passed_over) == (5, 0)
    begun.commit()
    found = [value for each in reader.read(wanted, progress) for value in each.batch().column("value").to_pylist()]
    assert found == [b"held0", b"held1", b"held2"]
    reader.close()
