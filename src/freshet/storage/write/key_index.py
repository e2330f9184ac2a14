"""Where the keys of one partition are: hash of the key → bucket, 6 bytes a key.

Two sorted arrays of equal length. New hashes gather in a second, small pair, which is merged into the large one where
it has grown to a sixteenth of it: by `settle`, when there is time, at the latest when more are added. While they are
merged a key takes less than 12 bytes: the array of the hashes is replaced before that of the buckets is made.

Used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

Int16Array = npt.NDArray[np.int16]
Int32Array = npt.NDArray[np.int32]

N = TypeVar("N", bound=np.generic)

UNKNOWN: Final = -1
"""Bucket of a key that is not there."""

RECENT_MIN: Final = 65_536
RECENT_SHARE: Final = 16

PIECE: Final = 262_144


class KeyIndex:
    """The hashes that were added, each with one bucket."""

    def __init__(self) -> None:
        self._large = _Sorted.empty()
        self._recent = _Sorted.empty()

    def __len__(self) -> int:
        return len(self._large.hashes) + len(self._recent.hashes)

    @property
    def size_bytes(self) -> int:
        """Memory of the arrays."""
        return self._large.size_bytes + self._recent.size_bytes

    def find(self, hashes: Int32Array) -> Int16Array:
        """The bucket of each hash, `UNKNOWN` where it has none. Hashes in ascending order are found six times as fast:
        neighbours are in the same part of memory."""
        buckets = self._large.find(hashes)
        if len(self._recent.hashes):
            missing = np.flatnonzero(buckets == UNKNOWN)
            buckets[missing] = self._recent.find(hashes[missing])
        return buckets

    def add(self, hashes: Int32Array, buckets: Int16Array) -> None:
        """Adds hashes; one that is there keeps its bucket, of two equal ones the first counts."""
        if not (hashes[1:] > hashes[:-1]).all():
            hashes, first = np.unique(hashes, return_index=True)
            buckets = buckets[first]
        is_new = self.find(hashes) == UNKNOWN
        if not is_new.all():
            hashes, buckets = hashes[is_new], buckets[is_new]
        self.extend(hashes, buckets)

    def extend(self, hashes: Int32Array, buckets: Int16Array) -> None:
        """Adds distinct hashes in ascending order, none of which is there. Who knows that need not have them looked up:
        2 M keys in ten commits take 0.15 s of processor time, not 0.20."""
        if not len(hashes):
            return
        self.settle()
        self._recent.merge(hashes, buckets)

    def settle(self) -> None:
        """Merges the recent hashes into the others where they are many; what is found does not change."""
        if len(self._recent.hashes) > max(RECENT_MIN, len(self._large.hashes) // RECENT_SHARE):
            recent, self._recent = self._recent, _Sorted.empty()
            self._large.merge(recent.hashes, recent.buckets)

    def merge(self, other: KeyIndex) -> None:
        """Adds all that another one has, none of which is there; the other is not used any more."""
        if not len(self):
            self._large, self._recent = other._large, other._recent
            return
        for each in (other._large, other._recent):
            self.extend(each.hashes, each.buckets)

    def hashes_of(self, bucket: int) -> Int32Array:
        """The hashes of one bucket."""
        return np.concatenate([each.hashes[each.buckets == bucket] for each in (self._large, self._recent)])

    def by_bucket(self) -> Iterator[tuple[int, Int32Array]]:
        """The hashes of each bucket, in ascending order of the buckets."""
        if not len(self):
            return iter(())
        hashes = np.concatenate([self._large.hashes, self._recent.hashes])
        buckets = np.concatenate([self._large.buckets, self._recent.buckets])
        order = np.argsort(buckets, kind="stable")
        found, starts = np.unique(buckets[order], return_index=True)
        return zip(found.tolist(), np.split(hashes[order], starts[1:]), strict=True)

    def remove(self, bucket: int) -> None:
        """Forgets the hashes of a bucket."""
        for each in (self._large, self._recent):
            each.keep(each.buckets != bucket)


class _Sorted:
    """Distinct hashes in ascending order, with their buckets."""

    def __init__(self, hashes: Int32Array, buckets: Int16Array) -> None:
        self.hashes = hashes
        self.buckets = buckets

    @classmethod
    def empty(cls) -> _Sorted:
        return cls(np.zeros(0, np.int32), np.zeros(0, np.int16))

    @property
    def size_bytes(self) -> int:
        return self.hashes.nbytes + self.buckets.nbytes

    def find(self, hashes: Int32Array) -> Int16Array:
        if not len(self.hashes):
            return np.full(len(hashes), UNKNOWN, np.int16)
        places = np.searchsorted(self.hashes, hashes)
        places[places == len(self.hashes)] = 0
        return np.where(self.hashes[places] == hashes, self.buckets[places], np.int16(UNKNOWN))

    def merge(self, hashes: Int32Array, buckets: Int16Array) -> None:
        """Adds sorted hashes, none of which is there."""
        if not len(self.hashes):
            self.hashes, self.buckets = hashes, buckets
            return
        if self.buckets[0] == buckets[0] and _is_uniform(self.buckets) and _is_uniform(buckets):
            # A partition of one bucket, as most are: the sort merges two sorted runs, 3 ms for 2 M and not 13.
            self.hashes = np.concatenate([self.hashes, hashes])
            self.hashes.sort(kind="stable")
            self.buckets = np.full(len(self.hashes), buckets[0])
            return
        places = np.searchsorted(self.hashes, hashes)
        self.hashes = _woven(self.hashes, hashes, places)
        self.buckets = _woven(self.buckets, buckets, places)

    def keep(self, chosen: npt.NDArray[np.bool_]) -> None:
        if not chosen.all():
            self.hashes, self.buckets = self.hashes[chosen], self.buckets[chosen]


def _is_uniform(buckets: Int16Array) -> bool:
    return bool(buckets.min() == buckets.max())


def _woven(old: npt.NDArray[N], new: npt.NDArray[N], places: npt.NDArray[np.int64]) -> npt.NDArray[N]:
    """Both arrays as one: each new value lies before the old one at its place. Made piece by piece, so that nothing but
    the result takes memory."""
    both = np.empty(len(old) + len(new), old.dtype)
    for start in range(0, len(old) + 1, PIECE):
        end = min(start + PIECE, len(old))
        first, last = np.searchsorted(places, [start, end + (end == len(old))])
        piece = both[start + first : end + last]
        at = places[first:last] - start + np.arange(last - first)
        is_old = np.ones(len(piece), np.bool_)
        is_old[at] = False
        piece[is_old] = old[start:end]
        piece[at] = new[first:last]
    return both
