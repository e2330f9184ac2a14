"""Records that were fetched last, by partition: one range of offsets each, so that rows of several buckets that lie in
one range, and rows that are shown as they come, are fetched once.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

from freshet.logstore.protocol.client import Fetched, StoredRecord, TopicPartition

RANGE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of one partition; a single fetch may have more."""

BYTES_MAX: Final = 128 * 1024 * 1024
"""Of all partitions; those that came longest ago go first."""

_RECORD_BYTES: Final = 200
"""What a record takes besides its header and value."""


@dataclass(slots=True)
class _OffsetRange:
    """Everything that lies in [start, end)."""

    start: int
    end: int
    offsets: list[int] = field(default_factory=list)
    records: list[StoredRecord] = field(default_factory=list)
    size_bytes: int = 0


class RecentRecords:
    """Belongs to one reader."""

    def __init__(self) -> None:
        self._ranges: dict[TopicPartition, _OffsetRange] = {}
        self._size_bytes = 0

    def add(self, topic_partition: TopicPartition, position: int, fetched: Fetched) -> None:
        """What was fetched from a position on: joined to what lies before it, unless that becomes too much."""
        size_bytes = sum(_size_bytes(record) for record in fetched.records)
        known = self._ranges.pop(topic_partition, None)
        self._size_bytes -= 0 if known is None else known.size_bytes
        if known is None or known.end != position or known.size_bytes + size_bytes > RANGE_BYTES_MAX:
            known = _OffsetRange(position, position)
        known.end = fetched.next_offset
        known.size_bytes += size_bytes
        self._size_bytes += known.size_bytes
        while self._size_bytes > BYTES_MAX and self._ranges:
            self._size_bytes -= self._ranges.pop(next(iter(self._ranges))).size_bytes
        self._ranges[topic_partition] = known
        known.records += fetched.records
        known.offsets += [record.offset for record in fetched.records]

    def at(self, topic_partition: TopicPartition, position: int) -> Fetched | None:
        """What is known from a position on; None where that is nothing."""
        known = self._ranges.get(topic_partition)
        if known is None or not known.start <= position < known.end:
            return None
        return Fetched(tuple(known.records[bisect_left(known.offsets, position) :]), known.end)


def _size_bytes(record: StoredRecord) -> int:
    """Of JSON deletes the header is all there is."""
    return _RECORD_BYTES + len(record.value) + len(record.header or b"")
