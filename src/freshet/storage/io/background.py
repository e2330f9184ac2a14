"""Work in threads of the process besides its callers': what follows a commit, what takes long and may
wait, and calls that mostly wait themselves (`Helpers`)."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Final, TypeVar

_NICENESS: Final = 10
"""Measured, 100 M rows in 16 buckets, lookups back to back on two cores while mapped stores are built: batches of 8 to
10.1 s where reading alone takes 9 to 10, all stores after 115 s; at 0 batches up to 13.4 s, all stores after 70 s."""
_LOG: Final = logging.getLogger(__name__)

T = TypeVar("T")


class Background:
    """Background work in one thread of the process: what follows a commit, once that has returned.

    The thread is started when it is needed. A forked child inherits the lists of its parent but not the thread: it
    starts with nothing to do. May be used by several threads.
    """

    def __init__(self) -> None:
        self._queues: dict[int, _Queue] = {}

    def run(self, name: str, work: Callable[[], None]) -> None:
        """Does the work after what was given before; takes the place of work of the same name that has not begun."""
        process = os.getpid()
        if process not in self._queues:
            self._queues.setdefault(process, _Queue())  # of threads that come at once, all get the queue of the first
        queue = self._queues[process]
        with queue.lock:
            if name not in queue.works:
                queue.ends[name] = queue.executor.submit(queue.do, name)
            queue.works[name] = work

    def finish(self) -> None:
        """Waits for everything given so far."""
        queue = self._queues.get(os.getpid())
        if queue is not None:
            with queue.lock:
                ends = list(queue.ends.values())
            wait(ends)


class _Queue:
    """The background work of one process; its thread starts with the first piece."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="freshet-background")
        self.works: dict[str, Callable[[], None]] = {}
        """What has not begun."""
        self.ends: dict[str, Future[None]] = {}

    def do(self, name: str) -> None:
        """The newest work of this name."""
        with self.lock:
            work = self.works.pop(name)
        work()


class GradualWork:
    """Work in small steps, in one thread of the process, that is given up when the program ends.

    `Background` is waited for then; this may take minutes. A forked child starts with nothing to do. May be used by
    several threads.
    """

    def __init__(self) -> None:
        self._works: dict[int, _Works] = {}

    def run(self, name: str, steps: Callable[[], Iterator[None]]) -> None:
        """Does the steps; where work of this name is under way, `steps` is begun behind it."""
        process = os.getpid()
        if process not in self._works:
            self._works.setdefault(process, _Works())
        self._works[process].run(name, steps)

    def finish(self) -> None:
        """Waits for everything given so far."""
        works = self._works.get(os.getpid())
        if works is not None:
            works.finish()


def _yield_to_others() -> None:
    """The thread that calls has the processor where others leave it. Only Linux has priorities of threads."""
    if sys.platform == "linux":
        with suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, max(_NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))


class _Works:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._executor = ThreadPoolExecutor(1, "freshet-gradual", _yield_to_others)
        self._running: set[str] = set()
        self._again: dict[str, Callable[[], Iterator[None]]] = {}

    def run(self, name: str, steps: Callable[[], Iterator[None]]) -> None:
        with self._changed:
            if name in self._running:
                self._again[name] = steps
                return
            self._running.add(name)
        self._next(name, steps())

    def finish(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._running)

    def _next(self, name: str, steps: Iterator[None]) -> None:
        try:
            self._executor.submit(self._step, name, steps)
        except RuntimeError:  # the program ends
            self._end(name)
            if isinstance(steps, Generator):
                steps.close()

    def _step(self, name: str, steps: Iterator[None]) -> None:
        try:
            next(steps)
        except StopIteration:
            self._end(name)
        except BaseException:
            _LOG.exception("work in the background was given up: %s", name)
            self._end(name)
            raise
        else:
            self._next(name, steps)

    def _end(self, name: str) -> None:
        with self._changed:
            again = self._again.pop(name, None)
            if again is None:
                self._running.discard(name)
                self._changed.notify_all()
        if again is not None:
            self._next(name, again())


class Helpers:
    """Threads for calls that mostly wait for a disk or a store. May be used by several threads, and after a fork."""

    def __init__(self, threads_max: int) -> None:
        self._threads_max = threads_max
        self._executors: dict[int, ThreadPoolExecutor] = {}

    def together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """The results, in order, once all calls have ended; the first error in order is raised."""
        process = os.getpid()
        if process not in self._executors:
            made = ThreadPoolExecutor(self._threads_max, thread_name_prefix="freshet-files")
            self._executors.setdefault(process, made)
        executor = self._executors[process]
        futures = [executor.submit(call) for call in calls[1:]]
        try:
            first = [call() for call in calls[:1]]
        finally:
            wait(futures)
        return [*first, *(future.result() for future in futures)]
