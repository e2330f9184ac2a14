"""A stream: changes as they come, in pieces, or as an iterator of Arrow batches that waits for more.

In pieces, positions and splits, for an engine that plans on one machine and reads on many (`SplitStream`):

    stream = table.engine.split_stream(StreamRequest(scan_mode="latest-full"))
    start  = stream.first()                        where it begins
    end    = stream.advance(start, StreamLimit())  as far as has been committed, or as the limit allows
    splits = stream.splits(start, end)             in the order of the snapshots; the same ones again for the same two
    stream.read_split(splits[0])                   Arrow batches, in this or another process: both can be pickled
    stream.handed_over(end)                        for the consumer: what lies before `end` will not be asked for again

A position is the whole state of a reader: it goes into the engine's checkpoint as JSON, and another process goes on
from it. The first one is kept as well: `first` gives another place once more was committed. A snapshot whose splits
were not all taken is resumed at the split after the last; it is planned again then, so a plan of another number of
splits is refused, as is a history that is not the one the position was taken in.

As an iterator (`ChangeStream`): a loop over such positions, with a log over those of `logstore.reading.split_stream`:

    for batch in table.stream(consumer_id="audit"):
        ...                              the columns, _ROW_KIND

| | |
|---|---|
| begins | where the consumer stopped, else as `stream_request` says |
| then | snapshot after snapshot, each in full before the next; of a log what is there beyond the last |
| waits | for `continuous.discovery-interval`, or until something is logged |
| ends | after `max_wait_s` without anything new; never, if that is None |
| fails | loudly, when expiry was faster (`RetryableError` says what is left) or the table was rolled back or dropped |

A snapshot counts as handed over when the caller comes back for more after its last batch. Then `next_snapshot_id`
moves on and the progress of the consumer is written: a reader that stops or dies in between gets the changes of that
snapshot again from the first. What is done with the changes of one snapshot should therefore take effect at once, or be
harmless twice; `_SNAPSHOT_ID`, on request, says which snapshot it is.

A consumer's snapshots do not expire, nor does the one whose rows come first (`ConsumerProgress`).

Source: MERGING.md §7.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from freshet.storage.changes.change_source import ChangeRules
from freshet.storage.changes.follower import Follower
from freshet.storage.changes.history import ChangeHistory
from freshet.storage.changes.stream_request import ConsumerProgress, StreamPosition, StreamRequest, stream_start
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.logs.log_systems import LoggedSplitStream
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_type import DataField
from freshet.storage.model.snapshot_walk import Budget, StreamLimit, by_bucket
from freshet.storage.model.split import ChangeSplit
from freshet.storage.scan.table_scan import decoders

_ONE_SNAPSHOT: Final = StreamLimit(snapshots=1)


class SplitStream:
    """Changes of one table from a position on; `TableEngine.split_stream` gives it. Belongs to one thread."""

    def __init__(self, store: TableStore, request: StreamRequest) -> None:
        self._store = store
        self._request = request
        self._start = request.start
        self._reader = request.reader(store)
        self._history = ChangeHistory(store)
        self._progress = ConsumerProgress(store, request.consumer_id)
        self._follower = Follower(store, self._reader.scan_filter, self._reader.columns, reads_upserts=request.upserts)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the batches."""
        return self._reader.schema

    @property
    def fields(self) -> tuple[DataField, ...]:
        """The table's columns among them."""
        return tuple(self._store.schema.by_name[name] for name in self._reader.columns)

    def first(self) -> StreamPosition:
        """Where a new reader begins; of a table without snapshots, with the changes of its first."""
        return self.begin() or StreamPosition(self._history.latest_id() + 1)

    def begin(self) -> StreamPosition | None:
        """Where the consumer stopped, else where the scan mode begins; None while there is no snapshot for that."""
        start = stream_start(self._store, self._history, self._start, self._progress.consumer_id)
        if start is None:
            return None
        if start.state is not None:
            return StreamPosition(start.state.id, is_state=True, of_ms=start.state.time_ms)
        before = self._history.find(start.next_id - 1) if start.next_id > 1 else None
        return StreamPosition(start.next_id, before_ms=None if before is None else before.time_ms)

    def bound(self) -> int:
        """A bound for `advance`: everything that is committed now."""
        return self.latest().snapshot_id

    def latest(self) -> StreamPosition:
        """After everything that has been committed."""
        return StreamPosition(self._history.latest_id() + 1)

    def advance(self, start: StreamPosition, limit: StreamLimit, until_id: int | None = None) -> StreamPosition:
        """How far a reader at `start` may go now: to the snapshot `until_id` at most, whose changes stay out.

        Raises as `Table.stream` does when expiry, a rollback or a drop has overtaken the position.
        """
        return self._follower.past_snapshots(start, Budget(limit), until_id)[0]

    def splits(self, start: StreamPosition, end: StreamPosition) -> list[ChangeSplit]:
        """The splits from one position up to the other, in the order of the snapshots.

        `InvalidRequestError` where the first lies beyond the other.
        """
        found, position = self._follower.whole_between(start, end)
        return [*found, *self._follower.part(position, end)]

    def groups(self, start: StreamPosition, end: StreamPosition) -> list[tuple[ChangeSplit, ...]]:
        """The splits of `splits`, a group for each reader: those of a state one by one, the keys of each are its own;
        later ones by bucket, in their order, or in one group where a key may be in any bucket: rows move between
        partitions, or overwrites that assign keys anew are read. What one group has of a key comes before what a later
        one has."""
        state_id = start.snapshot_id if start.is_state else None
        reads_overwrites = ChangeRules.of(self._store.options).reads_overwrites
        moves = self._store.moves_rows or (self._store.reassigns_keys and reads_overwrites)
        groups = by_bucket(self.splits(start, end), state_id, moves_rows=moves)
        return [tuple(group) for group in groups]

    def read_group(self, group: tuple[ChangeSplit, ...]) -> Iterator[pa.RecordBatch]:
        """The changes of a group, in their order."""
        for split in group:
            yield from self.read_split(split)

    def position(self, document: Mapping[str, Any]) -> StreamPosition:
        """A position out of a checkpoint; `InvalidRequestError` for what is none."""
        return StreamPosition.from_document(document)

    def read_split(self, split: ChangeSplit, *, ahead: bool = False) -> Iterator[pa.RecordBatch]:
        """The changes of one split: the columns, `_ROW_KIND`, on request `_SNAPSHOT_ID`. `ahead`: threads of this
        process decode what comes next."""
        with self._history.explained(self._follower.snapshot(split.snapshot_id)):
            yield from self._reader.read(split, decoders() if ahead else None)

    def read_between(self, start: StreamPosition, end: StreamPosition) -> Iterator[pa.RecordBatch]:
        """What lies between two positions, in its order, for a reader that plans and reads in one process."""
        for split in self.splits(start, end):
            yield from self.read_split(split, ahead=True)

    @property
    def pause_s(self) -> float:
        """How long to wait before looking again."""
        return self._store.options.continuous_discovery_interval_ms / 1000

    def wait(self, position: StreamPosition | None, seconds: float) -> None:
        """Waits; a commit is noticed afterwards."""
        self._store.env.sleep_s(seconds)

    def close(self) -> None:
        """Nothing stays open between two steps."""

    def handed_over(self, end: StreamPosition) -> None:
        """What lies before this position will not be asked for again: the consumer moves on.

        While it reads the rows of a snapshot, that snapshot is kept by a consumer of another name (`ConsumerProgress`).
        """
        self._follower.forget(end.snapshot_id)
        self._progress.moved(end.snapshot_id, is_state=end.is_state)

    def __reduce__(self) -> tuple[Any, ...]:
        return SplitStream, (self._store, self._request)


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
