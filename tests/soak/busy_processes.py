"""The parent's side of `busy_process`: processes that are kept for the next task, and are killed while they work.

with BusyProcesses(folder) as processes:
    processes.run([task, other, compactor])                   until the time of all is over
    processes.run([task, other], kills=random.Random(1))      with kill -9 now and then; another process goes on
"""

from __future__ import annotations

import random
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from freshet.jobs.demo.child_process import start_child, stop_child, tail
from tests.soak.busy_process import Journal, Task

PATIENCE_S = 120.0
"""For a process to open a table, or to end its last commit after its time."""

LIFE_S = (0.05, 1.2)
"""A process that is to be killed lives so long, beginning with its first write."""


class BusyProcess:
    """One child; it does one task after the other."""

    def __init__(self, log: Path) -> None:
        self._log = log
        with log.open("ab") as errors:
            command = [sys.executable, "-m", "tests.soak.busy_process"]
            self._child = start_child(command, log=errors, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def take(self, task: Task) -> None:
        """Hands over a task; after `await_word("ready")` it waits for its start."""
        self._say(task.text())

    def go(self) -> None:
        self._say("go")

    def await_word(self, *words: str, timeout_s: float = PATIENCE_S) -> str:
        """The next word of the child, which must be one of these."""
        assert self._child.stdout is not None
        readable, _, _ = select.select([self._child.stdout], [], [], timeout_s)
        word = self._child.stdout.readline().decode().strip() if readable else f"nothing for {timeout_s:.0f} s"
        if word not in words:
            raise RuntimeError(f"a child said {word!r} and not one of {words}; its log ends:\n{tail(self._log)}")
        return word

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()
        stop_child(self._child)

    def _say(self, text: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(text.encode() + b"\n")
        self._child.stdin.flush()


@dataclass
class _Working:
    """A task, the process that does it now, and when that one is killed."""

    task: Task
    process: BusyProcess
    killed_at: float = float("inf")
    kills: int = 0


@dataclass
class BusyProcesses:
    """Processes that are at hand; those that were killed are replaced."""

    folder: Path
    _idle: list[BusyProcess] = field(default_factory=list)

    def __enter__(self) -> BusyProcesses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._idle:
            self._idle.pop().kill()

    def run(self, tasks: Sequence[Task], kills: random.Random | None = None) -> int:
        """Does the tasks at the same time; the number of kills. With `kills`, writers die and others go on."""
        self._keep(len(tasks) + (2 if kills else 0))
        working = [_Working(task, self._start(task)) for task in tasks]
        try:
            started = [each for each in working if each.process.await_word("ready", "done") == "ready"]
            end = time.monotonic() + max(task.seconds for task in tasks)
            for each in started:
                each.process.go()
                each.killed_at = _next_kill(each.task, kills)
            if kills is not None:
                self._kill_until(end, started, kills)
            for each in started:
                each.process.await_word("done", timeout_s=max(0.0, end - time.monotonic()) + PATIENCE_S)
        except BaseException:  # Ctrl-C and pytest's timeout as well: no child may outlive the test
            for each in working:
                each.process.kill()
            raise
        self._idle += [each.process for each in working]
        return sum(each.kills for each in working)

    def _kill_until(self, end: float, working: Sequence[_Working], kills: random.Random) -> None:
        while (now := time.monotonic()) < end:
            for each in working:
                if each.killed_at <= now and not Journal(Path(each.task.journal)).of("error"):
                    each.process.kill()
                    each.kills += 1
                    self._keep(2)
                    left = replace(each.task, seconds=max(0.0, end - time.monotonic()))
                    each.process = self._start(left)
                    if each.process.await_word("ready", "done") == "done":
                        raise RuntimeError(f"{each.task.user} cannot go on: {Journal(Path(left.journal)).of('error')}")
                    each.process.go()
                    each.killed_at = _next_kill(each.task, kills)
            time.sleep(0.005)

    def _start(self, task: Task) -> BusyProcess:
        process = self._idle.pop(0)
        process.take(task)
        return process

    def _keep(self, count: int) -> None:
        """Has so many at hand; they load while others work."""
        while len(self._idle) < count:
            self._idle.append(BusyProcess(self.folder / "processes.log"))


def _next_kill(task: Task, kills: random.Random | None) -> float:
    if kills is None:
        return float("inf")
    return time.monotonic() + kills.uniform(*LIFE_S)
