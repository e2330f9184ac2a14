"""Values in memory, bounded by their sizes together: those that were used longest ago go first."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

OTHERS_MAX: Final = 64
"""Values that `keep` leaves besides twice as many as live."""


class SharedBound:
    """A bound that all caches of one kind in a process divide among them: so much in all, at least `least` each.

    A program may write a hundred tables, and each keeps what it knows of its metadata.
    """

    def __init__(self, whole: int, least: int) -> None:
        self._whole, self._least = whole, least
        self._caches: weakref.WeakSet[object] = weakref.WeakSet()

    def join(self, cache: object) -> None:
        """Another cache, for as long as it lives."""
        self._caches.add(cache)

    @property
    def share(self) -> int:
        """What each may hold now."""
        return max(self._least, self._whole // max(1, len(self._caches)))


class SizedCache(Generic[K, V]):
    """May be shared by threads. The value that came last stays, whatever its size; None is no value."""

    def __init__(self, size_max: int | SharedBound, size_of: Callable[[Any], int] = len) -> None:
        self._size_max = size_max
        if isinstance(size_max, SharedBound):
            size_max.join(self)
        self._size_of = size_of
        self._lock = threading.Lock()
        self._values: OrderedDict[K, V] = OrderedDict()
        self._size = 0

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def get(self, key: K) -> V | None:
        """The value, which was used last then."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def take(self, key: K) -> V | None:
        """The value, which is not here any more."""
        with self._lock:
            value = self._values.get(key)
            self._drop(key)
            return value

    def put(self, key: K, value: V) -> None:
        """Takes the place of the value before."""
        with self._lock:
            self._drop(key)
            self._values[key] = value
            self._size += self._size_of(value)
            size_max = self._size_max if isinstance(self._size_max, int) else self._size_max.share
            while self._size > size_max and len(self._values) > 1:
                self._drop(next(iter(self._values)))

    def drop(self, keys: Iterable[K]) -> None:
        """Forgets values."""
        with self._lock:
            for key in keys:
                self._drop(key)

    def keep(self, count: int, keys: Iterable[K]) -> None:
        """Forgets all but the values of these keys, so many, which are all that live: where values have grown to twice
        as many, so that most calls do not look at the keys."""
        if len(self._values) <= 2 * count + OTHERS_MAX:
            return
        living = frozenset(keys)
        with self._lock:
            for key in [key for key in self._values if key not in living]:
                self._drop(key)

    def _drop(self, key: K) -> None:
        value = self._values.pop(key, None)
        if value is not None:
            self._size -= self._size_of(value)
