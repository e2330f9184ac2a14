"""All that the workers know of the records and the tables of a batch.

Records become packed outcomes: what a decoder gives, by the task and the table that it goes to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, runtime_checkable

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.pipeline.decode.decoder import RecordDecoder
from freshet.pipeline.decode.outcomes import Tally
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.record_block import RecordBlock
from freshet.pipeline.query.task.key_task import KeyTask
from freshet.pipeline.query.wire.batch_pin import TaskPlace
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.query.wire.packed_rows import PackedValue, PackRule, not_small, packed_batches, unpacked_batches
from freshet.storage.table import TableHandle


class Packer(Protocol):
    """What packs the rows of a source; a value that travels to the workers."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[PackedValue]:
        """The rows of these batches, packed."""


@runtime_checkable
class RecordPacker(Protocol):
    """The decoder of a source of records, whose outcomes are packed."""

    def __call__(self, batches: Iterable[pa.RecordBatch | RecordBlock]) -> Iterator[PackedValue]:
        """The outcomes of these records, and a tally at the end."""

    def tally(self, tally: Tally) -> Iterator[PackedValue]:
        """What whoever reads the records has to say."""


class TablePacker(Frozen):
    """The packer of a source whose rows all go into the table 0."""

    plan: DecodePlan
    rule: PackRule
    crosses: bool = True
    """False: who decodes the rows writes them too, and they stay as they are. Packing and unpacking 80 rows took 3 ms
    of 63."""

    def __call__(self, batches: Iterable[pa.RecordBatch | RecordBlock]) -> Iterator[PackedValue]:
        """`RecordPacker.__call__`."""
        for outcomes in not_small(RecordDecoder(self.plan)(iter(batches))):
            yield from self._packed(outcomes)

    def tally(self, tally: Tally) -> Iterator[PackedValue]:
        """`RecordPacker.tally`."""
        yield from self._packed(RecordDecoder(self.plan).tally(tally))

    def _packed(self, outcomes: pa.RecordBatch) -> Iterator[PackedValue]:
        if not self.crosses:
            yield 0, 0, outcomes
            return
        for task, content in self.rule.packed(outcomes):
            yield task, 0, content


class TableWork(Frozen):
    """The work of each task for one table; a value that travels to the workers.

    `columns` are the table's columns that `_d0` … hold: columns that the table got since are NULL; `bucket_count` is
    the number that the buckets of the rows were computed for, None where the task computes them. `schema` is that of
    the outcomes that come for the table packed, None where its rows come as they are.
    """

    table: TableHandle
    pipeline: str
    columns: tuple[str, ...]
    bucket_count: int | None
    schema: pa.Schema | None = None
    dead_letters: TableHandle | None = None
    number: int = 0
    """Of the table in the query."""
    are_moved: bool = False
    """The rows come from a stage that has placed and counted them (`key_task`)."""


class BatchWork(Frozen):
    """The work of a batch; a value that travels to the workers, and stays the same from batch to batch as long as
    tables and columns do."""

    packers: Mapping[int, Packer]
    """What decodes each source, by its index."""
    tables: Mapping[int, TableWork]
    """By their number in the query."""
    stage: KeyTask | None = None
    """What looks at keys before rows go on to the tasks that write them."""


def work_of(place: TaskPlace, planned: KeptValue[BatchWork]) -> BatchWork:
    """The work of the batch that a task runs in: what the driver has handed over, or else what was planned."""
    handed: KeptValue[BatchWork] = place.handed.work or planned
    return handed.value


def record_packer(place: TaskPlace, planned: KeptValue[BatchWork], source_index: int) -> RecordPacker:
    """What decodes a source of records in the batch that a task runs in."""
    packer = work_of(place, planned).packers[source_index]
    assert isinstance(packer, RecordPacker), "rows of tables are no records"
    return packer


class RecordWork(Frozen):
    """Raw records that the engine's own source reads to packed outcomes; a value that travels to the workers."""

    work: KeptValue[BatchWork]
    source_index: int

    def run(self, batches: Iterator[pa.RecordBatch], place: TaskPlace) -> Iterator[pa.RecordBatch]:
        """Batches of `raw_records` in, of `PACKED_SCHEMA` out."""
        yield from packed_batches(work_of(place, self.work).packers[self.source_index](batches))


class StageWork(Frozen):
    """The work of the stage of a batch; a value that travels to the workers."""

    work: KeptValue[BatchWork]

    def run(self, batches: Iterator[pa.RecordBatch], place: TaskPlace) -> Iterator[pa.RecordBatch]:
        """Batches of `PACKED_SCHEMA` in and out."""
        stage = work_of(place, self.work).stage
        yield from batches if stage is None else stage.run(batches, place)


class UnpackWork(Frozen):
    """Packed outcomes of one table as rows again, for columns that the engine computes; a value that travels."""

    schema: pa.Schema

    def run(self, batches: Iterator[pa.RecordBatch], place: TaskPlace) -> Iterator[pa.RecordBatch]:
        """Batches of `PACKED_SCHEMA` in, of `schema` out."""
        yield from unpacked_batches(batches, self.schema)
