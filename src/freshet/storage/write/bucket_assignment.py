"""Which bucket a new key gets, in a table with dynamic buckets. Pure.

    1. the lowest own bucket that has fewer keys than `dynamic-bucket.target-row-num`
    2. else the lowest own number that is not in use, below `dynamic-bucket.max-buckets`, which counts for each
       partition by itself
    3. where there is none, an own bucket by the hash: they grow beyond the target

Several assigners share the keys of a partition by their hash: assigner r of n has the keys with |hash % n| = r, and
owns the buckets with bucket % n = r. So one assigner alone adds keys to a bucket, and it alone writes the bucket's
index file, wherever its task runs.

New keys are taken in the order of their hashes, not as they come: whoever gets the same keys upon the same index
assigns the same, so a task that runs twice gives no key to two buckets.

Paimon 2.0.0 counts `max-buckets` over all partitions of an assigner, and an assigner that owns no number below it
fails; MERGING.md §8.2.

Source: FORMAT.md §8.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from freshet.storage.write.key_index import Int16Array, Int32Array

BUCKETS_MAX: Final = 32_767
"""Bucket numbers are 16-bit integers, and the largest is not used."""


@dataclass(frozen=True, slots=True)
class AssignerShare:
    """One of so many assigners of a partition."""

    number: int = 0
    count: int = 1

    def has(self, hashes: Int32Array) -> npt.NDArray[np.bool_]:
        """Which of the hashes are those of its keys."""
        if self.count == 1:
            return np.ones(len(hashes), np.bool_)
        is_own: npt.NDArray[np.bool_] = np.abs(np.fmod(hashes, np.int32(self.count))) == self.number
        return is_own

    def owns(self, bucket: int) -> bool:
        """Whether it may add keys to the bucket."""
        return bucket % self.count == self.number


SOLE_ASSIGNER: Final = AssignerShare()


@dataclass(frozen=True, slots=True)
class AssignmentRule:
    """What the options say; `max_buckets` is None where there is no limit but that of the format."""

    target_row_num: int
    max_buckets: int | None = None
    share: AssignerShare = SOLE_ASSIGNER

    def assign(self, new: Int32Array, counts: Mapping[int, int]) -> Int16Array:
        """Buckets for new hashes, which are distinct and in ascending order; `counts` are the keys of each bucket of
        the partition."""
        buckets = np.empty(len(new), np.int16)
        start = 0
        for bucket, room in self._rooms(counts):
            if start == len(new):
                return buckets
            end = min(len(new), start + room)
            buckets[start:end] = bucket
            start = end
        if start < len(new):
            own = np.array([number for number in range(self._limit) if self.share.owns(number)], np.int16)
            buckets[start:] = own[np.abs(new[start:].astype(np.int64)) // self.share.count % len(own)]
        return buckets

    @property
    def _limit(self) -> int:
        return BUCKETS_MAX if self.max_buckets is None else min(self.max_buckets, BUCKETS_MAX)

    def _rooms(self, counts: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        for bucket in sorted(counts):
            if self.share.owns(bucket) and counts[bucket] < self.target_row_num:
                yield bucket, self.target_row_num - counts[bucket]
        for bucket in range(self.share.number, self._limit, self.share.count):
            if bucket not in counts:
                yield bucket, self.target_row_num
