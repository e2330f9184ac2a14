"""One step of a stream: how much it takes at most, and which of its changes may be read side by side.

Changes of one bucket stay together, as each key is in one bucket. That holds until a partition is rewritten into
another number of buckets. From there on a key may be in another bucket, so what comes after is read after everything
before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


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

    def is_full(self, size: StepSize) -> bool:
        """True where as many snapshots were taken as it allows."""
        return self.snapshots is not None and size.snapshots >= self.snapshots


class ReadGroup(NamedTuple):
    """Changes of one group are read one after the other; those of a later section after those of all earlier ones."""

    section: int
    partition: bytes
    bucket: int


class ReadGroups:
    """The numbers of buckets that the changes of one batch have shown so far, in their order."""

    def __init__(self) -> None:
        self._section = 0
        self._counts: dict[bytes, int] = {}

    def group(self, partition: bytes, bucket: int, total_buckets: int) -> ReadGroup:
        """The group of the next change, which is in this bucket of so many."""
        if self._counts.setdefault(partition, total_buckets) != total_buckets:
            self._section += 1
            self._counts[partition] = total_buckets
        return ReadGroup(self._section, partition, bucket)
