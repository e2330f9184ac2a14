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

BYTES_MAX: Final = 128 * 1024 * 1024
"""Of all partitions; those that came longest ago go first."""

_RECORD_BYTES: Final = 200
"""What a record takes beside its header and value."""


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
        self._size_bytes = 0

    def add(self, place: TopicPartition, position: int, fetched: Fetched) -> None:
        """What was fetched from a position on: joined to what lies before it, unless that becomes too much."""
        size_bytes = sum(_size_bytes(record) for record in fetched.records)
        stretch = self._stretches.pop(place, None)
        self._size_bytes -= 0 if stretch is None else stretch.size_bytes
        if stretch is None or stretch.end != position or stretch.size_bytes + size_bytes > STRETCH_BYTES_MAX:
            stretch = _Stretch(position, position)
        stretch.end = fetched.next_offset
        stretch.size_bytes += size_bytes
        self._size_bytes += stretch.size_bytes
        while self._size_bytes > BYTES_MAX and self._stretches:
            self._size_bytes -= self._stretches.pop(next(iter(self._stretches))).size_bytes
        self._stretches[place] = stretch
        stretch.records += fetched.records
        stretch.offsets += [record.offset for record in fetched.records]

    def at(self, place: TopicPartition, position: int) -> Fetched | None:
        """What is known from a position on; None where that is nothing."""
        stretch = self._stretches.get(place)
        if stretch is None or not stretch.start <= position < stretch.end:
            return None
        return Fetched(tuple(stretch.records[bisect_left(stretch.offsets, position) :]), stretch.end)


def _size_bytes(record: StoredRecord) -> int:
    """Of JSON deletes the header is all there is."""
    return _RECORD_BYTES + len(record.value) + len(record.header or b"")
