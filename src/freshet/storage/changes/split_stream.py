"""A stream in pieces: positions and splits, for an engine that plans on one machine and reads on many.

    stream = table.split_stream(scan_mode="latest-full")
    start  = stream.first()                        where it begins
    end    = stream.advance(start, StreamLimit())  as far as has been committed, or as the limit allows
    splits = stream.splits(start, end)             in the order of the snapshots; the same ones again for the same two
    stream.read_split(splits[0])                   Arrow batches, in this or another process: both can be pickled
    stream.handed_over(end)                        for the consumer: what lies before `end` will not be asked for again

A position is the whole state of a reader: it goes into the engine's checkpoint as JSON, and another process goes on
from it. The first one is kept as well: `first` gives another place once more was committed. A snapshot whose splits
were not all taken is resumed at the split after the last; it is planned again then, so a plan of another number of
splits is refused, as is a history that is not the one the position was taken in.

Source: MERGING.md §7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from freshet.storage.changes.consumer_progress import ConsumerProgress
from freshet.storage.changes.follower import Follower, Step
from freshet.storage.changes.history import ChangeHistory
from freshet.storage.changes.reader import ChangeReader
from freshet.storage.changes.stream_start import StartRequest, StreamStart, stream_start
from freshet.storage.exceptions import InvalidRequestError, OvertakenError
from freshet.storage.filters.predicate import Predicate
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_type import DataField
from freshet.storage.model.split import ChangeSplit
from freshet.storage.model.stream_step import Budget, StreamLimit, by_bucket
from freshet.storage.scan.pruning import ScanFilter
from freshet.storage.scan.split_reader import check_columns
from freshet.storage.scan.table_scan import decoders

LOG_STATE: Final = "log"
"""Positions of readers of a log have this key."""


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """Everything before a snapshot was taken, and of the snapshot the first `taken` of `of` splits.

    `is_state` says that it is the rows of the snapshot with which the stream begins, not its changes. `before_ms` is
    the commit time of the snapshot before, where it was there, `of_ms` that of the snapshot whose rows come first, or
    which was read in part: they tell a history from another one of the same ids.
    """

    snapshot_id: int
    is_state: bool = False
    taken: int = 0
    of: int = 0
    before_ms: int | None = None
    of_ms: int | None = None

    @property
    def next_id(self) -> int:
        """The first snapshot that is still needed."""
        return self.snapshot_id

    def to_document(self) -> dict[str, Any]:
        """The position for JSON."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> StreamPosition:
        """The inverse; `InvalidRequestError` for what is no position, or one of a reader of the log."""
        if LOG_STATE in document:
            raise InvalidRequestError(
                "the checkpoint was made by a reader of the log, which has its place there: go on with "
                "log.read.isolation=committed or speculative, or begin with a new checkpoint",
                option="log.read.isolation",
            )
        try:
            return cls(**document)
        except TypeError as error:
            raise InvalidRequestError(f"{dict(document)!r} is no position in the changes of a table: {error}") from None


class SplitStream:
    """Changes of one table from a position on; `Table.split_stream` gives it. Belongs to one thread."""

    def __init__(
        self,
        store: TableStore,
        request: StartRequest,
        *,
        columns: Sequence[str] | None = None,
        filter: Predicate | None = None,  # noqa: A002  # the word every reader library uses
        consumer_id: str | None = None,
        with_snapshot_id: bool = False,
    ) -> None:
        store.check_is_there()
        self._store = store
        self._request = request
        self._filter = ScanFilter.bind(store.schema, filter)
        self._reader = ChangeReader(store, check_columns(store, columns), self._filter, with_snapshot_id)
        self._history = ChangeHistory(store)
        self._consumer_id = consumer_id
        self._progress = ConsumerProgress(store, consumer_id)
        self._follower: Follower | None = None
        self._steps: dict[tuple[int, bool], Step] = {}
        """Those planned and not handed over yet, by snapshot and whether it is a state."""

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
        start = stream_start(self._store, self._history, self._request, self._consumer_id)
        if start is None:
            return None
        if start.state is not None:
            return StreamPosition(start.state.id, is_state=True, of_ms=start.state.time_ms)
        before = self._history.find(start.next_id - 1) if start.next_id > 1 else None
        return StreamPosition(start.next_id, before_ms=None if before is None else before.time_ms)

    def bound(self) -> int:
        """What `advance` may be told not to pass: everything that is committed now."""
        return self.latest().snapshot_id

    def latest(self) -> StreamPosition:
        """After everything that has been committed."""
        return StreamPosition(self._history.latest_id() + 1)

    def advance(self, start: StreamPosition, limit: StreamLimit, until_id: int | None = None) -> StreamPosition:
        """How far a reader at `start` may go now: to the snapshot `until_id` at most, whose changes stay out.

        Raises as `Table.stream` does when expiry, a rollback or a drop has overtaken the position.
        """
        position, budget = start, Budget(limit)
        while until_id is None or position.is_state or position.snapshot_id < until_id:
            step = self._step(position)
            if step is None:
                break
            for taken in range(position.taken, len(step.splits)):
                if not budget.takes(step.splits[taken].size):
                    return _within(position, step, taken)
            position = StreamPosition(step.next_id, before_ms=step.snapshot.time_ms)
            if budget.is_full_after(len(step.splits)):
                break
        return position

    def splits(self, start: StreamPosition, end: StreamPosition) -> list[ChangeSplit]:
        """The splits from one position up to the other, in the order of the snapshots.

        `InvalidRequestError` where the first lies beyond the other.
        """
        if _place(start) > _place(end):
            raise InvalidRequestError(
                f"changes of {self._store.location} are asked for from snapshot {start.snapshot_id} on and up to "
                f"{end.snapshot_id}, which lies before it. These are not two positions of one reader: its checkpoint "
                "was put together from several, or changed. Begin with a new checkpoint"
            )
        found: list[ChangeSplit] = []
        position = start
        while _key(position) != _key(end):
            step = self._step(position)
            if step is None:
                raise OvertakenError(
                    f"the changes of {self._store.location} up to snapshot {end.snapshot_id} were there before and are "
                    f"not now: {self._history.left_text()}",
                    table=self._store.location,
                )
            found += step.splits[position.taken :]
            position = StreamPosition(step.next_id, before_ms=step.snapshot.time_ms)
        if None not in (position.before_ms, end.before_ms) and position.before_ms != end.before_ms:
            raise self._other_history(end.snapshot_id - 1, "has read")
        if end.taken > position.taken:
            step = self._step(end)
            found += [] if step is None else step.splits[position.taken : end.taken]
        return found

    def groups(self, start: StreamPosition, end: StreamPosition) -> list[tuple[ChangeSplit, ...]]:
        """The splits of `splits` by who reads them: those of a state one by one, the keys of each are its own; later
        ones by bucket, in their order. What one group has of a key comes before what a later one has."""
        state_id = start.snapshot_id if start.is_state else None
        return [tuple(group) for group in by_bucket(self.splits(start, end), state_id)]

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
        keys = ((split.snapshot_id, is_state) for is_state in (False, True))
        known = next((self._steps[key].snapshot for key in keys if key in self._steps), None)
        with self._history.explained(known or self._history.still_there(split.snapshot_id)):
            yield from self._reader.read(split, decoders() if ahead else None)

    def read_between(self, start: StreamPosition, end: StreamPosition) -> Iterator[pa.RecordBatch]:
        """What lies between two positions, in its order, for who plans and reads in one process."""
        for split in self.splits(start, end):
            yield from self.read_split(split, ahead=True)

    @property
    def pause_s(self) -> float:
        """How long to wait before looking again."""
        return self._store.options.continuous_discovery_interval_ms / 1000

    def wait(self, position: StreamPosition | None, seconds: float) -> None:
        """Waits: nobody says when something was committed."""
        self._store.env.sleep_s(seconds)

    def close(self) -> None:
        """Nothing stays open between two steps."""

    def handed_over(self, end: StreamPosition) -> None:
        """What lies before this position will not be asked for again: the consumer moves on.

        While it reads the rows of a snapshot, that snapshot is kept by a consumer of another name (`ConsumerProgress`).
        """
        for key in [key for key in self._steps if key[0] < end.snapshot_id]:
            del self._steps[key]
        self._progress.moved(end.snapshot_id, is_state=end.is_state)

    def _step(self, position: StreamPosition) -> Step | None:
        """The plan of a position's snapshot; None while it was not committed."""
        step = self._steps.get(_key(position))
        if step is None:
            step = self._next_step(position)
            if step is None:
                return None
            self._steps[_key(position)] = step
        if position.of_ms not in (None, step.snapshot.time_ms):
            raise self._other_history(position.snapshot_id, "has read in part" if position.taken else "begins with")
        if position.taken and position.of != len(step.splits):
            raise InvalidRequestError(
                f"snapshot {position.snapshot_id} of {self._store.location} was read in {position.of} splits, of which "
                f"{position.taken} were taken, and now it has {len(step.splits)}: options that cut splits "
                "(source.split.*) or the filter were changed. Put them back until this snapshot has been read",
                table=self._store.location,
            )
        return step

    def _next_step(self, position: StreamPosition) -> Step | None:
        follower = self._follower
        if follower is None or position.is_state or follower.next_id != position.snapshot_id:
            self._check_history(position)
            state = self._history.first_rows(position.snapshot_id) if position.is_state else None
            start = StreamStart(position.snapshot_id + (state is not None), state)
            self._follower = follower = Follower(self._store, start, self._filter)
        return follower.step()

    def _check_history(self, position: StreamPosition) -> None:
        """A position that was read from a checkpoint may be of a history that a rollback has replaced."""
        if position.before_ms is None:
            return
        before = self._history.find(position.snapshot_id - 1)
        if before is not None and before.time_ms != position.before_ms:
            raise self._other_history(before.id, "has read")

    def _other_history(self, snapshot_id: int, what: str) -> OvertakenError:
        self._store.check_is_there()
        return OvertakenError(
            f"snapshot {snapshot_id} of {self._store.location} is not the one that this stream {what}: the table was "
            f"rolled back or created anew; {self._history.left_text()}. Read the table again in full, with a new "
            "checkpoint",
            table=self._store.location,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        reopened = partial(
            SplitStream,
            self._store,
            self._request,
            columns=self._reader.columns,
            filter=None if self._filter is None else self._filter.predicate,
            consumer_id=self._consumer_id,
            with_snapshot_id=self._reader.with_snapshot_id,
        )
        return reopened, ()


def _key(position: StreamPosition) -> tuple[int, bool]:
    return position.snapshot_id, position.is_state


def _place(position: StreamPosition) -> tuple[int, bool, int]:
    """Grows from each position to those after it."""
    return position.snapshot_id, not position.is_state, position.taken


def _within(position: StreamPosition, step: Step, taken: int) -> StreamPosition:
    if not taken:
        return position
    return replace(position, taken=taken, of=len(step.splits), of_ms=step.snapshot.time_ms)
