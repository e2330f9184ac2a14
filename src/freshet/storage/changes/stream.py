"""A stream: changes as they are committed, as an iterator of Arrow batches that waits for the next snapshot.

    for batch in table.stream(consumer_id="audit"):
        ...                              the columns, _ROW_KIND

| | |
|---|---|
| begins | as `stream_start` says, or where the consumer stopped |
| then | snapshot after snapshot, each in full before the next, looking every `continuous.discovery-interval` |
| ends | after `max_wait_s` without a new snapshot; never, if that is None |
| fails | loudly, when expiry was faster (`RetryableError` says what is left) or the table was rolled back or dropped |

A snapshot counts as handed over when the caller comes back for more after its last batch. Then `next_snapshot_id`
moves on and the progress of the consumer is written: who stops in between, or dies, gets that snapshot's changes again
from its first. What is done with the changes of one snapshot should therefore take effect at once, or be harmless
twice; `_SNAPSHOT_ID`, on request, tells.

A consumer's snapshots do not expire. Its file is there from the beginning, except that a stream that begins with the
rows of a snapshot writes it only when they were handed over: else it would go on after them without having read them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

import pyarrow as pa

from freshet.storage.changes.follower import Follower, Step
from freshet.storage.changes.history import ChangeHistory
from freshet.storage.changes.reader import ChangeReader
from freshet.storage.changes.stream_start import StartRequest, StreamStart, resumed_start
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.predicate import Predicate
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.scan.pruning import ScanFilter
from freshet.storage.scan.split_reader import check_columns
from freshet.storage.scan.table_scan import decoders


class ChangeStream(Iterator[pa.RecordBatch]):
    """Batches of changes; `Table.stream` gives it. Belongs to one thread; `close` lets go of open files."""

    def __init__(
        self,
        store: TableStore,
        request: StartRequest,
        *,
        columns: Sequence[str] | None = None,
        filter: Predicate | None = None,  # noqa: A002  # the word every reader library uses
        consumer_id: str | None = None,
        max_wait_s: float | None = None,
        with_snapshot_id: bool = False,
    ) -> None:
        if max_wait_s is not None and (not isinstance(max_wait_s, int | float) or not max_wait_s >= 0):
            raise InvalidRequestError(f"max_wait_s is a number of seconds from 0 on, or None, not {max_wait_s!r}")
        store.check_is_there()
        self._store = store
        self._request = request
        self._filter = ScanFilter.bind(store.schema, filter)
        self._reader = ChangeReader(store, check_columns(store, columns), self._filter, with_snapshot_id)
        self._history = ChangeHistory(store)
        self._consumer_id = consumer_id
        self._max_wait_s = max_wait_s
        self._written: int | None = None
        """Progress of the consumer as its file has it."""
        self._next_id: int | None = None
        self._follower: Follower | None = None
        self._begin(self._resumed() or request.start(store, self._history))
        self._batches = self._run()

    @property
    def schema(self) -> pa.Schema:
        """Columns of the batches."""
        return self._reader.schema

    @property
    def next_snapshot_id(self) -> int | None:
        """The snapshot whose changes were not handed over in full yet: everything before it was.

        Another stream goes on there with `from_snapshot`. None while the rows with which the stream begins were not
        handed over in full.
        """
        return self._next_id

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def close(self) -> None:
        """Ends the stream; the snapshot that was being read counts as not handed over."""
        self._batches.close()

    def _resumed(self) -> StreamStart | None:
        if self._consumer_id is None:
            return None
        position = self._store.consumers.position(self._consumer_id)
        if position is None or self._store.options.consumer_ignore_progress:
            return None
        self._written = position
        return resumed_start(self._history, self._consumer_id, position)

    def _begin(self, start: StreamStart | None) -> None:
        if start is not None:
            self._follower = Follower(self._store, start, self._filter)
            if start.state is None:
                self._handed_over(start.next_id)

    def _run(self) -> Generator[pa.RecordBatch, None, None]:
        waited_s = 0.0
        while True:
            step = self._step()
            if step is not None:
                waited_s = 0.0
                for split in step.splits:
                    with self._history.explained(step.snapshot):
                        yield from self._reader.read(split, decoders())
                self._handed_over(step.next_id)
                continue
            pause_s = self._store.options.continuous_discovery_interval_ms / 1000
            if self._max_wait_s is not None:
                pause_s = min(pause_s, self._max_wait_s - waited_s)
                if pause_s <= 0:
                    return
            self._store.env.sleep_s(pause_s)
            waited_s += pause_s

    def _step(self) -> Step | None:
        if self._follower is None:
            self._begin(self._request.start(self._store, self._history))
        return None if self._follower is None else self._follower.step()

    def _handed_over(self, next_id: int) -> None:
        self._next_id = next_id
        if self._consumer_id is not None and self._written != next_id:
            self._store.check_is_there()  # or the file would bring the folder of a dropped table back
            self._store.consumers.reset(self._consumer_id, next_id)
            self._written = next_id
