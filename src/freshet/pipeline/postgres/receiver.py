"""The thread that receives a stream: it drains the connection, answers the server, and confirms what the lake has.

    server ─▶ ReplicationStream ─▶ Received ─▶ whoever asks (`wait_for`, `within`)
           ◀── confirmations ◀──── confirm(lsn): from the thread of the query, once a batch is in the lake

| | |
|---|---|
| a commit of the lake takes long | the last confirmation is repeated; nothing is received beyond `HELD_MAX` |
| a transaction is larger than memory | what has come of it lies in a file (`received`) |
| keepalives, and nothing is here | their position may be confirmed: `quiet`, which the query writes down first |
| the server asks again and again | it shuts down: it is let go, and asked again later |
| the connection is cut | a part of a transaction is forgotten, the stream goes on behind the last whole one |

libpq is used by this thread alone; all else is under one lock.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from freshet._frozen import Frozen
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineError, PipelineFailedError
from freshet.pipeline.postgres.received import Received
from freshet.pipeline.postgres.replication import ReplicationStream
from freshet.pipeline.postgres.spilled_messages import TransactionFile
from freshet.pipeline.postgres.wire import messages_of

HELD_MAX: Final = 192 << 20
"""Bytes of whole transactions that wait for the lake before nothing more is received."""
RECONNECT_S: Final = 30.0
AT_END_S: Final = 3.0
_REPEAT_S: Final = 1.0
_IMPATIENT: Final = 50
"""Requests for a reply without data in between, after which the server is taken to shut down."""
_LOG: Final = logging.getLogger(__name__)
_PAUSES_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0)


class Quiet(Frozen):
    """A position up to which the server had nothing for this stream."""

    lsn: int
    is_asked: bool
    """Whether the server wants to hear of it."""


class Receiver:
    """Receives from `start` on, until it is closed."""

    def __init__(self, open_at: Callable[[int], ReplicationStream], start: int, what: str) -> None:
        """`open_at` gives a stream that has begun at a position, having looked whether it may; `what` is the slot, for
        messages."""
        self._open_at, self._what = open_at, what
        self._changed = threading.Condition()
        self._received = Received(start, TransactionFile())
        self._confirmed = start
        self._quiet: Quiet | None = None
        self.seen = 0
        """Up to where the server has sent all that it had."""
        self._answers, self._answered_s = 0, time.monotonic()
        self._error: Exception | None = None
        self._is_closed = self._asks = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._stream: ReplicationStream | None = open_at(start)
        self._thread = threading.Thread(target=self._run, name=f"receives {what}", daemon=True)
        self._thread.start()

    @contextmanager
    def held(self) -> Iterator[Received]:
        """What was received, which does not change meanwhile; raises what has ended the stream."""
        with self._changed:
            if self._error is not None:
                raise self._error
            yield self._received

    def wait(self, timeout_s: float, has_come: Callable[[Received], bool]) -> bool:
        """Waits until something has come; raises what has ended the stream."""
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or has_come(self._received), timeout_s)
            if self._error is not None:
                raise self._error
            return has_come(self._received)

    def confirm(self, lsn: int) -> None:
        """The lake has everything before a position; what was held up to there has been dropped."""
        with self._changed:
            self._confirmed = max(self._confirmed, lsn)
        self._wake()

    def confirm_quiet(self, quiet: Quiet) -> None:
        """The same of a position where there was nothing; not where something has come since."""
        with self._changed:
            if self._quiet is not None and self._received.is_empty:
                self._confirmed = max(self._confirmed, quiet.lsn)
        self._wake()

    @property
    def confirmed(self) -> int:
        """What the server has been told, or will be."""
        return self._confirmed

    def ask(self) -> None:
        """Asks the server how far it is: `seen`."""
        self._asks = True
        self._wake()

    @property
    def is_at_end(self) -> bool:
        """Whether the server has said again and again that it is where it was. The end of its log may be in the middle
        of a record, which it does not send before the rest is written: nobody knows when."""
        return self._answers > 2 and time.monotonic() - self._answered_s >= AT_END_S

    def quiet(self) -> Quiet | None:
        """A position beyond what is confirmed, where nothing that was received is missing in the lake."""
        with self._changed:
            quiet, received = self._quiet, self._received
            if quiet is None or quiet.lsn <= self._confirmed or not received.is_empty:
                return None
            return quiet if self._confirmed >= received.end else None

    def close(self) -> None:
        """Ends the thread and the connection."""
        self._is_closed = True
        self._wake()
        self._thread.join()
        self._received.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"\0")

    def _run(self) -> None:
        with self._kept_errors():
            held, since = self._received.end, time.monotonic()
            while not self._is_closed:
                stream = self._stream or self._open_again()
                if stream is None:
                    break
                try:
                    self._receive(stream)
                except PipelineFailedError as error:
                    if self._received.end > held or time.monotonic() - stream.begun_s > RECONNECT_S:
                        held, since = self._received.end, time.monotonic()
                    if error.kind is not ErrorKind.RETRYABLE or time.monotonic() - since > RECONNECT_S:
                        raise  # the second: streams that begin, and end before anything has come
                    _LOG.warning("%s; connecting again", error)
                finally:
                    self._stream = None
                    stream.close()
                with self._changed:
                    self._received.forget_part()

    @contextmanager
    def _kept_errors(self) -> Iterator[None]:
        """What ends the thread is raised to whoever asks for what it received."""
        with ExitStack() as stack:
            stack.push(self._keep_error)
            yield

    def _keep_error(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Exception):
            with self._changed:
                self._error = error
                self._changed.notify_all()
        return isinstance(error, Exception)

    def _open_again(self) -> ReplicationStream | None:
        """The stream behind the last whole transaction; None where it is closed meanwhile."""
        until, pauses = time.monotonic() + RECONNECT_S, iter(_PAUSES_S)
        pause = 0.0
        while not self._is_closed:
            select.select([self._wake_read], [], [], pause)
            pause = next(pauses, _PAUSES_S[-1])
            try:
                return self._open_at(self._received.end)
            except PipelineError as error:
                if error.kind is not ErrorKind.RETRYABLE or time.monotonic() > until:
                    raise
        return None

    def _receive(self, stream: ReplicationStream) -> None:
        """Receives until it is closed, or the stream ends."""
        told, asked_count = -1, 0
        may_hold = True
        while not self._is_closed:
            is_full = self._is_full()
            due_s = stream.replied_s + stream.reply_every_s - time.monotonic()
            readers = [self._wake_read] if is_full else [stream.socket, self._wake_read]
            # libpq reads as it begins a stream, and as it sends: what it holds does not make the socket readable.
            is_due = may_hold and not is_full
            ready, _, _ = select.select(readers, [], [], 0.0 if is_due else max(0.0, due_s))
            if self._wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
            is_asked = False
            if stream.socket in ready or is_due:
                is_asked, has_data = self._take(stream)
                may_hold = has_data
                asked_count = 0 if has_data else asked_count + is_asked
            confirmed = self._confirmed
            waited_s = time.monotonic() - stream.replied_s
            is_news = confirmed > told
            asks, self._asks = self._asks, False
            if is_news or asks or waited_s >= stream.reply_every_s or (is_asked and waited_s >= _REPEAT_S):
                stream.confirm(confirmed, asks=asks)
                may_hold = True
                told, asked_count = confirmed, 0 if is_news else asked_count
            if asked_count > _IMPATIENT:
                return  # it waits for a confirmation that nobody can give, and would not end with us here

    def _is_full(self) -> bool:
        with self._changed:
            return self._received.size_bytes >= HELD_MAX and self._received.has_whole

    def _take(self, stream: ReplicationStream) -> tuple[bool, bool]:
        """Takes what is there; gives whether the server wants a reply, and whether there were data."""
        frames = stream.drain()
        if not frames:
            return False, False
        messages, keepalive = messages_of(frames)
        has_data = bool(len(messages.starts))
        is_asked = keepalive is not None and bool(keepalive[-1])
        with self._changed:
            received = self._received
            received.add(messages)
            if has_data:
                self._quiet = None
            seen = self.seen if keepalive is None else int.from_bytes(keepalive[1:9], "big")
            if has_data or seen != self.seen:
                self._answers, self._answered_s = 0, time.monotonic()
            self.seen = seen
            self._answers += keepalive is not None
            if keepalive is not None and received.is_empty and not has_data:
                self._quiet = Quiet(int.from_bytes(keepalive[1:9], "big"), is_asked)
            self._changed.notify_all()
        return is_asked, has_data
