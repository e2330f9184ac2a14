"""How many records entered a micro-batch, counted by the rows that crossed the shuffle.

An accumulator or an `Observation` counts again where Spark computes a map task again.
What crosses with the rows is there exactly as often as they are:

| frame | what counts |
|---|---|
| outcomes | tally rows: each decoder says how many records it read and how many of them it skipped |
| any other | the position of each row in its Spark partition: those of a partition must be 0, 1, 2 … once each |

The second finds rows that are missing or there twice, but not a missing end of a partition: nothing says where it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.logstore.kafka.record_sizes import NOTHING_SEEN, RecordSizes
from freshet.pipeline.decode.outcomes import RAW_VALUE, SUB, TAG, TAG_TALLY, EventTimes, Tally, joined_times

POSITION: Final = "_position"
"""The column of the input order, in rows that no decoder has made."""
POSITION_BITS: Final = 33
"""Width of the position in Spark's monotonically_increasing_id; the Spark partition is above it."""


class PositionSums(NamedTuple):
    """Rows seen of one Spark partition: their number, the largest position, the sum of the positions."""

    rows: int
    last: int
    total: int

    def plus(self, other: PositionSums) -> PositionSums:
        """Both together."""
        return PositionSums(self.rows + other.rows, max(self.last, other.last), self.total + other.total)

    @property
    def expected(self) -> int:
        """Rows that the partition must have had."""
        return self.last + 1

    @property
    def is_whole(self) -> bool:
        """True when no row before the last is missing and none is there twice."""
        return self.rows == self.expected and self.total == self.last * self.expected // 2


@dataclass(slots=True)
class ReadCount:
    """What one task, or all of them together, saw of the input. Counts are of records."""

    tallied: int = 0
    """Records that decoders read."""
    sizes: RecordSizes = NOTHING_SEEN
    """How large these were."""
    sums: dict[int, PositionSums] = field(default_factory=dict)
    """Of frames without tallies: what was seen of each Spark partition."""
    times: EventTimes | None = None
    """When the records were made."""
    reached: dict[str, int] = field(default_factory=dict)
    """Offsets to which ranges were read, by their names, where workers read them."""

    def add_tally(self, tally: Tally) -> None:
        """Takes what a decoder read."""
        self.tallied += tally.read
        self.sizes = self.sizes.joined(tally.sizes)
        self.times = joined_times(self.times, tally.times)
        self.reached |= tally.reached

    def add_positions(self, positions: Any) -> None:
        """Takes the positions (`monotonically_increasing_id`) of rows of a frame that has no tallies."""
        numbers = np.asarray(positions)
        partitions = numbers >> POSITION_BITS
        in_partition = numbers & ((1 << POSITION_BITS) - 1)
        order = np.argsort(partitions, kind="stable")
        present, starts = np.unique(partitions[order], return_index=True)
        for partition, part in zip(present.tolist(), np.split(in_partition[order], starts[1:]), strict=True):
            self._add_sums(partition, PositionSums(len(part), int(part.max()), int(part.sum())))

    def add(self, other: ReadCount) -> None:
        """Takes what another task saw."""
        self.tallied += other.tallied
        self.sizes = self.sizes.joined(other.sizes)
        self.times = joined_times(self.times, other.times)
        self.reached |= other.reached
        for partition, sums in other.sums.items():
            self._add_sums(partition, sums)

    def record_count(self) -> int:
        """Records that entered."""
        return self.tallied + sum(sums.expected for sums in self.sums.values())

    def broken_partitions(self) -> list[int]:
        """Spark partitions of which rows are missing or there twice."""
        return sorted(partition for partition, sums in self.sums.items() if not sums.is_whole)

    def to_document(self) -> dict[str, Any]:
        """The form that JSON takes."""
        sums = {str(partition): list(sums) for partition, sums in self.sums.items()}
        sizes = [self.sizes.mean, self.sizes.largest]
        document = {"tallied": self.tallied, "sizes": sizes, "sums": sums, "reached": self.reached}
        return document if self.times is None else {**document, "times": list(self.times)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ReadCount:
        """The inverse of `to_document`."""
        sums = {int(partition): PositionSums(*numbers) for partition, numbers in document["sums"].items()}
        times = EventTimes(*document["times"]) if "times" in document else None
        return cls(document["tallied"], RecordSizes(*document["sizes"]), sums, times, dict(document["reached"]))

    def _add_sums(self, partition: int, sums: PositionSums) -> None:
        known = self.sums.get(partition)
        self.sums[partition] = sums if known is None else known.plus(sums)


def without_tallies(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Tally]]:
    """The batch without its tally rows, and what they say."""
    is_tally: Any = pc.equal(batch.column(TAG), TAG_TALLY)
    if not pc.any(is_tally).as_py():
        return batch, []
    values = batch.column(RAW_VALUE).filter(is_tally).to_pylist()
    return batch.filter(pc.invert(is_tally)), [Tally.decode(value) for value in values]


def record_count(rows: pa.Table | pa.RecordBatch) -> int:
    """Records, not rows: a key change is two rows of one record, the second with another position in it."""
    return int(np.count_nonzero(np.asarray(rows.column(SUB)) == 0)) if rows.num_rows else 0
