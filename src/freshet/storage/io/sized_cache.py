"""Values in memory, bounded by their sizes together: those that were used longest ago go first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SizedCache(Generic[K, V]):
    """May be shared by threads. The value that came last stays, whatever its size; None is no value."""

    def __init__(self, size_max: int, size_of: Callable[[Any], int] = len) -> None:
        self._size_max = size_max
        self._size_of = size_of
        self._lock = threading.Lock()
        self._values: OrderedDict[K, V] = OrderedDict()
        self._size = 0

    def __contains__(self, key: K) -> bool:
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
            while self._size > self._size_max and len(self._values) > 1:
                self._drop(next(iter(self._values)))

    def drop(self, keys: Iterable[K]) -> None:
        """Forgets values."""
        with self._lock:
            for key in keys:
                self._drop(key)

    def _drop(self, key: K) -> None:
        value = self._values.pop(key, None)
        if value is not None:
            self._size -= self._size_of(value)
