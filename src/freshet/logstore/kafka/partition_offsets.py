"""The offsets that partitions hold: the first, the end, the first of a time, those behind an open transaction. Errors
are those of librdkafka.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from freshet._frozen import Frozen
from freshet.logstore.kafka.java_options import READ_COMMITTED, READ_UNCOMMITTED
from freshet.logstore.protocol.client import OffsetBounds
from freshet.storage.model.display import time_text

_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]

_LEVELS: Final = {
    READ_UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED,
    READ_COMMITTED: IsolationLevel.READ_COMMITTED,
}

Place = TypeVar("Place", bound=tuple[str, int])
"""A topic and the number of a partition."""
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


def offset_bounds(
    client: AdminClient, places: Collection[Place], timeout_s: float, *, isolation: str = READ_UNCOMMITTED
) -> dict[Place, OffsetBounds]:
    """The first offset and the end of these partitions; the first one is asked for before, so it is never beyond.

    Of `read_committed` the end lies before the first record of a transaction that is open.
    """
    first = _offsets(client, dict.fromkeys(places, _EARLIEST), timeout_s, READ_UNCOMMITTED)
    ends = _offsets(client, dict.fromkeys(places, _LATEST), timeout_s, isolation)
    return {place: OffsetBounds(first[place], ends[place]) for place in places}


def offsets_at(
    client: AdminClient, times_ms: Mapping[Place, int], timeout_s: float, isolation: str
) -> dict[Place, int]:
    """The first offset of each partition that is as late as its time, -1 where there is none."""
    asked = {place: OffsetSpec.for_timestamp(time_ms) for place, time_ms in times_ms.items()}
    return _offsets(client, asked, timeout_s, isolation)


def _offsets(
    client: AdminClient, asked: Mapping[Place, OffsetSpec], timeout_s: float, isolation: str
) -> dict[Place, int]:
    if not asked:
        return {}
    names = {place: KafkaPartition(*place) for place in asked}
    answers = client.list_offsets(
        {names[place]: spec for place, spec in asked.items()},
        isolation_level=_LEVELS[isolation],
        request_timeout=timeout_s,
    )
    return {place: answers[name].result().offset for place, name in names.items()}


class OpenTransaction(Frozen):
    """The oldest open transaction of a partition: what lies behind its first record is not read until it ends.

        first ├─ records ─┤ stable ├─ of open transactions, and of others behind ─┤ end

    A reader under `read_committed` comes to `stable` (Kafka's last stable offset) and no further. When the oldest of
    them began is known by the record that lies there.
    """

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
    """The open transactions of some partitions, in their order. Raises `KafkaException` where the brokers do not answer
    in time."""
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
