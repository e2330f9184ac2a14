"""SIGTERM and Ctrl-C as a request to stop, for commands that go on until they are stopped."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def when_asked_to_stop(action: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and Ctrl-C call `action`, which must return at once; a second one ends the program."""
    signals = (signal.SIGTERM, signal.SIGINT)
    before: Mapping[signal.Signals, Any] = {number: signal.getsignal(number) for number in signals}

    def ask(_number: int, _frame: FrameType | None) -> None:
        for number in signals:
            signal.signal(number, signal.SIG_DFL)
        action()

    for number in signals:
        signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
