"""Processes of this machine that run calls: workers, and the template that they are forked from.

    driver ──── control socket ────▶ template ── fork ──▶ worker 0, worker 1, …, and one more for groups
       └─ a pair of sockets each, of which the template hands one to the worker ─┘

The template is forked from the driver before that has any thread, and runs none itself: so whatever a fork copies is in
order, and a worker that has ended is replaced from it at any time. One that was killed takes its workers with it; a
program of its own takes its place. A thread of the driver stands for each worker. It sends a call (a value that is
called with the number of the worker), and waits for what it gives.

| a worker | then |
|---|---|
| raises | the call raises the same in the driver, with the worker's trace as its cause |
| ends, or is killed | the call raises `WorkerDiedError`, which says how it ended; another takes its place |
| runs a call of a group that is cancelled | it is killed, and another takes its place |
| is left by its driver, however that ended | it ends |

Calls of a group run in a process of their own with a lower priority, so that batches do not wait for them. SIGINT and
SIGTERM, which a terminal sends to all, are ignored in the workers: the driver ends its batch with them.

What the driver may do before the fork: import anything, and compute with Arrow and NumPy, whose threads and those of
their allocators begin anew in a child. What it may not: start threads of Python, make clients of Kafka, connections of
object stores or of DuckDB, since these live in threads that no child has; afterwards each process makes its own.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, Self, TypeVar

from freshet._frozen import Frozen, field
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.errors.known_causes import READ_LESS
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.local.worker_processes import (
    Call,
    Caught,
    KnownValues,
    Template,
    WorkerEndedError,
    WorkerProcess,
    answer_of,
    arrived_error,
)
from freshet.pipeline.query.driver.engine import EngineError
from freshet.pipeline.query.wire.batch_pin import Handed, TaskPlace
from freshet.storage.io.env import local_env

_GROUP_NICENESS: Final = 10
_CLOSE_S: Final = 5.0
T = TypeVar("T")
_WITH_TEMPLATE: Final = (
    "the process that workers are forked from was killed, most often by lack of memory, and they with it; another one "
    "takes its place"
)


class WorkerDiedError(EngineError):
    """A worker ended while it ran a call; the text says how."""


class _Request(Frozen):
    """A call that waits for its worker."""

    call: Call
    worker: int | None
    group: str | None
    future: Future[Any] = field(default_factory=Future)


class WorkerPool:
    """The workers of a process; may be shared by threads.

    With no worker, calls run at once in the thread that submits them. They travel all the same.
    """

    def __init__(self, workers: int, scratch_root: str | None = None, *, loads: Sequence[str] = ()) -> None:
        """Forks. Belongs before the first thread of the process. `scratch_root` is where files between workers lie,
        by default TMPDIR. `loads` are modules that the workers will need and this process has not loaded."""
        self.workers = workers
        self._attempts = count(1)
        self._homes = count()
        self._ready = threading.Condition()
        self._pending: deque[_Request] = deque()
        self._is_closed = False
        self._env = local_env(scratch_root)
        self._scratch_folder: str | None = None
        self._threads: list[threading.Thread] = []
        self._template = Template(loads) if workers else None
        self._processes = [WorkerProcess(self._template, number) for number in range(workers)] if self._template else []
        self._grouped = None if self._template is None else WorkerProcess(self._template, workers, _GROUP_NICENESS)
        for each in () if loads else self._processes:  # the first call starts them: then the template is ready
            each.start()

    def attempt(self) -> int:
        """The number of an attempt: none is given twice, and a later one is larger."""
        return next(self._attempts)

    def home(self) -> int:
        """A worker for what a query does in one; queries get one after the other."""
        return next(self._homes) % max(1, self.workers)

    def submit(self, call: Call, *, worker: int | None = None, group: str | None = None) -> Future[Any]:
        """What a call will give in this worker, or in the first one that is free; in the one for groups where a group
        is named. Each runs one call at a time, in their order."""
        request = _Request(call, worker, group)
        if not self.workers:
            self._run_inline(request)
            return request.future
        with self._ready:
            if self._is_closed:
                raise EngineError("the workers have ended")
            self._pending.append(request)
            self._start_threads()
            self._ready.notify_all()
        return request.future

    def cancel(self, group: str) -> None:
        """Ends the calls of a group, those that run and those that wait: they raise `EngineError`."""
        with self._ready:
            dropped = [each for each in self._pending if each.group == group]
            self._pending = deque(each for each in self._pending if each.group != group)
            if self._grouped is not None and self._grouped.group == group:
                self._grouped.kill()
        for each in dropped:
            each.future.set_exception(_cancelled(group))

    @contextmanager
    def scratch(self, name: str) -> Iterator[str]:
        """A folder of this name on the scratch disk, for files between workers: they make it, and it is removed.

        The next process removes those of one that was killed (`Env.scratch_folder`).
        """
        with self._ready:
            if self._scratch_folder is None:
                self._scratch_folder = self._env.scratch_folder()
        folder = f"{self._scratch_folder}/{name}"
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def pids(self) -> list[int]:
        """The processes of the workers, in their order."""
        return [each.pid for each in self._processes]

    def close(self) -> None:
        """Ends the workers; calls that run are not waited for."""
        with self._ready:
            self._is_closed = True
            pending, self._pending = self._pending, deque()
            self._ready.notify_all()
        for each in pending:
            each.future.set_exception(EngineError("the workers have ended"))
        processes = [*self._processes, *([self._grouped] if self._grouped else [])]
        for process in processes:
            process.shut_down()
        if self._template is not None:
            self._template.close()
        for thread in self._threads:
            thread.join(_CLOSE_S)
        if self._scratch_folder is not None:
            self._env.release_scratch(self._scratch_folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run_inline(self, request: _Request) -> None:
        with Caught() as caught:
            content = pickle.dumps(request.call, pickle.HIGHEST_PROTOCOL)
        if caught.error is not None:
            request.future.set_exception(caught.error)
        else:
            _settle(request.future, answer_of(content, request.worker or 0), None)

    def _start_threads(self) -> None:
        if self._threads:
            return
        assert self._grouped is not None
        for each in (*self._processes, self._grouped):
            thread = threading.Thread(target=self._serve, args=(each,), name=f"freshet-worker-{each.number}")
            thread.daemon = True
            thread.start()
            self._threads.append(thread)

    def _serve(self, process: WorkerProcess) -> None:
        """The thread that stands for a worker."""
        while (request := self._next(process)) is not None:
            with Caught() as caught:
                reply = process.ask(request.call)
            self._clear_group(process)
            if isinstance(caught.error, WorkerEndedError):
                caught.error = self._replaced(process, request, caught.error)
            if caught.error is not None:
                request.future.set_exception(caught.error)
            else:
                _settle(request.future, reply, process.known)

    def _next(self, process: WorkerProcess) -> _Request | None:
        """The next call for a worker; None once there are to be no more."""
        with self._ready:
            while not self._is_closed:
                for index, request in enumerate(self._pending):
                    if self._is_for(request, process):
                        del self._pending[index]
                        process.group = request.group
                        return request
                self._ready.wait()
            return None

    def _is_for(self, request: _Request, process: WorkerProcess) -> bool:
        if request.group is not None or process is self._grouped:
            return request.group is not None and process is self._grouped
        return request.worker is None or request.worker == process.number

    def _clear_group(self, process: WorkerProcess) -> None:
        """From now on nothing kills the process for the call that it ran: its id may be another's once it is asked how
        it ended."""
        with self._ready:
            process.group = None

    def _replaced(self, process: WorkerProcess, request: _Request, ended: WorkerEndedError) -> Exception:
        """What a call says whose worker has ended; another one is there then."""
        if self._is_closed:
            return EngineError("the workers have ended")
        with Caught() as caught:
            how = process.how_it_ended()
            process.start()
        if caught.error is not None:
            lost = PipelineFailedError(
                "the process that workers are forked from has ended, so no worker can be replaced: start again",
                kind=ErrorKind.RETRYABLE,
            )
            lost.__cause__ = caught.error
            return lost
        if process.was_killed:
            process.was_killed = False
            return _cancelled(request.group or "")
        error = WorkerDiedError(_WITH_TEMPLATE if how is None else died_text(how))
        error.__cause__ = ended.__cause__
        return error


def settled(futures: Sequence[Future[Any]]) -> list[Any]:
    """What these calls give, once all have ended. Raises what the first of them raised, a worker's end first."""
    errors = [error for each in futures if (error := each.exception()) is not None]
    if errors:
        raise next((error for error in errors if isinstance(error, WorkerDiedError)), errors[0])
    return [each.result() for each in futures]


def died_text(status: int) -> str:
    """How a worker ended, by its wait status, and what to do."""
    if not os.WIFSIGNALED(status):
        return f"a worker process ended with exit code {os.waitstatus_to_exitcode(status)}; look into the log for why"
    name = signal.Signals(os.WTERMSIG(status)).name
    if name != "SIGKILL":
        return f"a worker process was ended by {name}: it crashed"
    return (
        f"a worker process was ended by {name}, most often by lack of memory. Give the machine or the container more, "
        f"or {READ_LESS}, or lower the table's write-buffer-size"
    )


def _cancelled(group: str) -> EngineError:
    return EngineError(f"the calls of {group} were cancelled")


def _settle(future: Future[Any], reply: bytes, known: KnownValues | None) -> None:
    """What a worker has replied, for whoever waits for it."""
    is_result, value, has_forgotten = pickle.loads(reply)
    if has_forgotten and known is not None:
        known.forget()
    if is_result:
        future.set_result(value)
    else:
        future.set_exception(arrived_error(*value))


class _ItemCall(Frozen):
    """A call for one item, in its place."""

    work: Callable[[Any, TaskPlace], bytes]
    item: Any
    place: TaskPlace

    def __call__(self, worker: int) -> bytes:
        return self.work(self.item, self.place)


class LocalEngine:
    """An `Engine`; may be shared by the queries of a process. A worker runs one task of a batch, with all that falls to
    it, so there are as many tasks as workers."""

    def __init__(self, pool: WorkerPool, *, parallelism: int | None = None) -> None:
        """`parallelism` is that of the pool, unless a test wants more tasks than it has workers."""
        self.pool = pool
        self._parallelism = parallelism or max(1, pool.workers)

    @property
    def parallelism(self) -> int:
        """`Engine.parallelism`."""
        return self._parallelism

    @property
    def tasks_max(self) -> int:
        """`Engine.tasks_max`."""
        return self._parallelism

    def each(
        self, work: Callable[[T, TaskPlace], bytes], items: Sequence[T], *, group: str | None = None
    ) -> list[bytes]:
        """`Engine.each`."""
        calls = [_ItemCall(work, item, self.place(Handed(), number)) for number, item in enumerate(items)]
        futures = [self.pool.submit(call, group=group) for call in calls]
        try:
            return settled(futures)
        except Exception as error:
            if group is None or isinstance(error, EngineError):
                raise
            raise EngineError(str(error)) from error

    def cancel(self, group: str) -> None:
        """`Engine.cancel`."""
        self.pool.cancel(group)

    def place(self, handed: Handed, number: int = 0) -> TaskPlace:
        """The place of another attempt at a task."""
        return TaskPlace(handed, number, self.pool.attempt())
