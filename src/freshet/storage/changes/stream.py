"""A stream: changes as they come, as an iterator of Arrow batches that waits for more.

    for batch in table.stream(consumer_id="audit"):
        ...                              the columns, _ROW_KIND

It is a loop over the positions of a stream in pieces (`split_stream`, or with a log `logstore.reading.split_stream`):

| | |
|---|---|
| begins | where the consumer stopped, else as `stream_start` says |
| then | snapshot after snapshot, each in full before the next; of a log what is there beyond the last |
| waits | for `continuous.discovery-interval`, or until something is logged |
| ends | after `max_wait_s` without anything new; never, if that is None |
| fails | loudly, when expiry was faster (`RetryableError` says what is left) or the table was rolled back or dropped |

A snapshot counts as handed over when the caller comes back for more after its last batch. Then `next_snapshot_id`
moves on and the progress of the consumer is written: a reader that stops or dies in between gets the changes of that
snapshot again from the first. What is done with the changes of one snapshot should therefore take effect at once, or be
harmless twice; `_SNAPSHOT_ID`, on request, says which snapshot it is.

A consumer's snapshots do not expire, nor does the one whose rows come first (`ConsumerProgress`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from freshet.storage.changes.split_stream import SplitStream
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.logs.log_systems import LoggedSplitStream
from freshet.storage.model.snapshot_walk import StreamLimit

_ONE_SNAPSHOT: Final = StreamLimit(snapshots=1)


class ChangeStream(Iterator[pa.RecordBatch]):
    """Batches of changes; `Table.stream` gives it. Belongs to one thread; `close` lets go of open files."""

    def __init__(
        self, stream: SplitStream | LoggedSplitStream, *, max_wait_s: float | None = None, start: Any = None
    ) -> None:
        if max_wait_s is not None and (not isinstance(max_wait_s, int | float) or not max_wait_s >= 0):
            raise InvalidRequestError(f"max_wait_s is a number of seconds from 0 on, or None, not {max_wait_s!r}")
        self._stream = stream
        self._max_wait_s = max_wait_s
        self._position: Any = start
        self._begin()
        self._batches = self._run()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.schema)} columns, next snapshot {self.next_snapshot_id})"

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
        position = self._position
        return None if position is None or position.is_state else int(position.next_id)

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
            start = end = self._position
            if start is not None:
                end = self._stream.advance(start, _ONE_SNAPSHOT)
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


class LogStream(ChangeStream):
    """The same from the log of a table: `Table.stream` with an isolation gives it."""

    def __init__(
        self, stream: LoggedSplitStream, *, max_wait_s: float | None = None, state: Mapping[str, Any] | None = None
    ) -> None:
        start = stream.first() if state is None else stream.resumed(state)
        stream.check_begin(start)
        self._log = stream
        super().__init__(stream, max_wait_s=max_wait_s, start=start)

    @property
    def state(self) -> Mapping[str, Any] | None:
        """Where another stream may go on (`log_state`), as JSON holds it; everything before it was handed out. None,
        which begins anew, while the rows to begin with were not handed out in full."""
        return None if self._position.is_state else self._log.state_of(self._position)

    @property
    def progress(self) -> Any:
        """The committed watermark (`batch`, `snapshot_id`), and how far the log was read."""
        return self._position.state

    def headroom(self) -> Mapping[int, int]:
        """By partition: how many offsets retention may still take before this reader loses changes."""
        return self._log.headroom(self._position)
