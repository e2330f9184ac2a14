"""A reader of the model of `log_model` that plans apart from reading, as a streaming engine does.

Each step is a batch of an engine: a limit by chance, two positions that travel as JSON, the groups between them, read
by another process. Now and then the engine dies after it has planned, and plans the same two positions again later,
when more has come: the rows must be the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from freshet.logstore.isolation import Isolation
from freshet.logstore.log_position import LogPosition
from freshet.logstore.pieces import LogGroup, LogPiece
from freshet.logstore.split_stream import LogSplitStream
from freshet.storage.logs.log_systems import LoggedTable
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.stream_step import StreamLimit
from tests.kit.log_model import BUCKETS, SCHEMA, Reader, Row, Violation, World, apply

OUT = pa.schema([pa.field("kind", pa.int8()), *SCHEMA, pa.field("_SNAPSHOT_ID", pa.int64())])


class ModelHistory:
    """The snapshots of a world; every change of theirs is in the log."""

    schema = OUT
    fields = ()
    consumer_id = None

    def __init__(self, world: World) -> None:
        self._world = world

    def latest(self) -> Snapshot | None:
        return self._world.store.snapshots.latest()

    def find(self, snapshot_id: int) -> Snapshot | None:
        self._world.look()
        return self._world.store.snapshots.snapshot(snapshot_id) if 0 < snapshot_id <= self._world.seen else None

    find_left = find

    def check_same(self, snapshot_id: int, time_ms: int | None) -> None: ...

    def has_changes(self, snapshot: Snapshot) -> bool:
        return False

    def log_schema(self, schema_id: int) -> pa.Schema:
        return SCHEMA

    def shaped(self, schema_id: int, rows: pa.RecordBatch, snapshot_id: int | None = None) -> pa.RecordBatch:
        beside = pa.repeat(pa.scalar(snapshot_id, pa.int64()), rows.num_rows)
        return pa.RecordBatch.from_arrays([*rows.columns, beside], schema=OUT)

    def handed_over(self, next_id: int, *, is_state: bool) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"nothing here is read from files: {name}")


class PieceReader(Reader):
    """Reads by positions."""

    def __init__(self, world: World, *, speculative: bool, number: int) -> None:
        super().__init__(world, speculative=speculative, number=number)
        self.position = LogPosition(self.state)
        self.stream = self.opened()
        self.planned: tuple[LogPosition, LogPosition] | None = None

    def opened(self) -> LogSplitStream:
        table = LoggedTable("t", BUCKETS, 0, {}, 0)
        isolation = Isolation.SPECULATIVE if self.speculative else Isolation.COMMITTED
        return LogSplitStream(table, ModelHistory(self.world), isolation, self.world.log.client)  # type: ignore[arg-type]

    def restart(self) -> None:
        self.stream = self.opened()

    def step(self) -> None:
        what = self.chance.random()
        if what < 0.1:
            self.restart()
        elif self.planned is not None:
            self.restart()
            planned, self.planned = self.planned, None
            self.run(*planned)
        else:
            self.world.log.chunk = self.chance.randrange(1, 6)
            limits = (self.chance.choice([None, None, 1, 3]) for _ in range(2))
            self.stream.handed_over(self.position)
            until = self.stream.bound() if self.chance.random() < 0.2 else None
            end = self.stream.advance(self.position, StreamLimit(None, None, *limits), until)
            if end == self.position:
                return
            if self.chance.random() < 0.3:
                first = rows_between(self.stream, self.position, end)
                self.planned = travelled(self.stream, self.position), travelled(self.stream, end)
                if rows_between(self.opened(), *self.planned) != first:
                    raise Violation(f"I9: other rows between {self.position} and {end}")
            else:
                self.run(travelled(self.stream, self.position), travelled(self.stream, end))

    def run(self, start: LogPosition, end: LogPosition) -> None:
        reading = self.opened()
        groups = self.stream.groups(start, end)
        self.chance.shuffle(groups)  # they are read at the same time
        for group in groups:
            for piece in group.pieces:
                assert isinstance(piece, LogPiece)
                self.note(piece)
            apply(self.table, list(rows_of(reading, group)), "I6", self.updating)
        self.position, self.state = end, end.state
        if not end.taken and not end.state.lanes:
            self.check()

    def note(self, piece: LogPiece) -> None:
        for wanted in piece.ranges:
            count = wanted.end_sequence - wanted.first_sequence
            if not wanted.is_retracted:
                self.world.counts.shown += count
                continue
            self.world.counts.retracted += count
            if not self.speculative:
                raise Violation(f"I3: a committed reader takes back {wanted}")
            if self.world.equal_replays and not self.world.counts.lost_compactions:
                raise Violation(f"I5: an equal replay takes back {wanted}")

    def finish(self) -> None:
        """Reads everything that is there, as a query does that ends then."""
        if self.planned is not None:
            self.run(*self.planned)
        until = self.stream.bound()
        while (end := self.stream.advance(self.position, StreamLimit(), until)) != self.position:
            self.run(self.position, end)


def rows_of(stream: LogSplitStream, group: LogGroup) -> Iterator[Row]:
    for batch in stream.read_group(group):
        yield from zip(*(column.to_pylist() for column in batch.columns[:3]), strict=True)


def rows_between(stream: LogSplitStream, start: LogPosition, end: LogPosition) -> list[list[Row]]:
    return [list(rows_of(stream, group)) for group in stream.groups(start, end)]


def travelled(stream: LogSplitStream, position: LogPosition) -> LogPosition:
    """As it comes out of a checkpoint."""
    return stream.position(json.loads(json.dumps(position.to_document())))
