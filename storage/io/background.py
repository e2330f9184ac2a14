"""Work that nobody waits for, in one thread of the process: what follows a commit, once that has returned.

A forked child inherits the lists of its parent but not the thread: it starts with nothing to do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait


class Background:
    """One worker thread, started when it is needed. May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: int | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._waiting: dict[str, Future[None]] = {}

    def run(self, name: str, work: Callable[[], None]) -> None:
        """Does the work after what was given before; drops it when the same name waits and has not begun."""
        executor = self._own_executor()
        with self._lock:
            before = self._waiting.get(name)
            if before is None or before.running() or before.done():
                self._waiting[name] = executor.submit(work)

    def finish(self) -> None:
        """Waits for everything given so far."""
        if self._process == os.getpid():
            with self._lock:
                waiting = list(self._waiting.values())
            wait(waiting)

    def _own_executor(self) -> ThreadPoolExecutor:
        if self._executor is None or self._process != os.getpid():
            self._lock = threading.Lock()
            self._process = os.getpid()
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="freshet-background")
            self._waiting = {}
        return self._executor
