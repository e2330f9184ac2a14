"""The processes of a pool: the template, the workers that it forks, and what travels between them and the driver.

    driver ──── control socket ────▶ template ── fork ──▶ worker
       └─ a pair of sockets each, of which the template hands one to the worker ─┘

The template asks nobody anything and does two things: it forks a worker for a socket, and it says how a worker ended.
Until that is asked, the id of the process is nobody else's. It ends with the driver, and the workers with it. Where it
was killed, the driver has threads by then: the next template is a program of its own, which loads what it needs.
"""

from __future__ import annotations

import copyreg
import ctypes
import gc
import io
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import count
from types import TracebackType
from typing import Any, Final, NoReturn

import pyarrow as pa

from freshet.pipeline.errors.failure import kind_of
from freshet.pipeline.errors.repeating_errors import error_document, error_of
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.query.wire.kept_value import KeptValue, kept_of
from freshet.storage.exceptions import StorageError

Call = Callable[[int], Any]
"""A value that travels; called with the number of the worker."""

KEPT_MAX: Final = 16
"""Kept values that a worker is not sent again."""
_COMMAND: Final = struct.Struct("<cq")
_ANSWER: Final = struct.Struct("<q")
_FORK: Final = b"f"
_HOW: Final = b"h"
_PARENT_DEATH_SIGNAL: Final = 1
"""`PR_SET_PDEATHSIG` of Linux."""
_MMAP_THRESHOLD: Final = (-3, 16 << 20)
"""`M_MMAP_THRESHOLD` of glibc: from so many bytes on, memory goes back where it is freed."""
_CLOSE_S: Final = 5.0
_CLOSE_STEP_S: Final = 0.002
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM)


class WorkerTrace(Exception):
    """The trace of an error in the worker that raised it."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class WorkerEndedError(Exception):
    """The socket of a worker is closed."""


class Caught:
    """What is raised within, kept."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> Caught:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        self.error = error
        return kind is not None and issubclass(kind, Exception)


class KnownValues:
    """The kept values that a worker has been sent, by their content; the worker lets the same ones go (`answer_of`)."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._count = count()

    def dumps(self, value: Any) -> tuple[bytes, dict[bytes, int]]:
        """A value for the worker, and the contents in it that are new to it, with their numbers."""
        fresh: dict[bytes, int] = {}

        def reduced(kept: KeptValue[Any]) -> tuple[Any, ...]:
            content = kept.content
            number = self._numbers.get(content, fresh.get(content))
            if number is not None:
                return _again, (number,)
            fresh[content] = next(self._count)
            return _first, (fresh[content], content)

        buffer = io.BytesIO()
        pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = {**copyreg.dispatch_table, KeptValue: reduced}
        pickler.dump(value)
        return buffer.getvalue(), fresh

    def sent(self, fresh: dict[bytes, int]) -> None:
        """The worker has got these."""
        self._numbers.update(fresh)
        while len(self._numbers) > KEPT_MAX:
            del self._numbers[next(iter(self._numbers))]

    def forget(self) -> None:
        """The worker has none."""
        self._numbers.clear()


class WorkerProcess:
    """One worker, as the driver knows it; used by the thread that stands for it."""

    def __init__(self, template: Template, number: int, niceness: int = 0) -> None:
        self.number = number
        self.known = KnownValues()
        self.group: str | None = None
        """Whose call runs."""
        self.was_killed = False
        self.pid = 0
        self._template = template
        self._niceness = niceness
        self._socket: socket.socket | None = None
        self._origin = 0

    def start(self) -> None:
        """Forks it."""
        ours, theirs = socket.socketpair()
        with theirs:
            self.pid, self._origin = self._template.fork(theirs.fileno(), self.number, self._niceness)
        self._socket = ours
        self.known.forget()

    def ask(self, call: Call) -> bytes:
        """What it answers. Raises `WorkerEndedError` where it ends instead."""
        try:
            if self._socket is None or self._origin != self._template.pid:  # it has ended with its template
                self.start()
            assert self._socket is not None
            content, fresh = self.known.dumps(call)
            _send(self._socket, content)
            self.known.sent(fresh)
            return _receive(self._socket)
        except (EOFError, OSError) as error:
            raise WorkerEndedError from error

    def kill(self) -> None:
        """Ends it in the middle of its call."""
        self.was_killed = True
        os.kill(self.pid, signal.SIGKILL)

    def how_it_ended(self) -> int | None:
        """The wait status of the process that has closed its socket; None where it has ended with its template."""
        self.shut_down()
        return self._template.how(self.pid, self._origin)

    def shut_down(self) -> None:
        """Closes its socket, whoever waits there: once it has ended its call it ends."""
        found, self._socket = self._socket, None
        if found is not None:
            _shut(found)


class Template:
    """The process that workers are forked from, as the driver knows it; may be shared by threads."""

    def __init__(self, loads: Sequence[str] = ()) -> None:
        """`loads` are modules that the template loads before it forks a worker, beside what the driver does."""
        self.pid = 0
        """Of none, where it has ended and could not be started again."""
        self._is_closed = False
        self._lock = threading.Lock()
        self._loads = (*loads, *(name for name in sys.modules if name.startswith(_OURS)))
        self._control, theirs = socket.socketpair()
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            self._control.close()
            _begin(parent)
            _run_template(theirs, parent, loads)
        theirs.close()

    def fork(self, descriptor: int, number: int, niceness: int) -> tuple[int, int]:
        """The process ids of a new worker with this socket and of its template, which is another one where the last has
        ended."""
        asked = _FORK, number << 8 | niceness, [descriptor]
        with self._lock:
            try:
                return self._asked(*asked), self.pid
            except (EOFError, OSError):
                if self._is_closed:
                    raise
                self._renew()
                return self._asked(*asked), self.pid

    def how(self, pid: int, origin: int) -> int | None:
        """The wait status of a worker that ends, whose process id is free then; None where its template, `origin`, has
        ended."""
        with self._lock, suppress(EOFError, OSError):
            return self._asked(_HOW, pid) if self.pid == origin else None
        return None

    def close(self) -> None:
        """Ends it, once the workers have ended, or all of them at once if that takes long."""
        self._is_closed = True
        _shut(self._control)
        until_s = time.monotonic() + _CLOSE_S
        with suppress(ChildProcessError):
            while self.pid and os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > until_s:
                    os.kill(self.pid, signal.SIGKILL)
                time.sleep(_CLOSE_STEP_S)

    def _asked(self, kind: bytes, value: int, descriptors: Sequence[int] = ()) -> int:
        socket.send_fds(self._control, [_COMMAND.pack(kind, value)], descriptors)
        answer = self._control.recv(_ANSWER.size, socket.MSG_WAITALL)
        if len(answer) < _ANSWER.size:
            raise EOFError
        (found,) = _ANSWER.unpack(answer)
        return int(found)

    def _renew(self) -> None:
        """Starts another one without a fork of this process, which has threads."""
        self._control.close()
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0
        self._control, theirs = socket.socketpair()
        program = [sys.executable, "-c", _PROGRAM, repr((sys.path, os.getpid(), self._loads))]
        with theirs:
            onto = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), _INPUT)]
            self.pid = os.posix_spawn(sys.executable, program, os.environ, file_actions=onto)


_OURS: Final = "freshet."
_INPUT: Final = 0
"""The descriptor of the control socket in a program."""
_PROGRAM: Final = f"""
import ast, sys
sys.path[:], parent, loads = ast.literal_eval(sys.argv[1])
from {__name__} import run_program
run_program(parent, loads)
"""


# --- the other processes ----------------------------------------------------------------------------------------------


def _begin(parent: int, *, dies_with_thread: bool = True) -> None:
    """The first lines of each: it ends with the thread that is its parent, and leaves signals of the terminal to the
    driver."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux" and dies_with_thread:
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def run_program(parent: int, loads: Sequence[str]) -> NoReturn:
    """A template that is a program of its own. What has started it is a thread, which ends before its process."""
    _begin(parent, dies_with_thread=False)
    _run_template(socket.socket(fileno=_INPUT), parent, loads)


def _run_template(control: socket.socket, parent: int, loads: Sequence[str]) -> NoReturn:
    """Forks and reaps as the driver asks, until that is gone and the workers have ended."""
    gc.disable()
    for name in loads:
        import_module(name)
    gc.freeze()
    here = os.getpid()
    while True:
        command, descriptors, _, _ = socket.recv_fds(control, _COMMAND.size, 1)
        if len(command) < _COMMAND.size:
            break
        kind, value = _COMMAND.unpack(command)
        if kind == _HOW:
            control.send(_ANSWER.pack(os.waitpid(value, 0)[1]))
            continue
        pid = os.fork()
        if not pid:
            control.close()
            _begin(here)
            _run_worker(socket.socket(fileno=descriptors[0]), *divmod(value, 1 << 8))
        os.close(descriptors[0])
        control.send(_ANSWER.pack(pid))
    control.close()
    with suppress(ChildProcessError):
        while os.getppid() == parent:
            os.waitpid(-1, os.WNOHANG)
            time.sleep(_CLOSE_STEP_S)
    os._exit(0)


def _run_worker(calls: socket.socket, number: int, niceness: int) -> NoReturn:
    """Answers calls until the driver is gone.

    Arrow's own pool keeps what blocks have left: all processes of W9 had 580 MB at most with it, and 420 MB with the
    allocator of the system, in the same processor time. Whose own threshold grows with what is freed: thirty records of
    5 MB took 730 to 850 MB with it, and 600 to 640 with ours, for 3 % of the time of a batch.
    """
    gc.enable()
    os.nice(niceness)
    pa.set_memory_pool(pa.system_memory_pool())
    if hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(*_MMAP_THRESHOLD)
    with suppress(EOFError, OSError):
        while True:
            _send(calls, answer_of(_receive(calls), number))
    os._exit(0)


def _send(to: socket.socket, content: bytes) -> None:
    to.sendall(_ANSWER.pack(len(content)))
    to.sendall(content)


def _receive(of: socket.socket) -> bytes:
    """What `_send` has sent. Raises `EOFError` where the other side is gone."""
    (size,) = _ANSWER.unpack(_filled(of, _ANSWER.size))
    return _filled(of, size)


def _filled(of: socket.socket, size: int) -> bytes:
    content = of.recv(size, socket.MSG_WAITALL)
    while len(content) < size:  # a signal came, or it is larger than what is given at a time
        more = of.recv(size - len(content), socket.MSG_WAITALL)
        if not more:
            raise EOFError
        content += more
    return content


def _shut(found: socket.socket) -> None:
    """Closes a socket of which other processes may have copies."""
    with suppress(OSError):
        found.shutdown(socket.SHUT_RDWR)
    found.close()


_received: dict[int, KeptValue[Any]] = {}
"""Of the worker whose request is read, by the numbers that `KnownValues` has given."""


def _first(number: int, content: bytes) -> KeptValue[Any]:
    _received[number] = found = kept_of(content)
    return found


def _again(number: int) -> KeptValue[Any]:
    return _received[number]


def answer_of(request: bytes, number: int) -> bytes:
    """The reply of a worker to a request."""
    with Caught() as caught:
        call = pickle.loads(request)
    if caught.error is not None:
        _received.clear()
        return pickle.dumps((False, _travelling(caught.error), True))
    while len(_received) > KEPT_MAX:
        del _received[next(iter(_received))]
    with Caught() as caught:
        return pickle.dumps((True, call(number), False), pickle.HIGHEST_PROTOCOL)
    return pickle.dumps((False, _travelling(caught.error), False))


def _travelling(error: BaseException | None) -> tuple[str, Any, str]:
    """An error for the driver: as it is where it can be pickled, else its document or its text; and its trace."""
    assert isinstance(error, Exception)
    trace = "".join(traceback.format_exception(error))
    with Caught():
        content = pickle.dumps(error, pickle.HIGHEST_PROTOCOL)
        back = pickle.loads(content)
        if type(back) is type(error) and str(back) == str(error):
            return "pickled", content, trace
    if isinstance(error, StorageError):
        return "document", error_document(error), trace
    text = f"a worker failed: {type(error).__name__}: {error}"
    return "failed", (text, kind_of(error)), trace


def arrived_error(how: str, value: Any, trace: str) -> Exception:
    """The error of `_travelling`, to be raised."""
    if how == "pickled":
        error: Exception = pickle.loads(value)
    elif how == "document":
        error = error_of(value)
    else:
        error = PipelineFailedError(value[0], kind=value[1])
    error.__cause__ = WorkerTrace(trace)
    return error
