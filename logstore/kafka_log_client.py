"""A Kafka cluster as the log asks for it: `LogClient` and `LogProducer` over librdkafka.

Producing is idempotent and acknowledged by all replicas in sync; a record whose acknowledgement does not come makes the
commit fail. Reading sees everything that is in a partition, in the order of its offsets: which records count is not
decided here. An offset that is not there is an error, never another offset.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from freshet.logstore.client import Fetched, OffsetBounds, StoredRecord, TopicFacts, TopicPartition
from freshet.logstore.exceptions import LogConfigError, LogTruncatedError, LogUnavailableError
from freshet.logstore.kafka_client import NOISE, PREFIX, ClientSettings, client_settings, error_text
from freshet.logstore.record import HEADER_NAME

C = TypeVar("C")


ANSWER_TIMEOUT_S: Final = 30.0
"""How long a question to the brokers may take."""

REACH_TIMEOUTS_S: Final = (1.0, 2.0, 5.0)
"""How long the brokers may take to answer for the first time: tries, longer and longer, as a refusal is known early."""

DELIVERY_TIMEOUT_MS: Final = 60_000
"""How long a record may wait for its acknowledgement before the commit fails; `kafka.message.timeout.ms` overrides."""

TRANSACTION_WAIT_S: Final = 20.0
"""How long taking over, and ending a transaction, may take; a commit that stands already waits for it."""

TRANSACTION_TIMEOUT_MS: Final = 900_000
"""After this the brokers give up a transaction that nobody ends: as long as they allow by default, as a snapshot may be
large. `kafka.transaction.timeout.ms` overrides."""

TRANSACTION_QUEUE_KB: Final = 64 * 1024
"""What may be on its way of a large snapshot: little enough to be acknowledged in time."""

ABORT_WAIT_S: Final = 5.0

FETCH_RECORDS_MAX: Final = 10_000

_SECRET: Final = re.compile(r"password|secret|jaas|token|\.key|credential|userinfo", re.IGNORECASE)
_UNKNOWN: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_REFUSALS: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL)
"""Answers that trying again does not change."""

_CALL_ERRORS: Final = (KafkaException, SystemError)
"""What calls of a producer raise. Where a fatal error, such as being fenced, comes together with reports of deliveries,
confluent-kafka was seen to lose its exception: the call then fails with a SystemError that says just that."""

_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_OWN: Final = frozenset({"topic"})
"""Options below `kafka.` that are not the client's."""

_JAVA_ONLY: Final = ("sasl.jaas.config", "ssl.truststore.location", "ssl.truststore.type")
"""Who gives one of these speaks the words of the Java client."""


def log_client_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Settings of librdkafka out of the `kafka.*` options of a table: its own names, and those of the Java client that
    say how to connect. Raises `LogConfigError` without brokers, or for what librdkafka has no word for."""
    given = {key.removeprefix(PREFIX): value for key, value in options.items() if key.startswith(PREFIX)}
    is_java = not given.keys().isdisjoint(_JAVA_ONLY)
    translated = client_settings(options) if is_java else ClientSettings()
    if translated.untranslated is not None:
        raise LogConfigError(
            f"{translated.untranslated} is an option of the Java client; the log uses librdkafka: give its own options "
            "(kafka.sasl.username, kafka.sasl.password, kafka.ssl.ca.location, …)",
            option=translated.untranslated.partition(" ")[0],
        )
    settings = {key: value for key, value in given.items() if key not in _OWN and key not in _JAVA_ONLY}
    settings |= translated.values
    if not settings.get("bootstrap.servers"):
        raise LogConfigError(
            "log.system=kafka needs kafka.bootstrap.servers: among the table's options, or given when it is opened",
            option="kafka.bootstrap.servers",
        )
    return settings


class KafkaProducer:
    """A `LogProducer`: idempotent, acknowledged by all replicas in sync."""

    _OUTCOME = "nothing is committed"

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._failure: KafkaError | None = None
        self._place = ""
        self._trouble = _Trouble(settings)
        self._delivered: list[tuple[object, int]] = []
        self._sent = 0
        self._generation = 0
        self._settings = {
            "linger.ms": 2,
            "compression.type": "lz4",
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            **settings,
            "enable.idempotence": True,
            "acks": "all",
            "error_cb": self._trouble.keep,
            "log_level": 0,
        }
        self._is_given_up = False
        self._client = _made(Producer, self._settings)

    def send(
        self,
        place: TopicPartition,
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
                    self._failure, self._place = error, f"topic {place.topic} partition {place.partition}"
            else:
                self._delivered.append((token, message.offset()))

        while True:
            try:
                self._client.produce(
                    place.topic,
                    value=value,
                    key=key,
                    partition=place.partition,
                    headers=[(HEADER_NAME, header)],
                    timestamp=timestamp_ms,
                    on_delivery=on_delivery,
                )
                break
            except BufferError:
                self._poll(0.1)
            except _CALL_ERRORS as error:
                raise self._unavailable(f"topic {place.topic} partition {place.partition}", error) from error
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
        """Forgets what was sent; it may still be appended, as rows of an attempt that nobody names.

        librdkafka's purge is no help: it was seen to take records that were produced after it. After a fatal error a
        client takes no record any more, so what follows has another one.
        """
        self._forget()
        with contextlib.suppress(LogUnavailableError):
            self._poll(0)  # hears of an error that came since
        if self._is_given_up:
            self._client = _made(Producer, self._settings)
            self._is_given_up = False

    def _forget(self) -> None:
        self._generation += 1
        self._delivered, self._sent, self._failure = [], 0, None

    def _unavailable(self, what: str, error: KafkaException | SystemError) -> LogUnavailableError:
        """The error of a call; a fatal one is raised by `poll` or `flush`, and by what is called after it."""
        if isinstance(error, SystemError):
            self._is_given_up = True
            return LogUnavailableError(f"{what}: the client met a fatal error{self._trouble.text()}")
        detail = error.args[0]
        if isinstance(detail, KafkaError) and (detail.fatal() or detail.code() == KafkaError._FATAL):
            self._is_given_up = True
        return self._trouble.unavailable(what, error)

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
                f"{self._place}: a record of the log was refused: {text}; {self._OUTCOME}. Raise "
                "max.message.bytes of the topic (message.max.bytes of the brokers), or lower kafka.message.max.bytes",
                option="kafka.message.max.bytes",
            )
        raise LogUnavailableError(
            f"{self._place}: a record of the log was not acknowledged: {text}{self._trouble.text()}; "
            f"{self._OUTCOME}. Look whether the brokers answer and the topic is there, then write again"
        )


class KafkaTransactions(KafkaProducer):
    """A `LogTransactions`."""

    _OUTCOME = "its transaction comes to nothing"

    def __init__(self, settings: Mapping[str, str], name: str) -> None:
        limits = {
            "queue.buffering.max.kbytes": TRANSACTION_QUEUE_KB,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        }
        super().__init__({**limits, **settings, "transactional.id": name})
        self._name = name

    def start(self) -> None:
        """Takes over from whoever had the name."""
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
        """Gives the transaction up."""
        self.discard()
        self._transact(self._client.abort_transaction, ABORT_WAIT_S)

    def _transact(self, step: Callable[[float], object], wait_s: float = TRANSACTION_WAIT_S) -> None:
        try:
            step(wait_s)
        except _CALL_ERRORS as error:
            raise self._unavailable(f"transactions {self._name}", error) from error


class _Trouble:
    """What was heard of connections last: it says more than the call that gives up."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._brokers = settings.get("bootstrap.servers", "")
        self._secrets = [text for key, text in settings.items() if _SECRET.search(key) and len(text) > 3]
        self.last: KafkaError | None = None

    def keep(self, error: KafkaError) -> None:
        """Called by librdkafka, which tries again by itself; what it gives up on comes with the call."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self.last is None:
            self.last = error

    def text(self) -> str:
        """The brokers, and what is known of them; without secrets."""
        found = f" (kafka.bootstrap.servers={self._brokers}"
        if self.last is not None:
            found += f": {NOISE.sub('', self.last.str())}"
        for secret in self._secrets:
            found = found.replace(secret, "***")
        return found + ")"

    def unavailable(self, what: str, error: KafkaException) -> LogUnavailableError:
        """The error of a call."""
        return LogUnavailableError(f"{what}: {error_text(error)}{self.text()}")


class KafkaLogClient:
    """A `LogClient` of a Kafka cluster."""

    def __init__(self, settings: Mapping[str, str], *, isolation: str = "read_uncommitted") -> None:
        self._settings = dict(settings)
        self._isolation = isolation
        self._trouble = _Trouble(settings)
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
            raise self._trouble.unavailable(f"topic {name}", error) from error
        bits = (found.topic_id.get_most_significant_bits(), found.topic_id.get_least_significant_bits())
        settings = {key: entry.value for key, entry in entries.items() if entry.value is not None}
        return TopicFacts(name, str(found.topic_id) if any(bits) else "", len(found.partitions), settings)

    def create_topic(self, name: str, partition_count: int, settings: Mapping[str, str]) -> bool:
        """Creates it with as many replicas as the brokers do by default; waits until it answers."""
        topic = NewTopic(name, num_partitions=partition_count, replication_factor=-1, config=dict(settings))
        try:
            self._administrator().create_topics([topic], request_timeout=ANSWER_TIMEOUT_S)[name].result()
        except KafkaException as error:
            if _code(error) == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise self._trouble.unavailable(f"topic {name}", error) from error
        return True

    def bounds(self, topic: str) -> Mapping[int, OffsetBounds]:
        """First and next offset of every partition."""
        admin = self._administrator()
        facts = self.topic(topic)
        numbers = range(0 if facts is None else facts.partition_count)
        found: dict[int, list[int]] = {number: [] for number in numbers}
        try:
            for spec in (_EARLIEST, _LATEST):
                asked = {KafkaPartition(topic, number): spec for number in numbers}
                for place, future in admin.list_offsets(asked, request_timeout=ANSWER_TIMEOUT_S).items():
                    found[place.partition].append(future.result().offset)
        except KafkaException as error:
            raise self._trouble.unavailable(f"topic {topic}", error) from error
        return {number: OffsetBounds(*pair) for number, pair in found.items()}

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
            raise self._trouble.unavailable("the log", error) from error
        records: dict[TopicPartition, list[StoredRecord]] = {}
        after: dict[TopicPartition, int] = {}
        for message in messages:
            place = TopicPartition(message.topic(), message.partition())
            problem = message.error()
            if problem is None:
                records.setdefault(place, []).append(_stored(message))
                after[place] = message.offset() + 1
            elif problem.code() == KafkaError._PARTITION_EOF:
                after[place] = message.offset()
            else:
                self._positions = {}
                raise self._fetch_error(place, positions, problem)
        self._positions |= after
        found = {place: Fetched(tuple(records.get(place, ())), offset) for place, offset in after.items()}
        return {place: each for place, each in found.items() if each.next_offset > positions[place]}

    def producer(self) -> KafkaProducer:
        """A new producer."""
        return KafkaProducer(self._settings)

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
            admin = _made(AdminClient, {**self._settings, "error_cb": self._trouble.keep, "log_level": 0})
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
                refused = self._trouble.last is not None and self._trouble.last.code() in _REFUSALS
                if refused or timeout_s == REACH_TIMEOUTS_S[-1]:
                    raise self._trouble.unavailable(
                        "no broker of the log answers; look at kafka.bootstrap.servers, kafka.security.protocol and "
                        "kafka.sasl.*",
                        error,
                    ) from error

    def _assigned(self, positions: Mapping[TopicPartition, int]) -> Consumer:
        """The consumer, which goes on by itself where the positions are those it has come to."""
        if self._consumer is None:
            self._consumer = _made(
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
                    "error_cb": self._trouble.keep,
                    "log_level": 0,
                },
            )
            self._positions = {}
        try:
            if self._positions != positions:
                self._consumer.assign([KafkaPartition(*place, offset) for place, offset in positions.items()])
        except KafkaException as error:
            self._positions = {}
            raise self._trouble.unavailable("the log", error) from error
        self._positions = dict(positions)
        return self._consumer

    def _fetch_error(
        self, place: TopicPartition, positions: Mapping[TopicPartition, int], error: KafkaError
    ) -> LogTruncatedError | LogUnavailableError:
        text = f"topic {place.topic} partition {place.partition}"
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            bounds = self.bounds(place.topic)[place.partition]
            return LogTruncatedError(
                f"{text} has offsets {bounds.first} to {bounds.end}, not {positions[place]}, where the reader goes on: "
                "retention was faster. Begin at a newer snapshot (scan_mode='latest-full'), or set "
                "log.on-truncated=hop; raise retention.ms of the topic"
            )
        if error.code() in _UNKNOWN:
            return LogUnavailableError(
                f"{text}: {error.str()}, where the reader goes on at offset {positions[place]}. If the topic was "
                "deleted, its changes are gone: the writer must begin a log anew (kafka.topic), readers at a newer "
                "snapshot (scan_mode='latest-full')"
            )
        return LogUnavailableError(f"{text}: {error.str()}{self._trouble.text()}")


def _stored(message: Any) -> StoredRecord:
    header = next((value for name, value in message.headers() or () if name == HEADER_NAME), None)
    return StoredRecord(message.offset(), header, message.value() or b"", message.timestamp()[1])


def _made(make: Callable[[dict[str, Any]], C], settings: dict[str, Any]) -> C:
    """A client; what librdkafka says of an option it refuses is told without its value."""
    try:
        return make(settings)
    except KafkaException as error:
        text = error_text(error)
        for key, value in settings.items():
            if _SECRET.search(key) and isinstance(value, str) and value:
                text = text.replace(value, "***")
        raise LogConfigError(f"the kafka.* options of the log are refused: {text}", option="kafka.*") from None


def _code(error: KafkaException) -> int | None:
    detail = error.args[0] if error.args else None
    return detail.code() if isinstance(detail, KafkaError) else None
