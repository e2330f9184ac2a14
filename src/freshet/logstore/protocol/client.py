"""What the log store asks of a log: the protocol. `kafka.log_client` is the real one, tests have one in memory.

Offsets are half-open ranges and may have gaps (markers of transactions, records that a clean-up has taken); `Fetched`
says where to go on, which may be behind the last record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from freshet._frozen import Frozen


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"topic {self.topic} partition {self.partition}"


class StoredRecord(NamedTuple):
    """A record as it lies in the log; `header` is None where another program wrote it, `value` is empty where there is
    none."""

    offset: int
    header: bytes | None
    value: bytes
    timestamp_ms: int = 0
    key: bytes | None = None


class Fetched(NamedTuple):
    """Records in the order of their offsets; `next_offset` is the one to go on with."""

    records: tuple[StoredRecord, ...]
    next_offset: int


class OffsetBounds(NamedTuple):
    """The first offset that is there, and the one that the next record will have."""

    first: int
    end: int


class TopicFacts(Frozen):
    """What is known of a topic; `topic_id` is empty where the brokers give none. Settings by their names in Kafka."""

    name: str
    topic_id: str
    partition_count: int
    settings: Mapping[str, str]


class LogProducer(Protocol):
    """Appends records; belongs to one writer."""

    def send(
        self,
        topic_partition: TopicPartition,
        header: bytes,
        value: bytes | None,
        timestamp_ms: int,
        token: object,
        key: bytes | None = None,
    ) -> None:
        """Hands a record over; may wait while too many are on their way. `LogUnavailableError` where one failed."""
        ...

    def flush(self) -> list[tuple[object, int]]:
        """Waits until everything sent is acknowledged: (token, offset) of each record since the last flush.

        Raises `LogUnavailableError` when one was not, or may not have been; nothing may be said of the others then.
        """
        ...

    def discard(self) -> None:
        """Forgets what was sent and not acknowledged; it may be appended all the same."""
        ...


class LogTransactions(LogProducer, Protocol):
    """A producer whose records are seen together, with `committed`, or never. Errors are `LogUnavailableError`; after
    one nothing is known of the transaction, and another producer of the same name has to `start`."""

    def start(self) -> None:
        """Takes over the name: aborts the open transaction of the producer that had it, which can commit no more."""
        ...

    def begin(self) -> None:
        """Begins a transaction."""
        ...

    def commit(self) -> None:
        """Returns when consumers of committed records see what was sent."""
        ...

    def abort(self) -> None:
        """Aborts the transaction, so that readers need not wait for its end."""
        ...


class LogClient(Protocol):
    """A cluster. Errors are those of `logstore.exceptions`."""

    def topic(self, name: str) -> TopicFacts | None:
        """The topic, or None where there is none."""
        ...

    def create_topic(self, name: str, partition_count: int, settings: Mapping[str, str]) -> bool:
        """Creates it; False where it is there already."""
        ...

    def bounds(self, topic: str) -> Mapping[int, OffsetBounds]:
        """The bounds of every partition of a topic."""
        ...

    def fetch(self, positions: Mapping[TopicPartition, int], *, wait_s: float) -> Mapping[TopicPartition, Fetched]:
        """Records at or after these offsets, some of what is there; waits so long where there are none.

        Raises `LogTruncatedError` for an offset that is not there: below the first, or above the end.
        """
        ...

    def producer(self) -> LogProducer:
        """A new producer."""
        ...

    def transactions(self, name: str) -> LogTransactions:
        """A new producer of transactions; of those with the same name the last one started counts."""
        ...

    def committed(self) -> LogClient:
        """Another client, whose `fetch` sees of transactions only what is committed."""
        ...

    def close(self) -> None:
        """Lets go of connections."""
        ...
