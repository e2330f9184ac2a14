"""One step of a stream: how much it takes at most, and which of its changes may be read side by side.

Changes of one bucket stay together, as each key is in one bucket. That holds until a partition is rewritten into
another number of buckets. From there on a key may be in another bucket, so what comes after is read after everything
before. Where rows move between partitions a key may be in any bucket at any time, and all changes stay together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar


class StepSize(NamedTuple):
    """What a piece of a stream costs. Rows of the log count as rows and by the offsets they lie in, not as files. A
    snapshot counts when all of its changes are taken, if there are any."""

    files: int = 0
    size_bytes: int = 0
    rows: int = 0
    offsets: int = 0
    snapshots: int = 0

    def plus(self, other: StepSize) -> StepSize:
        """Both together."""
        return StepSize(*(one + more for one, more in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class StreamLimit:
    """How much one step takes at most: files, their bytes, rows, offsets of a log; the smallest wins, None is no limit.

    A step takes one piece at least, however large. With `snapshots` it ends after so many that have changes, and at
    each look at the log that shows something: for readers who hand everything out as soon as it is there.
    """

    files: int | None = None
    size_bytes: int | None = None
    rows: int | None = None
    offsets: int | None = None
    snapshots: int | None = None

    @property
    def is_none(self) -> bool:
        """True where nothing is limited."""
        return self == StreamLimit()

    def allows(self, size: StepSize) -> bool:
        """True for a size within the limit."""
        limits = (self.files, self.size_bytes, self.rows, self.offsets, self.snapshots)
        return all(limit is None or given <= limit for given, limit in zip(size, limits, strict=True))


@dataclass(slots=True)
class Budget:
    """What one step may still take."""

    limit: StreamLimit
    used: StepSize = StepSize()  # noqa: RUF009 - a frozen value
    has_pieces: bool = False

    def takes(self, size: StepSize) -> bool:
        """Takes something, unless that would be too much; the first thing is always taken."""
        more = self.used.plus(size)
        if self.has_pieces and not self.limit.allows(more):
            return False
        self.used, self.has_pieces = more, True
        return True

    def is_full_after(self, piece_count: int) -> bool:
        """Counts a snapshot of which all pieces were taken; True where the step may have no more snapshots."""
        self.used = self.used.plus(StepSize(snapshots=min(1, piece_count)))
        return self.limit.snapshots is not None and self.used.snapshots >= self.limit.snapshots

    def left(self, limit: int | None, used: int) -> int | None:
        """How much of one limit is left; one at least where nothing was taken."""
        return None if limit is None else max(limit - used, 0 if self.has_pieces else 1)


class Piece(Protocol):
    """Changes of one bucket that one snapshot made, or that lie in a log."""

    @property
    def partition(self) -> bytes: ...
    @property
    def bucket(self) -> int: ...
    @property
    def total_buckets(self) -> int: ...
    @property
    def snapshot_id(self) -> int | None: ...
    @property
    def size(self) -> StepSize: ...


_P = TypeVar("_P", bound="Piece")


def by_bucket(pieces: Iterable[_P], state_id: int | None, *, moves_rows: bool = False) -> list[list[_P]]:
    """The pieces of a step, a group for each reader, in their order: those of a bucket together; those of the rows of a
    snapshot, `state_id`, one by one, as the keys of each are its own. What one group has of a key comes before what a
    later one has. With `moves_rows` a key may be in any bucket, and all but the rows of the snapshot are one group."""
    section = 0
    counts: dict[bytes, int] = {}
    groups: dict[object, list[_P]] = {}
    for index, piece in enumerate(pieces):
        if counts.setdefault(piece.partition, piece.total_buckets) != piece.total_buckets:
            section += 1
            counts[piece.partition] = piece.total_buckets
        is_of_state = state_id is not None and piece.snapshot_id == state_id
        place = () if moves_rows else (section, piece.partition, piece.bucket)
        key = index if is_of_state else place
        groups.setdefault(key, []).append(piece)
    return list(groups.values())
