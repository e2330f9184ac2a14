"""Requests to a store where each takes its time: many at once, and those made ahead of their reader.

    reads.together(calls)             several requests at the same time
    with reads.ahead(coming): …       what a reader is going to ask for, requested in its order before it asks
    reads.take(key)                   the answer that was requested ahead, if one was

What waits for its reader is bounded by bytes; what readers hold of large files by `reserve`, which never waits:
without room they read in smaller pieces. No call that runs here makes another one, so none waits for a thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from freshet._frozen import Frozen

T = TypeVar("T")

AHEAD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of answers that wait for one reader, or are on their way."""

AHEAD_PER_REQUEST: Final = 4
"""Answers that may wait for one reader for each request in flight, so that requests go on while it decodes."""

HELD_BYTES_MAX: Final = 192 * 1024 * 1024
"""Bytes of large files, held by all readers of a process together."""


class ComingRead(Frozen):
    """A request that a reader is going to make. `key` is what it will ask by."""

    key: Hashable
    size_bytes: int
    make: Callable[[], Any]


class StoreReads:
    """The requests of one process to one store. May be shared by threads."""

    def __init__(self, in_flight: int) -> None:
        self._in_flight = in_flight
        self._begin()

    def _begin(self) -> None:
        self._process_id = os.getpid()
        self._executor = ThreadPoolExecutor(self._in_flight, thread_name_prefix="freshet-requests")
        self._lock = threading.Lock()
        self._ahead: dict[Hashable, tuple[Future[Any], _Ahead]] = {}
        self.held_bytes = 0
        """What `reserve` has given."""

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Makes a request in the background."""
        self._check_process()
        return self._executor.submit(call)

    def _check_process(self) -> None:
        """A forked child has neither the threads of its parent nor what they were doing."""
        if self._process_id != os.getpid():
            self._begin()

    def together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """The answers in order, once all are there; the first error in order is raised."""
        if len(calls) < 2:
            return [call() for call in calls]
        futures = [self.submit(call) for call in calls]
        wait(futures)
        return [future.result() for future in futures]

    @contextmanager
    def ahead(self, coming: Iterable[ComingRead]) -> Iterator[None]:
        """While the block runs, these requests are made before `take` asks for them. What it does not take is dropped.

        A key that another reader has requested ahead at the moment is left to that one.
        """
        self._check_process()
        ahead = _Ahead(iter(coming))
        try:
            self._fill(ahead)
            yield
        finally:
            with self._lock:
                ahead.is_closed = True
                left = [self._ahead.pop(key)[0] for key in ahead.keys]
            for future in left:
                future.cancel()

    def take(self, key: Hashable) -> Future[Any] | None:
        """The answer requested ahead, which is the caller's then; None where none was."""
        self._check_process()
        with self._lock:
            found = self._ahead.pop(key, None)
            if found is None:
                return None
            future, ahead = found
            ahead.bytes_waiting -= ahead.keys.pop(key)
        self._fill(ahead)
        return future

    def reserve(self, size_bytes: int, *, always: bool = False) -> bool:
        """Takes some of the memory for parts of large files; False where others hold too much of it."""
        self._check_process()
        with self._lock:
            if not always and self.held_bytes and self.held_bytes + size_bytes > HELD_BYTES_MAX:
                return False
            self.held_bytes += size_bytes
            return True

    def release(self, size_bytes: int) -> None:
        """Gives it back."""
        with self._lock:
            self.held_bytes -= size_bytes

    def _fill(self, ahead: _Ahead) -> None:
        count_max = self._in_flight * AHEAD_PER_REQUEST
        with self._lock:
            while not ahead.is_closed and len(ahead.keys) < count_max and ahead.bytes_waiting < AHEAD_BYTES_MAX:
                read = next(ahead.coming, None)
                if read is None:
                    return
                if read.key not in self._ahead:
                    ahead.keys[read.key] = read.size_bytes
                    ahead.bytes_waiting += read.size_bytes
                    self._ahead[read.key] = self._executor.submit(read.make), ahead


class _Ahead:
    """What one reader has requested ahead and not taken yet."""

    def __init__(self, coming: Iterator[ComingRead]) -> None:
        self.coming = coming
        self.keys: dict[Hashable, int] = {}
        self.bytes_waiting = 0
        self.is_closed = False
