"""SIGTERM and Ctrl-C as a request, wherever the program is when they come."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from freshet.pipeline.running.signals import when_asked_to_stop


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_that_comes_while_its_lock_is_held_is_heard(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    lock, is_heard = threading.Lock(), threading.Event()

    def hear() -> None:
        if lock.acquire(timeout=10):  # an event would wait without end
            is_heard.set()
            lock.release()

    with when_asked_to_stop(hear):
        with lock:
            os.kill(os.getpid(), number)
            assert not is_heard.is_set()
        assert is_heard.wait(300)
    assert signal.getsignal(number) is before
