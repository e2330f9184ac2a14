"""Records to packed outcomes, in a worker: what a decoder gives, by the task and the table that it goes to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.pipeline.decode.decoder import RecordDecoder
from freshet.pipeline.decode.outcomes import Tally
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.record_block import RecordBlock
from freshet.pipeline.query.wire.packed_rows import PackedValue, PackRule, not_small


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
