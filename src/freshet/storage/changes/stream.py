"""A stream: changes as they come, as an iterator of Arrow batches that waits for more.

    for batch in table.stream(consumer_id="audit"):
        ...                              the columns, _ROW_KIND

It is a loop over the positions of a stream in pieces (`split_stream`, or with a log `logstore.split_stream`):

| | |
|---|---|
| begins | where the consumer stopped, else as `stream_start` says |
| then | snapshot after snapshot, each in full before the next; of a log what is there beyond the last |
| waits | for `continuous.discovery-interval`, or until something is logged |
| ends | after `max_wait_s` without anything new; never, if that is None |
| fails | loudly, when expiry was faster (`RetryableError` says what is left) or the table was rolled back or dropped |

A snapshot counts as handed over when the caller comes back for more after its last batch. Then `next_snapshot_id`
moves on and the progress of the consumer is written: who stops in between, or dies, gets that snapshot's changes again
from its first. What is done with the changes of one snapshot should therefore take effect at once, or be harmless
twice; `_SNAPSHOT_ID`, on request, tells.

A consumer's snapshots do not expire, nor does the one whose rows come first (`ConsumerProgress`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Final, Protocol

import pyarrow as pa

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.stream_step import StreamLimit

_ONE_SNAPSHOT: Final = StreamLimit(snapshots=1)


class Position(Protocol):
    """Where a stream stands."""

    @property
    def is_state(self) -> bool:
        """True while the rows of a snapshot come next, not its changes."""

    @property
    def next_id(self) -> int:
        """The first snapshot that is still needed."""


class PositionedStream(Protocol):
    """What the loop asks of a stream in pieces."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the batches."""

    @property
    def pause_s(self) -> float:
        """How long to wait before looking again."""

    def begin(self) -> Any:
        """Where a new reader begins; None while there is nothing that it could begin with."""

    def advance(self, start: Any, limit: StreamLimit) -> Any:
        """How far a reader at `start` may go now."""

    def read_between(self, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """What lies between, read in this process."""

    def handed_over(self, end: Any) -> None:
        """What lies before this position will not be asked for again."""

    def wait(self, position: Any, seconds: float) -> None:
        """Waits, or until there is something new; the position is None before there is one."""

    def close(self) -> None:
        """Lets go of connections."""


class ChangeStream(Iterator[pa.RecordBatch]):
    """Batches of changes; `Table.stream` gives it. Belongs to one thread; `close` lets go of open files."""

    def __init__(self, stream: PositionedStream, *, max_wait_s: float | None = None, start: Any = None) -> None:
        if max_wait_s is not None and (not isinstance(max_wait_s, int | float) or not max_wait_s >= 0):
            raise InvalidRequestError(f"max_wait_s is a number of seconds from 0 on, or None, not {max_wait_s!r}")
        self._stream = stream
        self._max_wait_s = max_wait_s
        self._position: Any = start
        self._begin()
        self._batches = self._run()

    @property
    def schema(self) -> pa.Schema:
        """Columns of the batches."""
        return self._stream.schema

    @property
    def next_snapshot_id(self) -> int | None:
        """The snapshot whose changes were not handed over in full yet: everything before it was.

        Another stream goes on there with `from_snapshot`. None while the rows with which the stream begins were not
        handed over in full.
        """
        position: Position | None = self._position
        return None if position is None or position.is_state else position.next_id

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def close(self) -> None:
        """Ends the stream; the snapshot that was being read counts as not handed over."""
        self._batches.close()
        self._stream.close()

    def _begin(self) -> None:
        start = self._stream.begin() if self._position is None else self._position
        if start is not None:
            self._hand_over(start)

    def _run(self) -> Generator[pa.RecordBatch, None, None]:
        waited_s = 0.0
        while True:
            if self._position is None:
                self._begin()
            start = self._position
            end = None if start is None else self._stream.advance(start, _ONE_SNAPSHOT)
            if end != start:
                waited_s = 0.0
                yield from self._stream.read_between(start, end)
                self._hand_over(end)
                continue
            pause_s = self._stream.pause_s
            if self._max_wait_s is not None:
                pause_s = min(pause_s, self._max_wait_s - waited_s)
                if pause_s <= 0:
                    return
            self._stream.wait(start, pause_s)
            waited_s += pause_s

    def _hand_over(self, position: Any) -> None:
        self._position = position
        self._stream.handed_over(position)
