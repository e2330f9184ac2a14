"""Work that nobody waits for: in order, once for each name, and gone in a forked child."""

from __future__ import annotations

import os
import threading

from freshet.storage.io.env import Background


def test_work_is_done_in_order_and_once_while_it_waits() -> None:
    background = Background()
    gate, started = threading.Event(), threading.Event()
    done: list[str] = []

    def first() -> None:
        started.set()
        gate.wait(30)
        done.append("first")

    background.run("a", first)
    assert started.wait(30)
    background.run("b", lambda: done.append("second"))
    background.run("b", lambda: done.append("dropped: one of this name waits"))
    background.run("a", lambda: done.append("third: the one of this name has begun"))
    gate.set()
    background.finish()
    assert done == ["first", "second", "third: the one of this name has begun"]


def test_nothing_to_wait_for() -> None:
    Background().finish()


def test_forked_child_waits_for_nothing_and_works_by_itself() -> None:
    background = Background()
    gate = threading.Event()
    background.run("a", lambda: bool(gate.wait(30)))
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
