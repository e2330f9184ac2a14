"""Producers of the log over librdkafka: idempotent, acknowledged by all replicas in sync, in transactions where asked.

A record whose acknowledgement does not come makes the commit fail.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from freshet.logstore.exceptions import LogConfigError, LogUnavailableError
from freshet.logstore.kafka.connection import LastError, made_client
from freshet.logstore.protocol.client import TopicPartition
from freshet.logstore.protocol.record import HEADER_NAME

DELIVERY_TIMEOUT_MS: Final = 60_000
"""How long a record may wait for its acknowledgement before the commit fails; `kafka.message.timeout.ms` overrides."""

TRANSACTION_WAIT_S: Final = 20.0
"""How long taking over, and ending a transaction, may take; a commit that is there already waits for it."""

TRANSACTION_TIMEOUT_MS: Final = 900_000
"""After this the brokers abort a transaction that was not ended: as long as they allow by default, as a snapshot may be
large. `kafka.transaction.timeout.ms` overrides."""

TRANSACTION_QUEUE_KB: Final = 64 * 1024
"""What may be on its way of a large snapshot: little enough to be acknowledged in time."""

ABORT_WAIT_S: Final = 5.0

_CALL_ERRORS: Final = (KafkaException, SystemError)
"""What calls of a producer raise. Where a fatal error, such as being fenced, comes together with reports of deliveries,
confluent-kafka was seen to lose its exception: the call then fails with a SystemError that says just that."""


class KafkaProducer:
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
            "linger.ms": 2,
            "compression.type": "lz4",
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
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


class KafkaTransactions(KafkaProducer):
    """A `LogTransactions`."""

    _OUTCOME = "its transaction is aborted"

    def __init__(self, settings: Mapping[str, str], name: str) -> None:
        limits = {
            "queue.buffering.max.kbytes": TRANSACTION_QUEUE_KB,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
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
        self._transact(self._client.abort_transaction, ABORT_WAIT_S)

    def _transact(self, step: Callable[[float], object], wait_s: float = TRANSACTION_WAIT_S) -> None:
        try:
            step(wait_s)
        except _CALL_ERRORS as error:
            raise self._unavailable(f"transactions {self._name}", error) from error
