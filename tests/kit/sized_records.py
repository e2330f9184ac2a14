"""JSON records of a chosen size, hard or easy to compress, on a real topic: readers must bound their memory.

| kind | value | on the wire (zstd, batches of `BATCH_BYTES`) |
|---|---|---|
| hard | random base64 | three quarters |
| easy | one letter again and again | a few bytes of 100 KB, so that a small fetch holds gigabytes |

A record is `{"id": its number, "doc": text}`, of `size_bytes` in all. Every value follows from its number.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Producer

from freshet.jobs.demo.kafka_broker import ForeignBroker

COLUMNS: Final = {"id": "BIGINT", "doc": "STRING"}

BATCH_BYTES: Final = 16 << 20
"""What the producer compresses at once, at most: a broker hands such a batch out as a whole."""

_QUEUED_KB: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class SizedRecords:
    """`count` records of `size_bytes` each, numbered from `first`."""

    count: int
    size_bytes: int
    is_easy: bool
    first: int = 0

    @property
    def name(self) -> str:
        """For the ids of tests."""
        return f"{self.count}x{self.size_bytes}-{'easy' if self.is_easy else 'hard'}"

    def values(self) -> Iterator[bytes]:
        """The records, one after the other."""
        for number in range(self.first, self.first + self.count):
            yield self.value(number)

    def value(self, number: int) -> bytes:
        """The record of this number."""
        head = b'{"id": %d, "doc": "' % number
        size = max(0, self.size_bytes - len(head) - 2)
        text = b"x" * size if self.is_easy else base64.b64encode(random.Random(number).randbytes(size))[:size]
        return head + text + b'"}'


def produce_sized(
    broker: ForeignBroker, topic: str, parts: Iterable[SizedRecords], *, kafka_partitions: int = 1, is_new: bool = True
) -> None:
    """Makes the topic, if it `is_new`, and fills it, the records of one number in the same Kafka partition."""
    if is_new:
        config = {"max.message.bytes": str(2 * BATCH_BYTES)}
        broker.create_topic(topic, kafka_partitions=kafka_partitions, config=config)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "acks": "all",
            "compression.type": "zstd",
            "linger.ms": 100,
            "batch.size": BATCH_BYTES,
            "message.max.bytes": BATCH_BYTES,
            "queue.buffering.max.kbytes": _QUEUED_KB,
        }
    )
    for part in parts:
        for number, value in zip(range(part.first, part.first + part.count), part.values(), strict=True):
            while True:
                try:
                    producer.produce(topic, value, key=b"%d" % number, partition=number % kafka_partitions)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
    if producer.flush(600):
        raise RuntimeError(f"topic {topic}: the broker did not take all records within ten minutes")
