"""SIGTERM and Ctrl-C as a request to stop, for commands that go on until they are stopped."""

from __future__ import annotations

import _thread
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def when_asked_to_stop(action: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and Ctrl-C call `action`, in a thread of its own; a second one ends the program.

    The handler runs wherever the main thread is: one that sets an event there would wait for ever where that thread was
    about to look at the event, and holds its lock. Starting a thread in this way takes no lock.
    """
    signals = (signal.SIGTERM, signal.SIGINT)
    before: Mapping[signal.Signals, Any] = {number: signal.getsignal(number) for number in signals}

    def ask(_number: int, _frame: FrameType | None) -> None:
        for number in signals:
            signal.signal(number, signal.SIG_DFL)
        _thread.start_new_thread(action, ())

    for number in signals:
        signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
