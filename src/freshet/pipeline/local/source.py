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
from typing import Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.pipeline.query.task.batch_work import BatchWork
from freshet.pipeline.query.task.kafka_ranges import DirectClient
from freshet.pipeline.query.wire.batch_pin import TaskPlace
from freshet.pipeline.query.wire.kept_value import KeptValue


class Piece(Protocol):
    """A part of a batch that one worker reads; a value that travels to it."""

    @property
    def keeps_together(self) -> bool:
        """Whether all rows of a table must be written by one task: what a row of the batch lacks another has."""

    def run(self, place: TaskPlace) -> Iterator[pa.RecordBatch]:
        """Its records or rows as batches of `PACKED_SCHEMA`."""


@runtime_checkable
class RangeSource(Protocol):
    """Kafka as the job of a batch asks it: the workers read ranges of offsets themselves."""

    @property
    def client(self) -> DirectClient:
        """How the workers reach its brokers."""

    def ranges(self, start: str | None, end: str) -> Sequence[OffsetRange]:
        """What a batch reads. Raises where offsets are gone and `failOnDataLoss` is not false."""


@runtime_checkable
class PieceSource(Protocol):
    """Anything else as the job of a batch asks it."""

    def pieces(
        self, start: str | None, end: str, work: KeptValue[BatchWork], index: int, count: int
    ) -> Sequence[Piece]:
        """What a batch reads, in about `count` pieces; `index` is that of the source."""


@runtime_checkable
class NewsSource(Protocol):
    """A `PieceSource` whose batches may begin tables that nobody knows yet."""

    def looks(self, start: str | None, end: str, work: KeptValue[BatchWork], index: int) -> Sequence[Piece]:
        """Pieces that are read in no time and tell of the tables what all of the batch does; none where it begins no
        table."""


@runtime_checkable
class PatientSource(Protocol):
    """One that asks several times where nobody answers."""

    def leave(self) -> None:
        """Has what is asked now be the last time; called from any thread."""


@runtime_checkable
class RenewableSource(Protocol):
    """One whose offsets may come to be those of something else."""

    def refuse_renewed(self) -> None:
        """Raises where the batch may have been read of something else than its offsets are of; called once it was read,
        before a table is changed for it."""


ReadSource: TypeAlias = RangeSource | PieceSource
Span: TypeAlias = tuple[str | None, str | None]
"""Start and end of a source in a batch; `MicroBatch.frame` has one for each. The end is None where the source has given
nothing yet."""


class Source(Protocol):
    """One source of a query as its loop asks it, a `ReadSource` besides; used by the thread of the query alone."""

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


class KafkaLike(Source, RangeSource, Protocol):
    """A whole source of ranges."""


class PieceLike(Source, PieceSource, Protocol):
    """A whole source of pieces."""


AnySource: TypeAlias = KafkaLike | PieceLike
