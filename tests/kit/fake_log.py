"""A log in memory: topics, partitions, offsets with gaps, retention, and records that go wrong on request.

log = FakeLog()
log.client()                         a `LogClient`; as many as wanted
log.truncate("t", 0, 7)              retention has taken what lies before offset 7
log.recreate("t")                    deleted and created again: another id, offsets from 0
log.gap("t", 0)                      a transaction marker took an offset
log.lose("t", 0, 5)                  the record at that offset is gone, though it was acknowledged
log.duplicates = lambda: True        asked at each record: is it stored twice?
log.reach = f                        called with each step of transactions, before it: start begin send commit abort,
                                     and "committed" after it; raises what goes wrong there
log.seen("t")                        what a consumer with isolation.level=read_committed has read of each partition
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from freshet.logstore.exceptions import LogTruncatedError, LogUnavailableError
from freshet.logstore.protocol.client import Fetched, OffsetBounds, StoredRecord, TopicFacts, TopicPartition


@dataclass(eq=False)
class FakeTransaction:
    name: str
    places: set[TopicPartition] = field(default_factory=set)
    outcome: str = "open"


@dataclass
class FakePartition:
    first: int = 0
    end: int = 0
    records: list[StoredRecord] = field(default_factory=list)
    transactions: dict[int, FakeTransaction] = field(default_factory=dict)
    """Of the records that were sent in one, by their offsets."""

    @property
    def stable_end(self) -> int:
        """Up to here it is known what is committed."""
        return min((at for at, each in self.transactions.items() if each.outcome == "open"), default=self.end)

    def committed(self) -> list[StoredRecord]:
        gone = {at for at, each in self.transactions.items() if each.outcome == "aborted"}
        return [each for each in self.records if each.offset < self.stable_end and each.offset not in gone]

    def append(self, header: bytes | None, value: bytes | None, timestamp_ms: int, key: bytes | None = None) -> int:
        self.records.append(StoredRecord(self.end, header, value or b"", timestamp_ms, key))
        self.end += 1
        return self.end - 1


@dataclass
class FakeTopic:
    topic_id: str
    settings: Mapping[str, str]
    partitions: list[FakePartition]


class FakeLog:
    """The cluster; clients and producers of it may come and go."""

    def __init__(self) -> None:
        self.topics: dict[str, FakeTopic] = {}
        self.created = 0
        self.is_down = False
        self.duplicates: Callable[[], bool] = lambda: False
        self.losses: Callable[[], bool] = lambda: False
        self.before_append: Callable[[TopicPartition], None] = lambda place: None
        self.reach: Callable[[str], None] = lambda step: None
        self.sessions: dict[str, int] = {}
        self.open: dict[str, FakeTransaction] = {}
        self.chunk = 1000
        self.fetches = 0

    def client(self) -> FakeClient:
        return FakeClient(self)

    def seen(self, topic: str) -> list[list[StoredRecord]]:
        return [partition.committed() for partition in self.topics[topic].partitions]

    def end(self, name: str, outcome: str) -> None:
        """Ends what is open of a name; the marker takes an offset in each of its partitions."""
        transaction = self.open.pop(name, None)
        if transaction is None:
            return
        transaction.outcome = outcome
        for place in transaction.places:
            self.partition(place).end += 1

    def partition(self, place: TopicPartition) -> FakePartition:
        return self.topics[place.topic].partitions[place.partition]

    def truncate(self, topic: str, partition: int, first: int) -> None:
        part = self.topics[topic].partitions[partition]
        part.first = max(part.first, first)
        part.records = [record for record in part.records if record.offset >= first]

    def recreate(self, topic: str) -> None:
        old = self.topics.pop(topic)
        self.client().create_topic(topic, len(old.partitions), old.settings)

    def gap(self, topic: str, partition: int) -> None:
        self.topics[topic].partitions[partition].end += 1

    def lose(self, topic: str, partition: int, offset: int) -> None:
        part = self.topics[topic].partitions[partition]
        part.records = [record for record in part.records if record.offset != offset]


class FakeProducer:
    """A `LogProducer`: what is sent is in the log at once."""

    def __init__(self, log: FakeLog) -> None:
        self._log = log
        self._sent: list[tuple[object, int]] = []

    def send(
        self,
        place: TopicPartition,
        header: bytes,
        value: bytes | None,
        timestamp_ms: int,
        token: object,
        key: bytes | None = None,
    ) -> None:
        self._log.before_append(place)
        if self._log.is_down:
            raise LogUnavailableError(f"no broker took a record for {place.topic} within the time")
        part = self._log.partition(place)
        offset = part.append(header, value, timestamp_ms, key)
        if self._log.losses():
            part.records.pop()
        if self._log.duplicates():
            offset = part.append(header, value, timestamp_ms, key)
        self._sent.append((token, offset))

    def flush(self) -> list[tuple[object, int]]:
        if self._log.is_down:
            raise LogUnavailableError("no broker answered within the time")
        sent, self._sent = self._sent, []
        return sent

    def discard(self) -> None:
        self._sent = []


class FakeTransactions(FakeProducer):
    """A `LogTransactions`."""

    def __init__(self, log: FakeLog, name: str) -> None:
        super().__init__(log)
        self._name = name
        self._session = -1

    def start(self) -> None:
        self._log.reach("start")
        self._check_up()
        self._session = self._log.sessions[self._name] = self._log.sessions.get(self._name, -1) + 1
        self._log.end(self._name, "aborted")

    def begin(self) -> None:
        self._step("begin")
        if self._name in self._log.open:
            raise LogUnavailableError("a transaction is open already")
        self._log.open[self._name] = FakeTransaction(self._name)

    def send(
        self,
        place: TopicPartition,
        header: bytes,
        value: bytes | None,
        timestamp_ms: int,
        token: object,
        key: bytes | None = None,
    ) -> None:
        self._step("send")
        transaction = self._transaction()
        super().send(place, header, value, timestamp_ms, token, key)
        transaction.places.add(place)
        partition = self._log.partition(place)
        partition.transactions[partition.end - 1] = transaction

    def commit(self) -> None:
        self._step("commit")
        self._transaction()
        self._log.end(self._name, "committed")
        self._log.reach("committed")

    def abort(self) -> None:
        self._step("abort")
        self._transaction()
        self._log.end(self._name, "aborted")

    def _transaction(self) -> FakeTransaction:
        if self._name not in self._log.open:
            raise LogUnavailableError("no transaction is open")
        return self._log.open[self._name]

    def _step(self, step: str) -> None:
        self._log.reach(step)
        self._check_up()
        if self._session != self._log.sessions.get(self._name):
            raise LogUnavailableError("fenced by a newer producer of this name")

    def _check_up(self) -> None:
        if self._log.is_down:
            raise LogUnavailableError("no broker answered within the time")


class FakeClient:
    """A `LogClient`."""

    def __init__(self, log: FakeLog, *, sees_committed: bool = False) -> None:
        self._log = log
        self._sees_committed = sees_committed

    def topic(self, name: str) -> TopicFacts | None:
        self._check_up()
        found = self._log.topics.get(name)
        return None if found is None else TopicFacts(name, found.topic_id, len(found.partitions), found.settings)

    def create_topic(self, name: str, partition_count: int, settings: Mapping[str, str]) -> bool:
        self._check_up()
        if name in self._log.topics:
            return False
        self._log.created += 1
        partitions = [FakePartition() for _ in range(partition_count)]
        self._log.topics[name] = FakeTopic(f"id-{self._log.created}", settings, partitions)
        return True

    def bounds(self, topic: str) -> Mapping[int, OffsetBounds]:
        self._check_up()
        parts = self._log.topics[topic].partitions
        return {number: OffsetBounds(part.first, part.end) for number, part in enumerate(parts)}

    def fetch(self, positions: Mapping[TopicPartition, int], *, wait_s: float) -> Mapping[TopicPartition, Fetched]:
        self._check_up()
        self._log.fetches += 1
        found = {}
        for place, position in positions.items():
            part = self._log.partition(place)
            if not part.first <= position <= part.end:
                raise LogTruncatedError(
                    f"topic {place.topic} partition {place.partition} has offsets {part.first} to {part.end}, "
                    f"not {position}"
                )
            there, end = part.records, part.end
            if self._sees_committed:
                there, end = part.committed(), part.stable_end
            records = tuple(each for each in there if each.offset >= position)[: self._log.chunk]
            is_all = not records or records[-1] is there[-1]
            after = end if is_all else records[-1].offset + 1
            if after > position:
                found[place] = Fetched(records, after)
        return found

    def producer(self) -> FakeProducer:
        return FakeProducer(self._log)

    def transactions(self, name: str) -> FakeTransactions:
        return FakeTransactions(self._log, name)

    def committed(self) -> FakeClient:
        return FakeClient(self._log, sees_committed=True)

    def close(self) -> None:
        pass

    def _check_up(self) -> None:
        if self._log.is_down:
            raise LogUnavailableError("no broker answered within the time")
