"""Transactions that are open in some partitions: what lies behind their first record is not read until they end.

    first ├─ records ─┤ stable ├─ of open transactions, and of others behind ─┤ end

A reader under `read_committed` comes to `stable` (Kafka's last stable offset) and no further. When the oldest of them
began is known by the record that lies there.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from freshet.logstore.kafka.java_options import READ_COMMITTED, READ_UNCOMMITTED
from freshet.logstore.kafka.partition_offsets import offset_bounds
from freshet.storage.model.display import time_text

_CLIENT: Final[Mapping[str, Any]] = {
    "group.id": "freshet-transactions",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": READ_UNCOMMITTED,
    "fetch.message.max.bytes": 2048,
    "fetch.wait.max.ms": 10,
    "queued.min.messages": 1,
    "log_level": 0,
}


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The oldest open transaction of a partition."""

    place: tuple[str, int]
    first: int
    stable: int
    end: int
    """The offsets of the partition as above."""
    since_ms: int | None
    """The time of its first record; None where it could not be had."""

    def __str__(self) -> str:
        since = "" if self.since_ms is None else f" since {time_text(self.since_ms)}"
        return (
            f"an open transaction{since}: topic {self.place[0]} partition {self.place[1]}, "
            f"offsets {self.stable} to {self.end - 1}"
        )


def open_transactions(
    client: AdminClient, settings: Mapping[str, Any], places: Collection[tuple[str, int]], timeout_s: float
) -> list[OpenTransaction]:
    """Those of some partitions, in their order. Raises `KafkaException` where the brokers do not answer in time."""
    ends = offset_bounds(client, places, timeout_s)  # before the others: they grow meanwhile
    found = sorted(offset_bounds(client, places, timeout_s, isolation=READ_COMMITTED).items())
    held = {place: bounds for place, bounds in found if bounds.end < ends[place].end}
    times = _times(settings, {place: bounds.end for place, bounds in held.items()}, timeout_s) if held else {}
    return [
        OpenTransaction(place, first, stable, ends[place].end, times.get(place))
        for place, (first, stable) in held.items()
    ]


def _times(
    settings: Mapping[str, Any], offsets: Mapping[tuple[str, int], int], timeout_s: float
) -> dict[tuple[str, int], int]:
    """The times of the records at these offsets, as far as they come in time."""
    deadline = time.monotonic() + timeout_s
    found: dict[tuple[str, int], int] = {}
    consumer = Consumer({**settings, **_CLIENT})
    try:
        consumer.assign([KafkaPartition(*place, offset) for place, offset in offsets.items()])
        while len(found) < len(offsets) and (rest := deadline - time.monotonic()) > 0:
            message: Any = consumer.poll(min(rest, 0.5))
            if message is None or message.error() is not None:
                continue
            place = (message.topic(), message.partition())
            found.setdefault(place, message.timestamp()[1])
    except KafkaException:
        return found
    finally:
        consumer.close()
    return found
