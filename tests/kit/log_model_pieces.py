"""A reader of the model of `log_model` that plans apart from reading, as a streaming engine does.

Each step is a batch of Spark: a limit by chance, two offsets that travel as JSON, the groups between them, read by
another process. Now and then Spark dies after it has planned, and plans the same batch again later, when more has come,
mostly so with the first: the rows must be the same. A query begins with what comes next, and that is something else
each time it is asked.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.streaming.datasource import ReadMaxRows

from freshet.logstore.reading.snapshot_steps import LogGroup
from freshet.logstore.reading.split_stream import LogSplitStream
from freshet.pipeline.query.driver.change_batches import BEGIN, position_of
from freshet.pipeline.sources.stream_source import ChangeStreamReader
from freshet.storage.model.snapshot_walk import StreamLimit
from freshet.storage.model.table_log import NO_BATCH
from tests.kit.log_model import Reader, Row, Violation, World, apply, rows_of


class PieceReader(Reader):
    """Reads by positions."""

    def __init__(self, world: World, *, speculative: bool, number: int) -> None:
        super().__init__(world, speculative=speculative, number=number)
        self.offset: dict[str, Any] = {}
        """Where the last batch ended; nothing before the first."""
        self.planned: tuple[dict[str, Any], list[list[Row]]] | None = None
        """The end of a batch that was planned and not done, and its rows."""

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
        return [rows_of(stream.read_group(group)) for group in self.groups(stream, end)]

    def run(self, end: dict[str, Any]) -> None:
        self.planned = None
        reading = self.opened()
        groups = self.groups(self.stream, end)
        self.chance.shuffle(groups)  # they are read at the same time
        for group in groups:
            self.note(group.pieces)
            apply(self.table, rows_of(reading.read_group(group)), "I6", self.updating)
        position = self.stream.position(position_of(end))
        self.offset, self.state = end, position.state
        if not position.taken:
            self.check()

    def finish(self) -> None:
        """Reads everything that is there, as a query does that ends then."""
        if self.planned is not None:
            self.run(self.planned[0])
        while (end := self.end(StreamLimit(), bounded=True)) != self.offset:
            self.run(end)


def travelled(offset: dict[str, Any]) -> dict[str, Any]:
    """As it comes out of a checkpoint."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found
