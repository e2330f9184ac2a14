"""A topic of a real broker whose clean-up takes records away: offsets have gaps, whole ranges of them are empty."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from freshet.jobs.demo.kafka_broker import ForeignBroker

SETTINGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1",
    "segment.ms": "50",
    "delete.retention.ms": "1",
}
_CLEANED_S: Final = 120.0
"""The cleaner looks each 15 s."""


def produce_compacted(broker: ForeignBroker, topic: str, keys: Sequence[int], *, step: int = 25) -> None:
    """Makes a topic of one partition, whose records have these keys and their offsets as ids, and waits until the
    clean-up has taken what came again; segments are rolled now and then. Those of the newest segment stay."""
    broker.create_topic(topic, config=SETTINGS)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    for number, key in enumerate(keys):
        producer.produce(topic, b'{"id": %d}' % number, key=b"%d" % key)
        if number % step == step - 1:
            assert producer.flush(60) == 0
            time.sleep(0.06)  # the segment is old enough to be rolled by the record that comes next
    assert producer.flush(60) == 0
    until = time.monotonic() + _CLEANED_S
    left = list(range(len(keys)))
    while len(left) > len(set(keys)) + 2 * step:
        assert time.monotonic() < until, f"the broker has cleaned too little of {topic}: {len(left)} of {len(keys)}"
        time.sleep(0.5)
        left = offsets_there(broker, topic)


def offsets_there(broker: ForeignBroker, topic: str) -> list[int]:
    """The offsets of the records that a plain client finds."""
    own = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "all", "enable.partition.eof": True}
    consumer = Consumer({**own, "enable.auto.commit": False, "isolation.level": "read_committed"})
    consumer.assign([KafkaPartition(topic, 0, 0)])
    found: list[int] = []
    try:
        while True:
            for message in consumer.consume(1000, 1.0):
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    return found
                found.append(message.offset() or 0)
    finally:
        consumer.close()
