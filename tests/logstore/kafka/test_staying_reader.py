"""A reader that stays at its place: what follows a range is there, whatever ended it, and whatever came between."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.logstore.exceptions import LogTruncatedError, LogUnavailableError
from freshet.logstore.kafka import range_reader
from freshet.logstore.kafka.offset_range import OffsetRange, RangeProgress
from freshet.logstore.kafka.polled_records import offset_of
from freshet.logstore.kafka.range_reader import RangeReader
from tests.kit.compacted_topic import offsets_there, produce_compacted
from tests.kit.mock_kafka import MockKafka, mock_kafka
from tests.kit.transactions import Transaction

COUNT = 300
TIMEOUT_S = 120.0


@pytest.fixture
def topics() -> Iterator[MockKafka]:
    with mock_kafka(topics={"a": 2, "b": 1}) as made:
        send(made.bootstrap_servers, COUNT)
        yield made


def send(servers: str, count: int) -> None:
    """So many more records for each partition, which say their place."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for _ in range(count):
        for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
            producer.produce(topic, f"{topic}{partition}", partition=partition)
    assert producer.flush(30) == 0


class Counted(RangeReader):
    """A reader that notes what its client is told to read."""

    moved: list[tuple[str, int, int]]

    def _go_to(self, starts) -> None:  # type: ignore[no-untyped-def]
        at = {place: stand.offset for place, stand in self._stands.items()}
        self.moved = [(*place, start) for place, start in starts.items() if at.get(place) != start]
        super()._go_to(starts)


def reader(
    servers: str, *, timeout_s: float = TIMEOUT_S, takes_losses: bool = False, isolation: str = "read_uncommitted"
) -> Counted:
    own = {"bootstrap.servers": servers, "reconnect.backoff.max.ms": "100", "isolation.level": isolation}
    return Counted(own, timeout_s=timeout_s, takes_losses=takes_losses, stays=True)


def read(own: RangeReader, *wanted: OffsetRange) -> None:
    """Reads ranges, whose records are all there."""
    given = [(each, RangeProgress(each.start)) for each in wanted]
    found: list[list[int]] = [[] for _ in wanted]
    for index, batch in own.read_several(given):
        found[index] += batch.offsets.tolist()
        assert set(batch.values) == {f"{wanted[index].topic}{wanted[index].partition}".encode()}
    assert found == [list(range(each.start, each.end)) for each in wanted]
    assert all(progress.reached >= each.end and not progress.passed_over for each, progress in given)


def test_ranges_that_follow_are_not_sought(topics: MockKafka) -> None:
    own = reader(topics.bootstrap_servers)
    read(own, OffsetRange("a", 0, 10, 20))
    assert own.moved == [("a", 0, 10)]
    for start in range(20, 100, 10):
        read(own, OffsetRange("a", 0, start, start + 10))
        assert own.moved == []
    read(own, OffsetRange("a", 0, 110, 120))
    assert own.moved == [("a", 0, 110)]
    read(own, OffsetRange("a", 0, 110, 120))
    assert own.moved == [("a", 0, 110)] and not own._stands
    read(own, OffsetRange("a", 0, 120, 130))
    read(own, OffsetRange("a", 0, 130, 140))
    assert own.moved == []
    own.close()


def test_partitions_that_are_not_asked_for_stay(topics: MockKafka) -> None:
    """What comes of them meanwhile is kept."""
    own, servers = reader(topics.bootstrap_servers), topics.bootstrap_servers
    read(own, OffsetRange("a", 0, 0, 10), OffsetRange("a", 1, 5, 10), OffsetRange("b", 0, 0, 7))
    read(own, OffsetRange("a", 0, 10, COUNT))
    read(own, OffsetRange("b", 0, 7, 8), OffsetRange("a", 1, 10, COUNT))
    assert own.moved == []
    send(servers, 20)
    read(own, OffsetRange("a", 1, COUNT, COUNT + 20))
    read(own, OffsetRange("b", 0, 8, COUNT + 20), OffsetRange("a", 0, COUNT, COUNT + 5))
    assert own.moved == []
    own.close()


@pytest.mark.parametrize("seed", range(3))
def test_random_ranges(topics: MockKafka, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order, of any partitions; what is kept may be next to nothing."""
    chance = random.Random(seed)
    monkeypatch.setattr(range_reader, "KEPT_BYTES", chance.choice((4, 100, 1 << 20)))
    own = reader(topics.bootstrap_servers)
    ends = dict.fromkeys((("a", 0), ("a", 1), ("b", 0)), 0)
    for _ in range(25):
        wanted = []
        for place in chance.sample(sorted(ends), chance.randint(1, 3)):
            start = ends[place] if chance.random() < 0.8 else chance.randrange(COUNT)
            end = min(COUNT, start + chance.choice((1, 3, 40)))
            if start < end:
                wanted.append(OffsetRange(*place, start, end))
                ends[place] = end
        read(own, *wanted)
    own.close()


def test_what_is_kept_is_bounded(topics: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "KEPT_BYTES", 20)
    own = reader(topics.bootstrap_servers)
    read(own, *(OffsetRange(*place, 0, COUNT) for place in (("a", 0), ("a", 1), ("b", 0))))
    send(topics.bootstrap_servers, 20)
    read(own, OffsetRange("b", 0, COUNT, COUNT + 20))
    send(topics.bootstrap_servers, 20)
    read(own, OffsetRange("b", 0, COUNT + 20, COUNT + 40))
    assert own._stands.keys() == {("b", 0)}
    read(own, OffsetRange("a", 0, COUNT, COUNT + 20))
    assert own.moved == [("a", 0, COUNT)]
    own.close()


def test_small_messages_that_are_kept_count_as_what_they_take(
    topics: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty values of two bytes are held with more than a hundred times as much."""
    monkeypatch.setattr(range_reader, "KEPT_BYTES", 10_000)
    own = reader(topics.bootstrap_servers)
    read(own, *(OffsetRange(*place, 0, COUNT) for place in (("a", 0), ("b", 0))))
    for number in range(2):
        send(topics.bootstrap_servers, 40)
        read(own, OffsetRange("b", 0, COUNT + 40 * number, COUNT + 40 * (number + 1)))
    read(own, OffsetRange("b", 0, COUNT + 80, COUNT + 80))
    assert own._stands.keys() == {("b", 0)}
    own.close()


def test_a_partition_that_is_left_is_fetched_no_more(topics: MockKafka) -> None:
    own = reader(topics.bootstrap_servers)
    for start in (0, 10):
        read(own, OffsetRange("a", 0, start, start + 10), OffsetRange("a", 1, start, start + 10))
    own.leave([("a", 0), ("b", 0)])
    assert [each.partition for each in own._consumer.assignment()] == [1]
    read(own, OffsetRange("a", 0, 20, 30), OffsetRange("a", 1, 20, 30))
    assert own.moved == [("a", 0, 20)]
    own.close()


def test_after_an_error_it_begins_anew(topics: MockKafka) -> None:
    own = reader(topics.bootstrap_servers, timeout_s=1)
    read(own, OffsetRange("a", 0, 0, 10))
    with pytest.raises(LogTruncatedError):
        read(own, OffsetRange("a", 0, 10, 20), OffsetRange("a", 1, 1000, 1010))
    read(own, OffsetRange("a", 0, 20, 30))
    assert own.moved == [("a", 0, 20)]
    topics.set_up(False)
    with pytest.raises(LogUnavailableError, match="nothing came for 1 s"):
        read(own, OffsetRange("a", 0, 30, COUNT + 1))
    topics.set_up(True)
    own._timeout_s = 20
    read(own, OffsetRange("a", 0, 40, 50))
    own.close()


def test_left_in_the_middle(topics: MockKafka) -> None:
    own = reader(topics.bootstrap_servers)
    reading = own.read_several([(OffsetRange("a", 0, 0, COUNT), RangeProgress(0))])
    next(reading)
    reading.close()  # type: ignore[attr-defined]
    assert not own._stands
    read(own, OffsetRange("a", 0, 5, 10))
    own.close()


def test_offsets_that_are_gone_are_passed_over(topics: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that was read beyond its end stands nowhere."""
    monkeypatch.setattr(range_reader, "ENDED_S", 0.1)
    own = reader(topics.bootstrap_servers, takes_losses=True, timeout_s=1)
    progress = RangeProgress(COUNT - 10)
    assert sum(map(len, own.read(OffsetRange("a", 0, COUNT - 10, COUNT + 10), progress))) == 10
    assert progress.passed_over == 10
    send(topics.bootstrap_servers, 20)
    read(own, OffsetRange("a", 0, COUNT + 10, COUNT + 20))
    own.close()


# --- of a real broker: transactions and records that a clean-up has taken ------------------------------------------


class Topic:
    """A topic of one partition, and what a reader under read_committed has to find in it."""

    def __init__(self, broker: ForeignBroker, there: Sequence[int] | None = None, *, name: str | None = None) -> None:
        """One that `there` is already, whose offsets these are; else a new one."""
        self.name = name or f"staying-{uuid4()}"
        self.servers = broker.bootstrap_servers
        self.there = list(there or ())
        self.end = self.there[-1] + 1 if self.there else 0
        if there is None:
            broker.create_topic(self.name)

    def plain(self, count: int, *, key: bytes | None = None) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5})
        for _ in range(count):
            producer.produce(self.name, b"x", key=key)
        assert producer.flush(60) == 0
        self.there += range(self.end, self.end + count)
        self.end += count

    def transaction(self, count: int, *, is_committed: bool) -> None:
        begun = Transaction(self.servers, self.name)
        begun.send([(None, b"t")] * count)
        begun.commit() if is_committed else begun.abort()
        self.there += range(self.end, self.end + count) if is_committed else ()
        self.end += count + 1

    def read(self, own: RangeReader, start: int, end: int) -> None:
        progress = RangeProgress(start)
        found = [
            offset_of(each)
            for batch in own.read(OffsetRange(self.name, 0, start, end), progress)
            for each in batch.messages
        ]
        assert found == [offset for offset in self.there if start <= offset < end]
        assert progress.reached >= end and not progress.passed_over


@pytest.mark.kafka
def test_markers_and_aborted_records_at_any_place(kafka_broker: ForeignBroker) -> None:
    """Ranges that end at, before and behind them, and such that have nothing else; records follow, or do not yet."""
    topic = Topic(kafka_broker)
    own = reader(topic.servers, isolation="read_committed")
    topic.plain(3)
    topic.transaction(2, is_committed=True)  # 3, 4 and a marker
    topic.read(own, 0, 5)
    topic.read(own, 5, 6)  # the marker alone
    topic.transaction(4, is_committed=False)  # 6 to 9 and a marker
    topic.read(own, 6, 8)
    topic.read(own, 8, 11)
    assert own.moved == []
    topic.transaction(3, is_committed=False)
    topic.plain(2)
    topic.read(own, 11, 12)
    topic.read(own, 12, 16)
    topic.transaction(1, is_committed=True)
    started_s = time.monotonic()
    for start in range(16, topic.end):
        topic.read(own, start, start + 1)
        assert own.moved == []
    assert time.monotonic() - started_s < TIMEOUT_S, "no range has waited for what does not come"
    own.close()


@pytest.mark.kafka
def test_an_end_that_was_said_while_another_partition_was_read(kafka_broker: ForeignBroker) -> None:
    """The client says once that a partition has ended, and nothing else says that what was aborted is over."""
    topic, other = Topic(kafka_broker), Topic(kafka_broker)
    own = reader(topic.servers, isolation="read_committed")
    for each in (topic, other):
        each.plain(2)
        each.read(own, 0, 2)
    topic.transaction(5, is_committed=False)
    time.sleep(0.3)  # until its end is said
    other.plain(4)
    other.read(own, 2, 6)
    topic.read(own, 2, 8)
    assert own.moved == []
    own.close()


@pytest.mark.kafka
@pytest.mark.slow
def test_offsets_that_a_clean_up_has_taken(kafka_broker: ForeignBroker) -> None:
    """Ranges of any size, most of which are gone in part or as a whole: no place is left, nothing is passed over."""
    chance = random.Random(3)
    name = f"compacted-{uuid4()}"
    keys = [chance.randrange(9) if number % 7 else 100 + number for number in range(COUNT)]
    produce_compacted(kafka_broker, name, keys)
    topic = Topic(kafka_broker, offsets_there(kafka_broker, name), name=name)
    assert topic.end == COUNT > 2 * len(topic.there)
    own = reader(topic.servers, isolation="read_committed")
    started_s, start, sizes = time.monotonic(), 0, [1, 1, 2, 3, 8, 30]
    while start < topic.end:
        end = min(topic.end, start + chance.choice(sizes))
        topic.read(own, start, end)
        assert own.moved == [] or start == 0
        start = end
        if start == COUNT:  # what follows has no gaps yet
            topic.plain(20, key=b"1")
    assert time.monotonic() - started_s < TIMEOUT_S, "no range has waited for what does not come"
    for start in (0, topic.there[1] + 1, COUNT // 2):  # and from a place that is gone
        topic.read(reader(topic.servers), start, topic.end)
    own.close()


def test_many_topics_that_come_are_asked_for_at_once() -> None:
    """Each question waits for the fetch that stands."""

    class Asked:
        def __init__(self, consumer: Any) -> None:
            self.consumer, self.asked = consumer, list[str | None]()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.consumer, name)

        def list_topics(self, topic: str | None = None, **options: Any) -> Any:
            self.asked.append(topic)
            return self.consumer.list_topics(topic, **options)

    names = [f"t{number}" for number in range(12)]
    with mock_kafka(topics=dict.fromkeys(names, 1)) as made:
        producer = Producer({"bootstrap.servers": made.bootstrap_servers})
        for name in names * 2:
            producer.produce(name, f"{name}0", partition=0)
        assert producer.flush(30) == 0
        own = reader(made.bootstrap_servers)
        asked = own._consumer = Asked(own._consumer)  # type: ignore[assignment]
        read(own, *(OffsetRange(name, 0, 0, 1) for name in names[:3]))
        assert sorted(map(str, asked.asked)) == names[:3]
        asked.asked.clear()
        read(own, *(OffsetRange(name, 0, int(name in names[:3]), 2) for name in names))
        assert asked.asked == [None]
        own.close()
