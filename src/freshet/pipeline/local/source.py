"""A source of a query on the driver, and the pieces of a batch that its workers read.

    first()   where the query begins, once; what is kept of it lies in `sources/N` of the checkpoint, as Spark keeps it
    latest()  the end of the batch that comes next
    ranges()  what a batch reads of Kafka      or      pieces()  what it reads of anything else
    done()    the batch up to an offset is committed

Offsets are texts as Spark writes them into `offsets/N` of a checkpoint, byte for byte: either engine goes on with the
checkpoint of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.pipeline.query.task.batch_work import BatchWork
from freshet.pipeline.query.task.kafka_ranges import DirectClient
from freshet.pipeline.query.wire.batch_pin import TaskPlace
from freshet.pipeline.query.wire.kept_value import KeptValue


class Piece(Protocol):
    """A part of a batch that one worker reads; a value that travels to it."""

    def run(self, place: TaskPlace) -> Iterator[pa.RecordBatch]:
        """Its records or rows as batches of `PACKED_SCHEMA`."""


class ReadSource(Protocol):
    """A source as the job of a batch asks it."""

    @property
    def client(self) -> DirectClient | None:
        """How the workers reach its brokers; None where it is not Kafka."""

    def ranges(self, start: str | None, end: str) -> Sequence[OffsetRange] | None:
        """What a batch reads of Kafka; None where the source is not Kafka. Raises where offsets are gone and
        `failOnDataLoss` is not false."""

    def pieces(
        self, start: str | None, end: str, work: KeptValue[BatchWork], index: int, count: int
    ) -> Sequence[Piece]:
        """What a batch reads of a source that is not Kafka, in about `count` pieces; `index` is that of the source."""


class Source(ReadSource, Protocol):
    """One source of a query; used by the thread of the query alone."""

    def first(self) -> str | None:
        """The offset at which the query begins; the same at every call, whatever has died since the first one. None
        where the source begins with nothing."""

    def latest(self, start: str | None) -> str | None:
        """The end of the batch that begins at `start`, within the limits of the source: `start` itself where nothing is
        new. What the source has to write down of the batch, it has written."""

    def bound(self) -> None:
        """What comes from now on is left to the next run (`trigger: available_now`); called once, before `latest`."""

    def done(self, end: str) -> None:
        """The batch that ends here is committed."""

    def lag(self, end: str) -> int | None:
        """Records behind this offset, as far as the last look of `latest` knows them."""

    def wait(self, start: str | None, timeout_s: float) -> bool:
        """Waits until there may be something behind `start`; False after the time. Does not spin."""

    def close(self) -> None:
        """Ends its connections."""
