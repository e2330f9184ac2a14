"""Pieces of a stream: what one snapshot, or what was logged since, gives of one bucket; values that travel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from freshet.logstore.protocol.client import Fetched, TopicPartition
from freshet.logstore.reading.decide import RowRange
from freshet.logstore.reading.reader_state import ReaderState
from freshet.logstore.reading.recent_records import RecentRecords
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.split import ChangeSplit
from freshet.storage.model.stream_step import StepSize, by_bucket

GROUP_ROWS: Final = 50_000
"""Buckets with fewer changes are read by one task, up to so many rows."""

CARRIED_BYTES_MAX: Final = 1024 * 1024
"""Records that the planning reader has fetched travel with their group, up to so many bytes."""


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Changes of one bucket, in their order; `snapshot_id` is None while their batch is open.

    `total_buckets` is the number of buckets of the table when they were logged.
    """

    bucket_id: BucketId
    ranges: tuple[RowRange, ...]
    snapshot_id: int | None
    total_buckets: int

    @property
    def partition(self) -> bytes:
        """That of the table."""
        return self.bucket_id[0]

    @property
    def bucket(self) -> int:
        """Which is the partition of the topic."""
        return self.bucket_id[1]

    @property
    def size(self) -> StepSize:
        """Rows, and the offsets they lie in."""
        rows = sum(row_count(each) for each in self.ranges)
        return StepSize(rows=rows, offsets=sum(each.stop_offset - each.start_offset for each in self.ranges))


Piece = LogPiece | ChangeSplit


@dataclass(frozen=True, slots=True)
class LogGroup:
    """Pieces that are read one after the other, and records of theirs that are known already."""

    pieces: tuple[Piece, ...]
    carried: tuple[tuple[TopicPartition, int, Fetched], ...] = ()


def log_pieces(ranges: Sequence[RowRange], snapshot_id: int | None, *states: ReaderState) -> list[LogPiece]:
    """A piece for each bucket of each topic; the states know the topics."""
    counts = {state.topic: len(state.stable_offsets) for state in states}
    by_topic: dict[tuple[str, BucketId], list[RowRange]] = {}
    for each in ranges:
        by_topic.setdefault((each.topic, each.bucket_id), []).append(each)
    return [LogPiece(bucket, tuple(found), snapshot_id, counts[topic]) for (topic, bucket), found in by_topic.items()]


def grouped(pieces: Iterable[Piece], state_id: int | None) -> list[list[Piece]]:
    """Pieces by the group that reads them, as `by_bucket` says; small buckets together."""
    groups: list[list[Piece]] = []
    room = 0
    for found in by_bucket(pieces, state_id):
        rows = sum(piece.size.rows for piece in found)
        is_of_state = state_id is not None and found[0].snapshot_id == state_id
        if is_of_state or rows > room:
            groups.append([])
            room = 0 if is_of_state else GROUP_ROWS
        groups[-1] += found
        room -= rows
    return groups


def carried(pieces: Iterable[Piece], recent: RecentRecords) -> tuple[tuple[TopicPartition, int, Fetched], ...]:
    """The records of some pieces, as far as they were fetched."""
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for piece in pieces:
        for wanted in piece.ranges if isinstance(piece, LogPiece) else ():
            topic_partition = TopicPartition(wanted.topic, wanted.bucket_id[1])
            first, stop = ranges.get(topic_partition, (wanted.start_offset, wanted.stop_offset))
            ranges[topic_partition] = min(first, wanted.start_offset), max(stop, wanted.stop_offset)
    found = []
    size_bytes = 0
    for topic_partition, (first, stop) in ranges.items():
        known = recent.at(topic_partition, first)
        if known is None or known.next_offset < stop:
            continue
        records = tuple(record for record in known.records if record.offset < stop)
        size_bytes += sum(len(record.value) for record in records)
        if size_bytes > CARRIED_BYTES_MAX:
            break
        found.append((topic_partition, first, Fetched(records, stop)))
    return tuple(found)


def row_count(wanted: RowRange) -> int:
    """Rows of a range."""
    return wanted.end_sequence - wanted.first_sequence
