"""Background work is done in order and once for each name, a child has none; gradual work ends with the program."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from freshet.storage.io import background as background_module
from freshet.storage.io.background import Background, GradualWork


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

    monkeypatch.setattr(background_module, "ThreadPoolExecutor", made_slowly)
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


def test_gradual_work_is_begun_once_and_again_behind_it() -> None:
    work, gate, started = GradualWork(), threading.Event(), threading.Event()
    done: list[str] = []

    def steps(name: str) -> Iterator[None]:
        for number in range(3):
            started.set()
            gate.wait(300)
            done.append(f"{name}{number}")
            yield

    work.run("a", lambda: steps("first"))
    assert started.wait(300)
    work.run("a", lambda: steps("dropped"))
    work.run("a", lambda: steps("again"))
    gate.set()
    work.finish()
    assert done == ["first0", "first1", "first2", "again0", "again1", "again2"]
    work.run("a", lambda: steps("later"))
    work.finish()
    assert done[6:] == ["later0", "later1", "later2"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
def test_gradual_work_leaves_the_processor_to_others() -> None:
    work, found = GradualWork(), []

    def steps() -> Iterator[None]:
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        yield

    work.run("a", steps)
    work.finish()
    assert found == [max(10, os.getpriority(os.PRIO_PROCESS, 0))]


def test_gradual_works_take_turns_and_an_error_ends_only_its_own(caplog: pytest.LogCaptureFixture) -> None:
    work, gate = GradualWork(), threading.Event()
    done: list[str] = []

    def steps(name: str, fails_at: int) -> Iterator[None]:
        gate.wait(300)
        for number in range(3):
            if number == fails_at:
                raise ValueError("enough")
            done.append(f"{name}{number}")
            yield

    work.run("a", lambda: steps("a", 1))
    work.run("b", lambda: steps("b", 9))
    gate.set()
    work.finish()
    assert done == ["a0", "b0", "b1", "b2"]
    assert "enough" in caplog.text
    work.run("a", lambda: steps("c", 9))
    work.finish()
    assert done[4:] == ["c0", "c1", "c2"]


def test_forked_child_does_nothing_of_the_gradual_work_of_its_parent() -> None:
    work, gate = GradualWork(), threading.Event()

    def steps() -> Iterator[None]:
        gate.wait(300)
        yield

    work.run("a", steps)
    child = os.fork()
    if child == 0:
        work.finish()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    gate.set()
    work.finish()


ENDLESS = """
import itertools, time
from freshet.storage.io.env import local_env

def steps():
    try:
        for _ in itertools.count():
            time.sleep(0.01)
            yield
    finally:
        print("given up", flush=True)

local_env().run_gradually("a", steps)
time.sleep(0.1)
"""


def test_gradual_work_is_given_up_when_the_program_ends() -> None:
    answer = subprocess.run([sys.executable, "-c", ENDLESS], capture_output=True, text=True, timeout=300)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "given up\n", "")
