"""When the records of a stream were made, as far as their source says: the times of Kafka, or of files."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc


class EventTimes(NamedTuple):
    """The earliest and the latest time of some records, in milliseconds since the epoch."""

    first_ms: int
    last_ms: int


def joined_times(one: EventTimes | None, other: EventTimes | None) -> EventTimes | None:
    """The times of both together; None where neither knows any."""
    if one is None or other is None:
        return one or other
    return EventTimes(min(one.first_ms, other.first_ms), max(one.last_ms, other.last_ms))


def event_times(times: pa.Array[Any]) -> EventTimes | None:
    """The times of a column of microseconds; None where all are NULL, or none lies after the epoch (Kafka's -1)."""
    bounds = pc.min_max(times.cast(pa.int64()))
    first, last = bounds["min"].as_py(), bounds["max"].as_py()
    if last is None or last <= 0:
        return None
    return EventTimes(max(0, first) // 1000, last // 1000)
