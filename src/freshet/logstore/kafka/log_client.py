"""A Kafka cluster as the log asks for it: `LogClient` over librdkafka, and its producers.

Reading sees everything that is in a partition, in the order of its offsets: which records count is not decided here. An
offset that is not there is an error, never another offset. A record whose acknowledgement does not come makes the
commit fail.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from confluent_kafka.cimpl import NewTopic

from freshet.logstore.exceptions import LogConfigError, LogTruncatedError, LogUnavailableError
from freshet.logstore.kafka.connection import LastError, log_client_settings, made_client
from freshet.logstore.kafka.partition_offsets import offset_bounds
from freshet.logstore.protocol.client import Fetched, OffsetBounds, StoredRecord, TopicFacts, TopicPartition
from freshet.logstore.protocol.record import HEADER_NAME

ANSWER_TIMEOUT_S: Final = 30.0
"""How long a question to the brokers may take."""

REACH_TIMEOUTS_S: Final = (1.0, 2.0, 5.0)
"""How long the brokers may take to answer for the first time: tries, longer and longer, as a refusal is known early."""

PAUSE_S: Final = 0.05
"""Between two questions about what is about to be there."""

FETCH_RECORDS_MAX: Final = 10_000

_UNKNOWN: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_NO_LEADER: Final = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
_REFUSALS: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL)
"""Answers that trying again does not change."""
_DELIVERY_TIMEOUT_MS: Final = 60_000
"""How long a record may wait for its acknowledgement before the commit fails; `kafka.message.timeout.ms` overrides."""

_TRANSACTION_WAIT_S: Final = 20.0
"""How long taking over, and ending a transaction, may take; a commit that is there already waits for it."""

_TRANSACTION_TIMEOUT_MS: Final = 900_000
"""After this the brokers abort a transaction that was not ended: as long as they allow by default, as a snapshot may be
large. `kafka.transaction.timeout.ms` overrides."""

_TRANSACTION_QUEUE_KB: Final = 64 * 1024
"""What may be on its way of a large snapshot: little enough to be acknowledged in time."""

_ABORT_WAIT_S: Final = 5.0

_CALL_ERRORS: Final = (KafkaException, SystemError)
"""What calls of a producer raise. Where a fatal error, such as being fenced, comes together with reports of deliveries,
confluent-kafka was seen to lose its exception: the call then fails with a SystemError that says just that."""


class KafkaLogClient:
    """A `LogClient` of a Kafka cluster."""

    def __init__(self, settings: Mapping[str, str], *, isolation: str = "read_uncommitted") -> None:
        self._settings = dict(settings)
        self._isolation = isolation
        self._last_error = LastError(settings)
        self._admin: AdminClient | None = None
        self._consumer: Consumer | None = None
        self._positions: dict[TopicPartition, int] = {}

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> KafkaLogClient:
        """A client of the cluster that the `kafka.*` options of a table name."""
        return cls(log_client_settings(options))

    def topic(self, name: str) -> TopicFacts | None:
        """Its id, partitions and settings; None where there is none."""
        admin = self._administrator()
        try:
            found = admin.describe_topics(TopicCollection([name]), request_timeout=ANSWER_TIMEOUT_S)[name].result()
            resource = ConfigResource(ConfigResource.Type.TOPIC, name)
            entries = admin.describe_configs([resource], request_timeout=ANSWER_TIMEOUT_S)[resource].result()
        except KafkaException as error:
            if _code(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise self._last_error.unavailable(f"topic {name}", error) from error
        bits = (found.topic_id.get_most_significant_bits(), found.topic_id.get_least_significant_bits())
        settings = {key: entry.value for key, entry in entries.items() if entry.value is not None}
        return TopicFacts(name, str(found.topic_id) if any(bits) else "", len(found.partitions), settings)

    def create_topic(self, name: str, partition_count: int, settings: Mapping[str, str]) -> bool:
        """Creates it with as many replicas as the brokers do by default.

        Waits until the brokers know it: they may hear of a topic after the answer that it was created, and then also
        one of two programs that were to create it at once would find none.
        """
        topic = NewTopic(name, num_partitions=partition_count, replication_factor=-1, config=dict(settings))
        is_new = True
        try:
            self._administrator().create_topics([topic], request_timeout=ANSWER_TIMEOUT_S)[name].result()
        except KafkaException as error:
            is_new = False
            if _code(error) != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._last_error.unavailable(f"topic {name}", error) from error
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while self.topic(name) is None:
            if time.monotonic() > deadline:
                raise LogUnavailableError(
                    f"topic {name} was created, and the brokers do not know it; look at their logs"
                )
            time.sleep(PAUSE_S)
        return is_new

    def bounds(self, topic: str) -> Mapping[int, OffsetBounds]:
        """First and next offset of every partition; one that has no leader at the moment is waited for."""
        facts = self.topic(topic)
        places = [TopicPartition(topic, number) for number in range(0 if facts is None else facts.partition_count)]
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            try:
                found = offset_bounds(self._administrator(), places, ANSWER_TIMEOUT_S)
                return {place.partition: bounds for place, bounds in found.items()}
            except KafkaException as error:
                if _code(error) not in _NO_LEADER or time.monotonic() > deadline:
                    raise self._last_error.unavailable(f"topic {topic}", error) from error
            time.sleep(PAUSE_S)

    def fetch(self, positions: Mapping[TopicPartition, int], *, wait_s: float) -> Mapping[TopicPartition, Fetched]:
        """Records from these positions on; partitions are followed from one call to the next."""
        if not positions:
            return {}
        deadline = time.monotonic() + wait_s
        while True:
            found = self._fetched(positions, max(0.0, deadline - time.monotonic()))
            if found or time.monotonic() >= deadline:
                return found

    def _fetched(self, positions: Mapping[TopicPartition, int], wait_s: float) -> dict[TopicPartition, Fetched]:
        """What comes first, which may be that a partition has no more."""
        consumer = self._assigned(positions)
        messages: list[Any]
        try:
            messages = [message for message in [consumer.poll(wait_s)] if message is not None]
            messages += consumer.consume(FETCH_RECORDS_MAX, 0) if messages else []
        except KafkaException as error:
            raise self._last_error.unavailable("the log", error) from error
        records: dict[TopicPartition, list[StoredRecord]] = {}
        after: dict[TopicPartition, int] = {}
        for message in messages:
            topic_partition = TopicPartition(message.topic(), message.partition())
            problem = message.error()
            if problem is None:
                records.setdefault(topic_partition, []).append(_stored(message))
                after[topic_partition] = message.offset() + 1
            elif problem.code() == KafkaError._PARTITION_EOF:
                after[topic_partition] = message.offset()
            else:
                self._positions = {}
                raise self._fetch_error(topic_partition, positions, problem)
        self._positions |= after
        found = {
            topic_partition: Fetched(tuple(records.get(topic_partition, ())), offset)
            for topic_partition, offset in after.items()
        }
        return {
            topic_partition: each
            for topic_partition, each in found.items()
            if each.next_offset > positions[topic_partition]
        }

    def producer(self) -> _KafkaProducer:
        """A new producer."""
        return _KafkaProducer(self._settings)

    def transactions(self, name: str) -> KafkaTransactions:
        """A new producer of transactions."""
        return KafkaTransactions(self._settings, name)

    def committed(self) -> KafkaLogClient:
        """A client that sees of transactions only what is committed."""
        return KafkaLogClient(self._settings, isolation="read_committed")

    def close(self) -> None:
        """Ends the consumer."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _administrator(self) -> AdminClient:
        if self._admin is None:
            admin = made_client(AdminClient, {**self._settings, "error_cb": self._last_error.keep, "log_level": 0})
            self._reach(admin)
            self._admin = admin
        return self._admin

    def _reach(self, admin: AdminClient) -> None:
        """Raises `LogUnavailableError` within seconds where no broker answers or all refuse."""
        for timeout_s in REACH_TIMEOUTS_S:
            try:
                admin.list_topics(timeout=timeout_s)
                return
            except KafkaException as error:
                admin.poll(0)  # hears why
                refused = self._last_error.last is not None and self._last_error.last.code() in _REFUSALS
                if refused or timeout_s == REACH_TIMEOUTS_S[-1]:
                    raise self._last_error.unavailable(
                        "no broker of the log answers; look at kafka.bootstrap.servers, kafka.security.protocol and "
                        "kafka.sasl.*",
                        error,
                    ) from error

    def _assigned(self, positions: Mapping[TopicPartition, int]) -> Consumer:
        """The consumer, which goes on by itself where the positions are those it has come to."""
        if self._consumer is None:
            self._consumer = made_client(
                Consumer,
                {
                    "group.id": "freshet-log-reader",  # nothing is committed to it
                    "fetch.wait.max.ms": 50,
                    **self._settings,
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "error",
                    "isolation.level": self._isolation,
                    "enable.partition.eof": True,
                    "error_cb": self._last_error.keep,
                    "log_level": 0,
                },
            )
            self._positions = {}
        try:
            if self._positions != positions:
                self._consumer.assign(
                    [KafkaPartition(*topic_partition, offset) for topic_partition, offset in positions.items()]
                )
        except KafkaException as error:
            self._positions = {}
            raise self._last_error.unavailable("the log", error) from error
        self._positions = dict(positions)
        return self._consumer

    def _fetch_error(
        self, topic_partition: TopicPartition, positions: Mapping[TopicPartition, int], error: KafkaError
    ) -> LogTruncatedError | LogUnavailableError:
        text = str(topic_partition)
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            bounds = self.bounds(topic_partition.topic)[topic_partition.partition]
            return LogTruncatedError(
                f"{text} has offsets {bounds.first} to {bounds.end}, not {positions[topic_partition]}, where the "
                "reader goes on: retention was faster. Begin at a newer snapshot (scan_mode='latest-full'), or set "
                "log.on-truncated=fall-back; raise retention.ms of the topic"
            )
        if error.code() in _UNKNOWN:
            return LogUnavailableError(
                f"{text}: {error.str()}, where the reader goes on at offset {positions[topic_partition]}. If the "
                "topic was deleted, its changes are gone: the writer must begin a new log (kafka.topic), readers at a "
                "newer snapshot (scan_mode='latest-full')"
            )
        return LogUnavailableError(f"{text}: {error.str()}{self._last_error.text()}")


def _stored(message: Any) -> StoredRecord:
    header = next((value for name, value in message.headers() or () if name == HEADER_NAME), None)
    return StoredRecord(message.offset(), header, message.value() or b"", message.timestamp()[1])


def _code(error: KafkaException) -> int | None:
    detail = error.args[0] if error.args else None
    return detail.code() if isinstance(detail, KafkaError) else None


class _KafkaProducer:
    """A `LogProducer`: idempotent, acknowledged by all replicas in sync."""

    _OUTCOME = "nothing is committed"

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._failure: KafkaError | None = None
        self._failed_at: TopicPartition | None = None
        self._last_error = LastError(settings)
        self._delivered: list[tuple[object, int]] = []
        self._sent = 0
        self._generation = 0
        self._settings = {
            "linger.ms": 0.5,  # what one batch logs is there at once; with 2 its readers waited for that
            "compression.type": "lz4",
            "message.timeout.ms": _DELIVERY_TIMEOUT_MS,
            **settings,
            "enable.idempotence": True,
            "acks": "all",
            "error_cb": self._last_error.keep,
            "log_level": 0,
        }
        self._is_given_up = False
        self._client = made_client(Producer, self._settings)

    def send(
        self,
        topic_partition: TopicPartition,
        header: bytes,
        value: bytes | None,
        timestamp_ms: int,
        token: object,
        key: bytes | None = None,
    ) -> None:
        """Hands a record over; waits while the queue is full."""
        generation = self._generation

        def on_delivery(error: KafkaError | None, message: Any) -> None:
            if generation != self._generation:
                return
            if error is not None:
                if self._failure is None:
                    # Nothing may be called here: with a fatal error the client runs this, its exception still pending.
                    self._failure, self._failed_at = error, topic_partition
            else:
                self._delivered.append((token, message.offset()))

        while True:
            try:
                self._client.produce(
                    topic_partition.topic,
                    value=value,
                    key=key,
                    partition=topic_partition.partition,
                    headers=[(HEADER_NAME, header)],
                    timestamp=timestamp_ms,
                    on_delivery=on_delivery,
                )
                break
            except BufferError:
                self._poll(0.1)
            except _CALL_ERRORS as error:
                raise self._unavailable(str(topic_partition), error) from error
        self._sent += 1
        self._poll(0)

    def flush(self) -> list[tuple[object, int]]:
        """Waits until everything is acknowledged, or failed."""
        try:
            self._client.flush()
        except _CALL_ERRORS as error:
            raise self._unavailable("the log", error) from error
        self._check()
        delivered, self._delivered, sent, self._sent = self._delivered, [], self._sent, 0
        if len(delivered) != sent:
            raise LogUnavailableError(f"{sent - len(delivered)} of {sent} records of the log were not acknowledged")
        return delivered

    def discard(self) -> None:
        """Forgets what was sent; it may still be appended, as rows of an attempt that no snapshot names.

        librdkafka's purge is no help: it was seen to take records that were produced after it. After a fatal error a
        client takes no record any more, so what follows has another one.
        """
        self._forget()
        with contextlib.suppress(LogUnavailableError):
            self._poll(0)  # hears of an error that came since
        if self._is_given_up:
            self._client = made_client(Producer, self._settings)
            self._is_given_up = False

    def _forget(self) -> None:
        self._generation += 1
        self._delivered, self._sent, self._failure = [], 0, None

    def _unavailable(self, what: str, error: KafkaException | SystemError) -> LogUnavailableError:
        """The error of a call; a fatal one is raised by `poll` or `flush`, and by what is called after it."""
        if isinstance(error, SystemError):
            self._is_given_up = True
            return LogUnavailableError(f"{what}: the client met a fatal error{self._last_error.text()}")
        detail = error.args[0]
        if isinstance(detail, KafkaError) and (detail.fatal() or detail.code() == KafkaError._FATAL):
            self._is_given_up = True
        return self._last_error.unavailable(what, error)

    def _poll(self, seconds: float) -> None:
        try:
            self._client.poll(seconds)
        except _CALL_ERRORS as error:
            raise self._unavailable("the log", error) from error
        self._check()

    def _check(self) -> None:
        if self._failure is None:
            return
        text = self._failure.str()
        if self._failure.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            raise LogConfigError(
                f"{self._failed_at}: a record of the log was refused: {text}; {self._OUTCOME}. Raise "
                "max.message.bytes of the topic (message.max.bytes of the brokers), or lower kafka.message.max.bytes",
                option="kafka.message.max.bytes",
            )
        raise LogUnavailableError(
            f"{self._failed_at}: a record of the log was not acknowledged: {text}{self._last_error.text()}; "
            f"{self._OUTCOME}. Look whether the brokers answer and the topic is there, then write again"
        )


class KafkaTransactions(_KafkaProducer):
    """A `LogTransactions`."""

    _OUTCOME = "its transaction is aborted"

    def __init__(self, settings: Mapping[str, str], name: str) -> None:
        limits = {
            "queue.buffering.max.kbytes": _TRANSACTION_QUEUE_KB,
            "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
        }
        super().__init__({**limits, **settings, "transactional.id": name})
        self._name = name

    def start(self) -> None:
        """Takes over the name."""
        self._transact(self._client.init_transactions)

    def begin(self) -> None:
        """Begins a transaction."""
        self._transact(lambda seconds: self._client.begin_transaction())

    def commit(self) -> None:
        """Returns when what was sent is seen."""
        self.flush()
        self._transact(self._client.commit_transaction)

    def discard(self) -> None:
        """Forgets what was sent. After a fatal error, such as being fenced, another producer has to `start`."""
        self._forget()

    def abort(self) -> None:
        """Aborts the transaction."""
        self.discard()
        self._transact(self._client.abort_transaction, _ABORT_WAIT_S)

    def _transact(self, step: Callable[[float], object], wait_s: float = _TRANSACTION_WAIT_S) -> None:
        try:
            step(wait_s)
        except _CALL_ERRORS as error:
            raise self._unavailable(f"transactions {self._name}", error) from error
