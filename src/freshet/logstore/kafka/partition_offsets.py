"""Which offsets partitions hold: the first, the end, the first of a time. Errors are those of librdkafka."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeVar

from confluent_kafka import IsolationLevel
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from freshet.logstore.kafka.java_options import READ_COMMITTED, READ_UNCOMMITTED
from freshet.logstore.protocol.client import OffsetBounds

_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]

_LEVELS: Final = {
    READ_UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED,
    READ_COMMITTED: IsolationLevel.READ_COMMITTED,
}

Place = TypeVar("Place", bound=tuple[str, int])
"""A topic and the number of a partition."""


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
