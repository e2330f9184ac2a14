"""A reader of the model of `log_model` that plans apart from reading, as a streaming engine does.

Each step is a batch of Spark: a limit by chance, two offsets that travel as JSON, the groups between them, read by
another process. Now and then Spark dies after it has planned, and plans the same batch again later, when more has come,
mostly so with the first: the rows must be the same. A query begins with what comes next, and that is something else
each time it is asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadMaxRows

from freshet.logstore.isolation import Isolation
from freshet.logstore.pieces import LogGroup, LogPiece
from freshet.logstore.split_stream import LogSplitStream
from freshet.pipeline.sources.first_offset import BEGIN, position_of
from freshet.pipeline.sources.stream_source import ChangeStreamReader
from freshet.storage.logs.log_systems import LoggedTable
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.stream_step import StreamLimit
from freshet.storage.model.table_log import NO_BATCH
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

    def start(self) -> tuple[int, Snapshot | None]:
        self._world.look()
        return self._world.seen + 1, None

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
        self.offset: dict[str, Any] = {}
        """Where the last batch ended; nothing before the first."""
        self.stream = self.opened()
        self.planned: tuple[dict[str, Any], list[list[Row]]] | None = None
        """The end of a batch that was planned and not done, and its rows."""

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
            end, rows = self.planned
            if self.between(self.stream, end) != rows:
                raise Violation(f"I9: other rows between {self.offset or 'the beginning'} and {end}")
            if self.chance.random() < 0.5:
                self.run(end)
        else:
            self.world.log.chunk = self.chance.randrange(1, 6)
            limits = (self.chance.choice([None, None, 1, 3]) for _ in range(2))
            end = self.end(StreamLimit(None, None, *limits), bounded=self.chance.random() < 0.2)
            if end == self.offset:
                return
            if self.chance.random() < (0.3 if self.offset else 0.8):
                self.planned = end, self.between(self.stream, end)
            else:
                self.run(end)

    def end(self, limit: StreamLimit, *, bounded: bool) -> dict[str, Any]:
        """Where the next batch ends, as Spark keeps it."""
        reader = ChangeStreamReader(self.stream, limit)
        if bounded:
            reader.prepareForTriggerAvailableNow()
        end: dict[str, Any] = travelled(reader.latestOffset(self.start(reader), ReadMaxRows(1)))
        if not self.offset:
            self.state = self.stream.position(end[BEGIN]).state
            self.table = dict(self.world.states[self.world.batch_of.get(self.state.snapshot_id, NO_BATCH)])
            self.watermark = self.state.batch
        return end

    def start(self, reader: ChangeStreamReader) -> dict[str, Any]:
        return travelled(self.offset or reader.initialOffset())

    def groups(self, stream: LogSplitStream, end: dict[str, Any]) -> list[LogGroup]:
        reader = ChangeStreamReader(stream, StreamLimit())
        return [each.group for each in reader.partitions(self.start(reader), end)]  # type: ignore[attr-defined]

    def between(self, stream: LogSplitStream, end: dict[str, Any]) -> list[list[Row]]:
        return [list(rows_of(stream, group)) for group in self.groups(stream, end)]

    def run(self, end: dict[str, Any]) -> None:
        self.planned = None
        reading = self.opened()
        groups = self.groups(self.stream, end)
        self.chance.shuffle(groups)  # they are read at the same time
        for group in groups:
            for piece in group.pieces:
                assert isinstance(piece, LogPiece)
                self.note(piece)
            apply(self.table, list(rows_of(reading, group)), "I6", self.updating)
        position = self.stream.position(position_of(end))
        self.offset, self.state = end, position.state
        if not position.taken and not position.state.lanes:
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
            self.run(self.planned[0])
        while (end := self.end(StreamLimit(), bounded=True)) != self.offset:
            self.run(end)


def rows_of(stream: LogSplitStream, group: LogGroup) -> Iterator[Row]:
    for batch in stream.read_group(group):
        yield from zip(*(column.to_pylist() for column in batch.columns[:3]), strict=True)


def travelled(offset: dict[str, Any]) -> dict[str, Any]:
    """As it comes out of a checkpoint."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found
