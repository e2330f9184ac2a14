"""Which batches are so small that one task reads, decodes and writes them (`spark/single_stage`).

Measured on two cores: see docs/decisions/2026-11-small-batches-in-one-task.md.
"""

from __future__ import annotations

from typing import Final

from freshet.logstore.kafka.record_sizes import RecordSizes
from freshet.pipeline.batch.direct_reads import Ranges

RECORDS_MAX: Final = 4000
BYTES_MAX: Final = 4 << 20
"""By the mean of the records seen so far."""
RANGES_MAX: Final = 8
"""They are read one after the other, each with a round trip to its broker."""
TASKS_MAX: Final = 4
"""Tables whose batches are written by more tasks keep them: each bucket is a file that has to be on the disk."""


def is_small(ranges: Ranges, sizes: RecordSizes) -> bool:
    """Whether one task takes a batch of these ranges; `sizes` are those of the records before it."""
    each = [of for ranges_of in ranges.values() for of in ranges_of]
    count = sum(max(0, of.end - of.start) for of in each)
    return len(each) <= RANGES_MAX and count <= RECORDS_MAX and count * sizes.mean <= BYTES_MAX
