"""Work in the background: in order, once for each name, and gone in a forked child."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from freshet.storage.io import env
from freshet.storage.io.env import Background


def test_work_is_done_in_order_and_once_while_it_waits() -> None:
    background = Background()
    gate, started = threading.Event(), threading.Event()
    done: list[str] = []

    def first() -> None:
        started.set()
        gate.wait(300)
        done.append("first")

    background.run("a", first)
    assert started.wait(300)
    background.run("b", lambda: done.append("dropped: a newer one of this name comes before it has begun"))
    background.run("b", lambda: done.append("second"))
    background.run("a", lambda: done.append("third: the one of this name has begun"))
    gate.set()
    background.finish()
    assert done == ["first", "second", "third: the one of this name has begun"]


def test_nothing_to_wait_for() -> None:
    Background().finish()


def test_forked_child_waits_for_nothing_and_works_by_itself() -> None:
    background = Background()
    gate = threading.Event()
    background.run("a", lambda: bool(gate.wait(300)))
    child = os.fork()
    if child == 0:
        done: list[int] = []
        background.finish()
        background.run("a", lambda: done.append(1))
        background.finish()
        os._exit(0 if done == [1] else 1)
    _, status = os.waitpid(child, 0)
    gate.set()
    background.finish()
    assert os.waitstatus_to_exitcode(status) == 0


def test_work_of_threads_that_are_the_first_at_once_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second thread is amid the making of its executor while the first hands over its work."""
    background = Background()
    first_is_there, second_is_there, work_is_given = threading.Event(), threading.Event(), threading.Event()
    done: list[str] = []

    def made_slowly(*arguments: Any, **options: Any) -> ThreadPoolExecutor:
        if threading.current_thread().name == "first":
            first_is_there.set()
            second_is_there.wait(300)
        else:
            second_is_there.set()
            work_is_given.wait(300)
        return ThreadPoolExecutor(*arguments, **options)

    def work() -> None:
        never = threading.Event()
        never.wait(0.5)  # time for a `finish` that does not know of this
        done.append("first")

    def first() -> None:
        background.run("a", work)
        work_is_given.set()

    monkeypatch.setattr(env, "ThreadPoolExecutor", made_slowly)
    threads = [
        threading.Thread(target=first, name="first"),
        threading.Thread(target=lambda: background.run("b", lambda: done.append("second")), name="second"),
    ]
    threads[0].start()
    assert first_is_there.wait(300)
    threads[1].start()
    for thread in threads:
        thread.join(300)
    background.finish()
    assert sorted(done) == ["first", "second"]
