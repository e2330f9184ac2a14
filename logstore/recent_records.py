"""Records that were fetched last, by partition: one stretch of offsets each, so that rows of several lanes that lie in
one stretch, and rows that are shown as they come, are fetched once.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

from freshet.logstore.client import Fetched, StoredRecord, TopicPartition

STRETCH_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of one partition; a single fetch may have more."""


@dataclass(slots=True)
class _Stretch:
    """Everything that lies in [start, end)."""

    start: int
    end: int
    offsets: list[int] = field(default_factory=list)
    records: list[StoredRecord] = field(default_factory=list)
    size_bytes: int = 0


class RecentRecords:
    """Belongs to one reader."""

    def __init__(self) -> None:
        self._stretches: dict[TopicPartition, _Stretch] = {}

    def add(self, place: TopicPartition, position: int, fetched: Fetched) -> None:
        """What was fetched from a position on: joined to what lies before it, unless that becomes too much."""
        size_bytes = sum(len(record.value) for record in fetched.records)
        stretch = self._stretches.get(place)
        if stretch is None or stretch.end != position or stretch.size_bytes + size_bytes > STRETCH_BYTES_MAX:
            stretch = self._stretches[place] = _Stretch(position, position)
        stretch.end = fetched.next_offset
        stretch.size_bytes += size_bytes
        stretch.records += fetched.records
        stretch.offsets += [record.offset for record in fetched.records]

    def at(self, place: TopicPartition, position: int) -> Fetched | None:
        """What is known from a position on; None where that is nothing."""
        stretch = self._stretches.get(place)
        if stretch is None or not stretch.start <= position < stretch.end:
            return None
        return Fetched(tuple(stretch.records[bisect_left(stretch.offsets, position) :]), stretch.end)
