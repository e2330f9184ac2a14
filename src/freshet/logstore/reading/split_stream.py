"""Snapshots, then the log, in pieces: for an engine that plans on one machine, reads on many, and has a checkpoint; and
for `Table.stream`, which does all of it in one process and waits.

    start = stream.first()                         the rows of a snapshot, or the changes after one
    end   = stream.advance(start, StreamLimit())   as far as has been committed, or logged, or as the limit allows
    for group in stream.groups(start, end):        on the machine that plans
        stream.read_group(group)                   Arrow batches, here or elsewhere: stream and groups can be pickled

A position is the whole state of a reader (`LogPosition`). What lies between two positions is a function of the two, of
the snapshots and of the log, not of how a reader came from one to the other: the snapshots between them decide on what
`start` has shown, then come the rows that `end` shows and those that it retracts (`decide.shown_between`). So an engine
that plans the same two positions again, in another process, gets the same rows, without those that were shown and
retracted on the way.

What a snapshot gives is said in `snapshot_steps`. The reader that plans keeps its connections and what it fetched.
While there is nothing to hand out the position stays, so that snapshots without changes cost no batch; a reader that
goes snapshot by snapshot (`StreamLimit.snapshots`) moves on, and gets open rows each time that some were fetched.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import Enum, StrEnum
from functools import cached_property, lru_cache
from typing import Any, Final

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.logstore.exceptions import LogConfigError, LogTruncatedError, LogUnavailableError
from freshet.logstore.protocol.client import Fetched, LogClient, TopicPartition
from freshet.logstore.reading.decide import headroom, opened, show_records, shown_between
from freshet.logstore.reading.reader_state import (
    LogPosition,
    ReaderState,
    position_from,
    state_at,
    state_from_json,
    state_to_json,
)
from freshet.logstore.reading.rows import FETCH_TRIES, FETCH_WAIT_S, LogRows, projected_rows
from freshet.logstore.reading.snapshot_steps import (
    LogGroup,
    Piece,
    SnapshotSteps,
    carried,
    grouped,
    log_pieces,
    row_count,
)
from freshet.logstore.reading.tail import LogTail, LogWaiting, RecentRecords, check_bounds, first_of, progress_at
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.logs.log_systems import LoggedTable, TableHistory, provider_of
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.snapshot_walk import Budget, StepSize, StreamLimit
from freshet.storage.model.split import ChangeSplit

SILENT_SNAPSHOTS_MAX: Final = 8
"""After so many snapshots without changes the position moves on all the same, or earlier where fewer are kept: a query
that is started again looks at all of them once more, so they must not have expired."""

STEP_OFFSETS_MAX: Final = 1_000_000
"""So many offsets of open batches are shown in one step where the engine sets no limit: while a writer logs faster than
they are looked at, a step would have no end."""

POLL_S: Final = 0.2
"""How long a reader waits for the log before it looks at the snapshots again: what wakes it may be lost."""

_FROM_FILES: Final = "from_files"
_BEFORE_MS: Final = "before_ms"


class Bound(Frozen):
    """Everything that is there at some time: snapshots up to one, offsets before these."""

    snapshot_id: int
    ends: Mapping[int, int]


class _Step(Enum):
    """What a reader that goes on looks at next."""

    SNAPSHOTS = "snapshots"
    RECORDS = "records"
    """Those after all snapshots that are there."""
    NEW_RECORDS = "new records"
    """Rows have woken the reader: they are shown before it looks for snapshots, which takes longer."""
    NONE = "none"


class LogSplitStream:
    """Belongs to one thread. `open_client` connects; nothing is connected to before it is needed."""

    def __init__(
        self,
        table: LoggedTable,
        history: TableHistory,
        isolation: Isolation,
        open_client: Callable[[], LogClient],
    ) -> None:
        self._table = table
        self._history = history
        self._isolation = isolation
        self._open_client = open_client
        self._recent = RecentRecords()
        self._steps = SnapshotSteps(
            table,
            history,
            lambda: self._client,
            lambda: self._rows,
            is_speculative=isolation is Isolation.SPECULATIVE,
        )
        self._silent_max = max(1, min(SILENT_SNAPSHOTS_MAX, table.options.snapshot_num_retained_min - 1))
        self._frontier: tuple[LogPosition, LogPosition] | None = None
        """A position that was given out, and how far one got from there without anything to hand out."""
        self._first_step = _Step.SNAPSHOTS

    @cached_property
    def _client(self) -> LogClient:
        return self._open_client()

    @cached_property
    def _rows(self) -> LogRows:
        return LogRows(self._open_client(), self._history.log_schema, self._recent)

    @cached_property
    def _tail(self) -> LogTail:
        return LogTail(self._client, self._recent)

    @cached_property
    def _waiting(self) -> LogWaiting:
        is_speculative = self._isolation is Isolation.SPECULATIVE
        return LogWaiting(
            self._table.name, self._history, self._client, self._tail, is_speculative, self._steps.falls_back
        )

    @property
    def schema(self) -> pa.Schema:
        """Columns of the batches."""
        return self._history.schema

    @property
    def fields(self) -> tuple[Any, ...]:
        """The table's columns among them."""
        return self._history.fields

    # ------------------------------------------------------------------------------------------------ positions

    def position(self, document: Mapping[str, Any]) -> LogPosition:
        """A position out of a checkpoint, also of a reader of snapshots alone."""
        found = position_from(document)
        return self._before(found) if isinstance(found, int) else found

    def first(self) -> LogPosition:
        """Where a new reader begins."""
        next_id, state = self._history.start()
        if state is not None:
            begun = state_at(state.id, progress_at(self._history, state))
            return LogPosition(begun, is_state=True, of_ms=state.time_ms)
        return self._before(next_id)

    begin = first

    def latest(self) -> LogPosition:
        """After everything that has been committed, for people: it has no offsets of the log."""
        latest = self._history.latest()
        return LogPosition(ReaderState(0 if latest is None else latest.id))

    def bound(self) -> Bound:
        """Everything that is there now: records first, so that the snapshots before them are among the snapshots."""
        latest = self._history.latest()
        ends: Mapping[int, int] = {}
        if self._isolation is Isolation.SPECULATIVE and latest is not None:
            progress = progress_at(self._history, latest)
            if progress is not None:
                ends = {number: each.end for number, each in self._client.bounds(progress.identity.topic).items()}
            latest = self._history.latest()
        return Bound(0 if latest is None else latest.id, ends)

    def _before(self, next_id: int) -> LogPosition:
        """Before the changes of a snapshot; from its files, where the one before it has expired."""
        if next_id <= 1:
            return LogPosition(ReaderState(0))
        before = self._history.find_left(next_id - 1)
        return LogPosition(ReaderState(next_id - 1), from_files=True) if before is None else self._after(before)

    def _after(self, snapshot: Snapshot) -> LogPosition:
        return LogPosition(state_at(snapshot.id, progress_at(self._history, snapshot)), before_ms=snapshot.time_ms)

    def handed_over(self, end: LogPosition) -> None:
        """What lies before this position will not be asked for again: the consumer moves on."""
        self._steps.forget(end.state.snapshot_id)
        self._history.handed_over(end.next_id, is_state=end.is_state)

    # ------------------------------------------------------------------------------------------------ how far

    def advance(self, start: LogPosition, limit: StreamLimit, until: Bound | None = None) -> LogPosition:
        """How far a reader at `start` may go now; `start` itself where there is nothing to hand out.

        Raises `OvertakenError` where expiry, a rollback or a drop has overtaken the position, `LogTruncatedError` where
        retention of the topic has, `LogConfigError` where the topic is not the one of the snapshots.
        """
        at = self._frontier[1] if self._frontier is not None and self._frontier[0] == start else start
        self._steps.check_topic(at.state)
        budget = Budget(limit)
        end = self._advanced(at, budget, until)
        is_silent = not budget.has_pieces and not start.is_state and until is None and limit.snapshots is None
        if is_silent and end.state.snapshot_id - start.state.snapshot_id < self._silent_max:
            self._frontier = (start, end)
            return start
        self._frontier = None
        return end

    def _advanced(self, position: LogPosition, budget: Budget, until: Bound | None) -> LogPosition:
        step, self._first_step = self._first_step, _Step.SNAPSHOTS
        stops_at: int | None = None
        while step is not _Step.NONE:
            if step is _Step.SNAPSHOTS:
                until_id = None if until is None else until.snapshot_id + 1
                position, is_full = self._steps.past_snapshots(position, budget, until_id)
                step = _Step.NONE if is_full else _Step.RECORDS
                continue
            state = position.state
            if self._isolation is not Isolation.SPECULATIVE or not state.has_log:
                return position
            if stops_at is not None:
                state = opened(state, stops_at)
                if state == position.state:
                    return position  # a batch before it is still open
            shown, stops_at = self._past_records(state, budget, until)
            is_end = step is _Step.RECORDS and stops_at is None and shown == state
            is_enough = budget.has_pieces and budget.limit.snapshots is not None
            step = _Step.NONE if is_end or is_enough else _Step.SNAPSHOTS
            position = replace(position, state=shown)
        return position

    def _past_records(self, state: ReaderState, budget: Budget, until: Bound | None) -> tuple[ReaderState, int | None]:
        """Behind records that came, and the first batch for which the snapshots must be looked at."""
        ends = {} if until is None else until.ends
        wanted = {
            TopicPartition(state.topic, number): offset
            for number, offset in state.positions.items()
            if until is None or offset < ends.get(number, 0)
        }
        stops: list[int] = []
        limit = budget.limit
        offsets_max = STEP_OFFSETS_MAX if limit.offsets is None else limit.offsets
        for topic_partition, fetched in self._fetched(state, wanted, until).items():
            offsets = budget.left(offsets_max, budget.used.offsets)
            rows = budget.left(limit.rows, budget.used.rows)
            if offsets == 0 or rows == 0:
                break
            position = wanted[topic_partition]
            part = first_of(fetched, position, offsets=offsets, rows=rows, stop=ends.get(topic_partition.partition))
            step = show_records(state, topic_partition.partition, part.records, part.next_offset, self._rows)
            if step.ranges:
                moved = step.state.positions[topic_partition.partition] - position
                budget.takes(StepSize(rows=sum(row_count(each) for each in step.ranges), offsets=moved))
            state = step.state
            stops += [] if step.stops_at is None else [step.stops_at]
        return state, min(stops, default=None)

    def _fetched(
        self, state: ReaderState, wanted: Mapping[TopicPartition, int], until: Bound | None
    ) -> Mapping[TopicPartition, Fetched]:
        """Without a bound what is there; up to a bound at least something of what there must be."""
        if not wanted:
            return {}
        try:
            for _ in range(1 if until is None else FETCH_TRIES):
                found = self._tail.fetch(wanted, 0.0 if until is None else FETCH_WAIT_S)
                if found or until is None:
                    return found
        except LogTruncatedError:
            if not self._steps.falls_back or state.open_buckets:
                raise
            return {}  # what is gone comes from files, when its snapshot is there
        raise LogUnavailableError(
            f"table {self._table.name}: topic {state.topic} has records up to the offsets {dict(until.ends)}, but "  # type: ignore[union-attr]
            f"the brokers gave none in {FETCH_TRIES * FETCH_WAIT_S:.0f} s"
        )

    # ------------------------------------------------------------------------------------------------ what lies between

    def groups(self, start: LogPosition, end: LogPosition) -> list[LogGroup]:
        """What lies between, in groups for one task each: all changes of a bucket are in one group, in their order.
        Where the number of buckets changed, what one group has of a key comes before what a later one has."""
        state_id = start.state.snapshot_id if start.is_state else None
        return [
            LogGroup(tuple(pieces), carried(pieces, self._recent))
            for pieces in grouped(self.pieces(start, end), state_id)
        ]

    def pieces(self, start: LogPosition, end: LogPosition) -> list[Piece]:
        """What lies between, in its order; `InvalidRequestError` where `start` lies beyond `end`."""
        if start.reads_beyond(end):
            raise self._steps.not_of_one_reader(start, end)
        found, position = self._steps.whole_between(start, end)
        found += log_pieces(shown_between(position.state, end.state, self._rows), None, end.state)
        return [*found, *self._steps.part(position, end)]

    def read_group(self, group: LogGroup) -> Iterator[pa.RecordBatch]:
        """The rows of a group, in their order."""
        for topic_partition, position, fetched in group.carried:
            self._recent.add(topic_partition, position, fetched)
        for piece in group.pieces:
            yield from self._read(piece)

    def read_between(self, start: LogPosition, end: LogPosition) -> Iterator[pa.RecordBatch]:
        """What lies between, in its order, for a caller that plans and reads in one process."""
        for piece in self.pieces(start, end):
            yield from self._read(piece, ahead=True)

    def _read(self, piece: Piece, *, ahead: bool = False) -> Iterator[pa.RecordBatch]:
        if isinstance(piece, ChangeSplit):
            yield from self._history.read_split(piece, ahead=ahead)
        else:
            yield from projected_rows(self._rows, self._history, piece.ranges, piece.snapshot_id)

    # ------------------------------------------------------------------------------------------------ following

    @property
    def pause_s(self) -> float:
        """How long to wait before looking again, if nothing is logged."""
        return POLL_S

    def wait(self, position: LogPosition, seconds: float) -> None:
        """Waits so long, or until something is logged or committed."""
        has_rows = self._waiting.wait(position.state, seconds)
        self._first_step = _Step.NEW_RECORDS if has_rows else _Step.SNAPSHOTS

    def check_begin(self, position: LogPosition) -> None:
        """Raises `LogConfigError` for another topic of the name, `LogTruncatedError` where retention was faster."""
        self._steps.check_topic(position.state)
        if position.state.has_log and not self._steps.falls_back:
            check_bounds(self._client, position.state, table=self._table.name)

    def state_of(self, position: LogPosition) -> dict[str, Any]:
        """What people keep of a position before the changes of a snapshot (`log_state`)."""
        found = state_to_json(position.state)
        if position.before_ms is not None:
            found[_BEFORE_MS] = position.before_ms
        if position.from_files:
            found[_FROM_FILES] = True
        return found

    def resumed(self, state: Mapping[str, Any]) -> LogPosition:
        """The inverse. Earlier versions left out the time of the snapshot: their states go on unchecked."""
        return LogPosition(
            state_from_json(state), from_files=bool(state.get(_FROM_FILES)), before_ms=state.get(_BEFORE_MS)
        )

    def headroom(self, position: LogPosition) -> dict[int, int]:
        """By partition: how many offsets retention may still take before a reader there loses changes."""
        if not position.state.has_log:
            return {}
        bounds = self._client.bounds(position.state.topic)
        return headroom(position.state, {number: each.first for number, each in bounds.items()})

    def close(self) -> None:
        """Lets go of connections."""
        for connected in (self.__dict__.get(name) for name in ("_client", "_rows")):
            if connected is not None:
                connected.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (pickle.dumps((self._table, self._history, self._isolation)),)


@lru_cache(maxsize=8)
def _reopened(pickled: bytes) -> LogSplitStream:
    """A stream that was pickled, for reading groups; the same one again, with its connections, in this process."""
    table, history, isolation = pickle.loads(pickled)
    found = provider_of(table.options, table.name).split_stream(table, history, isolation)
    assert isinstance(found, LogSplitStream)
    return found


class Isolation(StrEnum):
    """Changes of committed batches only, or every change as soon as it is logged."""

    COMMITTED = "committed"
    SPECULATIVE = "speculative"


def isolation_for(table: LoggedTable, text: str) -> Isolation:
    """The isolation of that name for readers of a table.

    `InvalidRequestError` for another name, `LogConfigError` where the log of the table cannot be read so.
    """
    try:
        found = Isolation(text.lower())
    except ValueError:
        raise InvalidRequestError(
            f"isolation is one of {', '.join(Isolation)}, not {text!r}", option="log.read.isolation"
        ) from None
    if found is Isolation.SPECULATIVE and not table.options.logs_before_images:
        raise LogConfigError(
            f"table {table.name} logs no rows before updates (log.changelog-mode=upsert or log.ignore-delete), so "
            "what a speculative reader has seen cannot be retracted; read with isolation='committed', or set "
            "changelog-producer=lookup and leave these options out",
            table=table.name,
            option="log.read.isolation",
        )
    return found
