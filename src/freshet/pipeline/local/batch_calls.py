"""The calls of a batch, which its workers run (`workers.Call`).

PiecesToPacked    pieces ─ decode ─▶ packed outcomes that wait for the workers of their tasks
PackedToPacked    what waits for a task of the stage ─▶ the same
PackedToResults   what waits for a task ─ write ─▶ its result
PiecesToResults   all of it in one worker: small batches, and tables whose outcomes do not cross
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import ClassVar

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.logstore.kafka.record_sizes import RecordSizes
from freshet.pipeline.local.packed_store import Outbox, Shelf, Waiting, forget_kept, values_of
from freshet.pipeline.local.source import Piece
from freshet.pipeline.query.task.batch_work import StageWork
from freshet.pipeline.query.task.kafka_ranges import DirectClient, RangeWork, leave_ranges, probed_sizes
from freshet.pipeline.query.task.write_task import WriteTask
from freshet.pipeline.query.wire.batch_pin import TaskPlace
from freshet.pipeline.query.wire.packed_rows import whole_tables


class RangePiece(Frozen):
    """Groups of ranges as a `Piece`."""

    work: RangeWork
    keeps_together: ClassVar[bool] = False

    def run(self, place: TaskPlace) -> Iterator[pa.RecordBatch]:
        """`Piece.run`."""
        return self.work.run(iter([pa.RecordBatch.from_pydict({"group": list(range(len(self.work.groups)))})]), place)


class SizeProbe(Frozen):
    """Looks at the sizes of some records."""

    client: DirectClient
    ranges: tuple[OffsetRange, ...]

    def __call__(self, worker: int) -> RecordSizes:
        """What was seen."""
        return probed_sizes(self.client, self.ranges)


class Leaving(Frozen):
    """Has a worker read partitions no more that another one reads now: it would fetch of them what its bounds allow."""

    client: DirectClient
    places: tuple[tuple[str, int], ...]

    def __call__(self, worker: int) -> None:
        leave_ranges(self.client, self.places)


class Handover(Frozen):
    """How packed outcomes go from worker to worker; `path` is how the names of their files begin. Where `parted` are
    given, every other table goes to one task as a whole."""

    shelf: Shelf
    path: str
    workers: int
    parted: frozenset[int] | None = None

    def put(self, batches: Iterator[pa.RecordBatch], worker: int) -> list[Waiting]:
        """Puts them down for the workers of their tasks."""
        if self.parted is not None:
            batches = whole_tables(batches, self.parted)
        return Outbox(self.shelf, worker, self.path, lambda task: task % self.workers == worker).put(batches)


class PiecesToPacked(Frozen):
    """Decodes."""

    pieces: Sequence[Piece]
    place: TaskPlace
    onward: Handover

    def __call__(self, worker: int) -> list[Waiting]:
        """Where the outcomes wait."""
        return self.onward.put(_decoded(self.pieces, self.place), worker)


class PackedToPacked(Frozen):
    """Runs a task of the stage."""

    waiting: Sequence[Waiting]
    of: Shelf
    stage: StageWork
    place: TaskPlace
    onward: Handover

    def __call__(self, worker: int) -> list[Waiting]:
        """Where what it gives waits."""
        return self.onward.put(self.stage.run(values_of(self.waiting, self.of, worker), self.place), worker)


class PackedToResults(Frozen):
    """Runs a task that writes."""

    waiting: Sequence[Waiting]
    of: Shelf
    task: WriteTask
    place: TaskPlace

    def __call__(self, worker: int) -> list[bytes]:
        """Its result, where any rows came to it."""
        return _results(self.task.run(values_of(self.waiting, self.of, worker), self.place))


class PiecesToResults(Frozen):
    """Decodes and writes, all tasks as one, with the stage in between where there is one."""

    pieces: Sequence[Piece]
    stage: StageWork | None
    task: WriteTask
    place: TaskPlace
    onward: Handover

    def __call__(self, worker: int) -> list[bytes]:
        """The result, where there were any rows."""
        packed = _decoded(self.pieces, self.place)
        if self.stage is not None:
            packed = self._staged(self.stage, packed, worker)
        return _results(self.task.run(packed, self.place))

    def _staged(self, stage: StageWork, packed: Iterator[pa.RecordBatch], worker: int) -> Iterator[pa.RecordBatch]:
        """What each task of the stage gives."""
        for each in replace(self.onward, workers=1).put(packed, 0):
            values = values_of([each], self.onward.shelf, 0)
            yield from stage.run(values, replace(self.place, number=each.task))


class Forgetting(Frozen):
    """Lets go what a worker keeps of a query."""

    job: str

    def __call__(self, worker: int) -> None:
        forget_kept(self.job)


def _decoded(pieces: Sequence[Piece], place: TaskPlace) -> Iterator[pa.RecordBatch]:
    return chain.from_iterable(each.run(place) for each in pieces)


def _results(rows: Iterator[pa.RecordBatch]) -> list[bytes]:
    return [value for each in rows for value in each.column(0).to_pylist()]
