"""Pieces of a stream: what one snapshot, or what was logged since, gives of one lane; values that travel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from freshet.logstore.client import Fetched, TopicPartition
from freshet.logstore.decide import RowRange
from freshet.logstore.reader_state import ReaderState
from freshet.storage.model.split import ChangeSplit
from freshet.storage.model.stream_step import StepSize
from freshet.storage.model.table_log import Lane


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Changes of one lane, in their order; `snapshot_id` is None while their batch is open.

    `total_buckets` is the number of buckets of the table when they were logged.
    """

    lane: Lane
    ranges: tuple[RowRange, ...]
    snapshot_id: int | None
    total_buckets: int


Piece = LogPiece | ChangeSplit


@dataclass(frozen=True, slots=True)
class LogGroup:
    """Pieces that are read one after the other, and records of theirs that are known already."""

    pieces: tuple[Piece, ...]
    carried: tuple[tuple[TopicPartition, int, Fetched], ...] = ()


def by_lane(ranges: Sequence[RowRange], snapshot_id: int | None, *states: ReaderState) -> list[LogPiece]:
    """A piece for each lane of each topic; the states know the topics."""
    counts = {state.topic: len(state.settled) for state in states}
    lanes: dict[tuple[str, Lane], list[RowRange]] = {}
    for each in ranges:
        lanes.setdefault((each.topic, each.lane), []).append(each)
    return [LogPiece(lane, tuple(found), snapshot_id, counts[topic]) for (topic, lane), found in lanes.items()]


def row_count(wanted: RowRange) -> int:
    """Rows of a range."""
    return wanted.end_sequence - wanted.first_sequence


def size_of(piece: Piece) -> StepSize:
    """What reading it costs."""
    if isinstance(piece, LogPiece):
        rows = sum(row_count(each) for each in piece.ranges)
        return StepSize(rows=rows, offsets=sum(each.stop_offset - each.start_offset for each in piece.ranges))
    files = list(piece.files)
    for state in (piece.removed, piece.added):
        files += [] if state is None else state.files
    return StepSize(len(files), sum(file.file_size_bytes for file in files), sum(file.row_count for file in files))
