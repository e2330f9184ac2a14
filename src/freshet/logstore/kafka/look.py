"""How large the records of some topics are, from a look at a few of them before they are read.

    first ├──┬──┬──┬──┬──┬──┬──┤ end       PLACES of each partition, the newest records among them

The sizes are those of keys and values as the reader will hold them, not those on the wire: a fetch of some megabytes
may hold gigabytes that compress well. What no broker answers in time is not known, which is no error.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from freshet.logstore.kafka.java_options import READ_COMMITTED, ClientSettings
from freshet.logstore.kafka.partition_offsets import offset_bounds
from freshet.logstore.kafka.record_sizes import NOTHING_SEEN, RecordSizes
from freshet.logstore.protocol.client import OffsetBounds, TopicPartition

PLACES: Final = 8
LOOKS: Final = 256
"""Places of all partitions: of many each has fewer, but `PLACES_MIN`. A look takes about a millisecond."""
PLACES_MIN: Final = 4
PARTITIONS_MAX: Final = 64
"""Partitions that are looked at; of more, some, evenly spread."""
PLACE_RECORDS: Final = 8
PLACE_BYTES: Final = 1 << 20
"""A place has been seen with so many records or bytes."""
PLACE_S: Final = 2.0
"""The longest time for one place of all partitions."""
LOOK_S: Final = 5.0
"""The longest time for all of it."""


def _ignored(error: KafkaError) -> None:
    """A broker that does not answer is reported where it is needed."""


_CLIENT: Final[dict[str, Any]] = {
    "group.id": "freshet-record-sizes",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    # A broker gives one batch of a producer all the same. More of them, very compressible, would be gigabytes here too.
    "fetch.message.max.bytes": 2048,
    "fetch.wait.max.ms": 10,
    "queued.min.messages": PLACE_RECORDS,
    "queued.max.messages.kbytes": PLACE_BYTES >> 10,
    # A second by default: a queue that is full of one place delays the next. Nine places of two partitions take 50 ms
    # with 1, 135 ms with 10.
    "fetch.queue.backoff.ms": 1,
    "log_level": 0,
    "error_cb": _ignored,
    "socket.timeout.ms": 10_000,
}


def look_at_records(
    settings: ClientSettings,
    partition_counts: Mapping[str, int],
    read: Mapping[TopicPartition, int],
    *,
    isolation: str = READ_COMMITTED,
) -> RecordSizes:
    """The sizes in these topics, from the offsets on that were `read` already, else from the first one that is there.

    `NOTHING_SEEN` where there are no records, or where no broker answers in time.
    """
    partitions = [TopicPartition(topic, number) for topic, count in partition_counts.items() for number in range(count)]
    chosen = partitions[:: max(1, -(-len(partitions) // PARTITIONS_MAX))]
    try:
        bounds = _bounds(settings, chosen, read, isolation)
        if not bounds:
            return NOTHING_SEEN
        consumer = Consumer({**settings.values, **_CLIENT, "isolation.level": isolation})
    except (KafkaException, ValueError):
        return NOTHING_SEEN
    try:
        return _look(consumer, bounds)
    except KafkaException:
        return NOTHING_SEEN
    finally:
        consumer.close()


def places_of(bounds: OffsetBounds, count: int = PLACES) -> tuple[int, ...]:
    """The offsets to look at: the newest records first, then so many evenly from the oldest on."""
    records = bounds.end - bounds.first
    newest = max(bounds.first, bounds.end - PLACE_RECORDS)
    return tuple(dict.fromkeys([newest, *(bounds.first + records * place // count for place in range(count))]))


def _bounds(
    settings: ClientSettings,
    partitions: Collection[TopicPartition],
    read: Mapping[TopicPartition, int],
    isolation: str,
) -> dict[TopicPartition, OffsetBounds]:
    """What is unread, of partitions that hold something."""
    if not partitions:
        return {}
    quiet: dict[str, Any] = {"log_level": 0, "error_cb": _ignored}
    admin = AdminClient({**settings.values, **quiet})
    # Asked for offsets before it knows a broker, a client may look for their leaders in vain, and only three seconds
    # later once more: 6 of 60 did. With this all take 60 ms.
    admin.list_topics(timeout=LOOK_S)
    found = offset_bounds(admin, partitions, LOOK_S, isolation=isolation)
    unread = {name: OffsetBounds(max(first, read.get(name, 0)), end) for name, (first, end) in found.items()}
    return {name: bounds for name, bounds in unread.items() if bounds.first < bounds.end}


def _look(consumer: Consumer, bounds: Mapping[TopicPartition, OffsetBounds]) -> RecordSizes:
    count = max(PLACES_MIN, min(PLACES, LOOKS // len(bounds)))
    places = {name: places_of(each, count) for name, each in bounds.items()}
    deadline = time.monotonic() + LOOK_S
    sizes = NOTHING_SEEN
    for turn in range(count + 1):
        positions = {name: offsets[turn] for name, offsets in places.items() if turn < len(offsets)}
        if not positions or time.monotonic() > deadline:
            break
        consumer.assign([KafkaPartition(*name, offset) for name, offset in positions.items()])
        for found in _seen(consumer, set(positions), min(deadline, time.monotonic() + PLACE_S)):
            sizes = sizes.joined(found)
    return sizes


def _seen(consumer: Consumer, waiting: set[TopicPartition], deadline: float) -> list[RecordSizes]:
    """What lies at the positions that are assigned, by partition."""
    counts: dict[TopicPartition, list[int]] = {}
    while waiting and (left := deadline - time.monotonic()) > 0:
        message: Any = consumer.poll(left)
        if message is None:
            break
        name = TopicPartition(message.topic(), message.partition())
        problem = message.error()
        if problem is not None:
            if problem.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(problem)
            waiting.discard(name)
            continue
        if name not in waiting:
            continue
        lengths = counts.setdefault(name, [])
        lengths.append(len(message.key() or b"") + len(message.value() or b""))
        if len(lengths) >= PLACE_RECORDS or sum(lengths) >= PLACE_BYTES:
            waiting.discard(name)
            consumer.incremental_unassign([KafkaPartition(*name)])  # the rest of its batch is in the way of others
    return [RecordSizes(sum(lengths) // len(lengths), max(lengths)) for lengths in counts.values()]
