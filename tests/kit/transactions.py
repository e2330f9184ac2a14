"""Transactions of Kafka as tests need them: begun with some records, ended when the test says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from uuid import uuid4

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

Record = tuple[bytes | None, bytes | None]


class Transaction:
    """An open transaction whose records go into one partition of a topic."""

    def __init__(self, bootstrap_servers: str, topic: str, partition: int = 0) -> None:
        self._topic, self._partition = topic, partition
        own = {"transactional.id": f"{topic}-{uuid4().hex}", "linger.ms": 5, "log_level": 0}
        own["transaction.timeout.ms"] = 900_000  # a minute by default, within which a busy machine may start no Spark
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, **own})
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        self._producer.init_transactions(60)
        self._producer.begin_transaction()

    def send(self, records: Iterable[Record]) -> None:
        """They are in Kafka when it returns."""
        for key, value in records:
            self._producer.produce(self._topic, value, key=key, partition=self._partition)
        assert self._producer.flush(60) == 0

    def abort(self) -> None:
        self._end(self._producer.abort_transaction)

    def commit(self) -> None:
        self._end(self._producer.commit_transaction)

    def _end(self, how: Callable[[float], None]) -> None:
        """Its marker, which Kafka writes a little later, is there when it returns; nobody else sends meanwhile."""
        deadline, before = time.monotonic() + 60, self._next_offset()
        how(60)
        while self._next_offset() == before:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def _next_offset(self) -> int:
        place = TopicPartition(self._topic, self._partition)
        return self._admin.list_offsets({place: OffsetSpec.latest()})[place].result(60).offset
