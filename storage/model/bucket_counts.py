"""Which changes of a batch may be read side by side: those of one bucket stay together, as each key is in one bucket.

That holds until a partition is rewritten into another number of buckets. From there on a key may be in another bucket,
so what comes after is read after everything before.
"""

from __future__ import annotations

from typing import NamedTuple


class ReadingPlace(NamedTuple):
    """Changes of one place are read one after the other; those of a later section after those of all earlier ones."""

    section: int
    partition: bytes
    bucket: int


class BucketCounts:
    """The numbers of buckets that the changes of one batch have shown so far, in their order."""

    def __init__(self) -> None:
        self._section = 0
        self._counts: dict[bytes, int] = {}

    def place(self, partition: bytes, bucket: int, total_buckets: int) -> ReadingPlace:
        """Where the next change belongs that is in this bucket of so many."""
        if self._counts.setdefault(partition, total_buckets) != total_buckets:
            self._section += 1
            self._counts[partition] = total_buckets
        return ReadingPlace(self._section, partition, bucket)
