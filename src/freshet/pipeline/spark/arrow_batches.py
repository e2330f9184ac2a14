"""How many rows the Arrow batches of a query have, from the records seen so far.

| records seen | rows of a batch | limit in bytes |
|---|---|---|
| none | 16384 | `BATCH_BYTES` |
| small ones only: 16384 are within `BATCH_BYTES`, 16384 of the largest within four times that | 16384 | none |
| others | what `BATCH_BYTES` holds of the mean, at most 4096 | `BATCH_BYTES`: some may be far larger |

The limit in bytes costs 10 % of the processor time of small records, nested columns the square of a batch's rows
(`batch_settings`), and nothing that shows where a batch has few rows. A batch exceeds it by one row at most.

Seen are the records of the last batches, and before the first one those of a look at the topics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Final

from pyspark.sql import SparkSession

from freshet._frozen import Frozen
from freshet.logstore.kafka.record_sizes import NOTHING_SEEN, RecordSizes
from freshet.pipeline.spark.batch_settings import (
    BYTES_OPTION,
    NO_BYTE_LIMIT,
    RECORDS_MAX,
    RECORDS_OPTION,
    batch_settings,
    records_allowed,
)

BATCH_BYTES: Final = 48 << 20
LIMITED_ROWS: Final = 4096
_LARGE_BYTES: Final = 4 * BATCH_BYTES
_BATCHES_SEEN: Final = 8


class BatchLimits(Frozen):
    """What bounds an Arrow batch; `size_bytes` is None for no limit."""

    rows: int = RECORDS_MAX
    size_bytes: int | None = None


def limits_for(sizes: RecordSizes) -> BatchLimits:
    """The limits for records of these sizes."""
    if not sizes.largest:
        return BatchLimits(size_bytes=BATCH_BYTES)
    rows = BATCH_BYTES // max(1, sizes.mean)
    if rows >= RECORDS_MAX and sizes.largest * RECORDS_MAX <= _LARGE_BYTES:
        return BatchLimits()
    return BatchLimits(max(1, min(rows, LIMITED_ROWS)), BATCH_BYTES)


class ArrowBatches:
    """The limits of one query, from batch to batch."""

    def __init__(self) -> None:
        self._seen: deque[RecordSizes] = deque(maxlen=_BATCHES_SEEN)
        self._rows_allowed = RECORDS_MAX

    def saw(self, sizes: RecordSizes) -> None:
        """Records were seen; nothing where there were none."""
        if sizes.largest:
            self._seen.append(sizes)

    @property
    def sizes(self) -> RecordSizes:
        """The sizes of the records seen in the last batches."""
        return reduce(RecordSizes.joined, self._seen, NOTHING_SEEN)

    def limits(self) -> BatchLimits:
        """For the batch that comes next."""
        return limits_for(self.sizes)

    @contextmanager
    def in_force(self, spark: SparkSession) -> Iterator[None]:
        """The limits hold for what is planned inside; the session's own number of rows counts where it is lower."""
        self._rows_allowed = records_allowed(spark)
        limits = self.limits()
        with batch_settings(spark, rows=limits.rows, size_bytes=limits.size_bytes):
            yield

    def follow(self, session: SparkSession) -> None:
        """Sets the limits in a query's own session, which nobody else has: Spark plans its next batch with them."""
        limits = self.limits()
        rows = str(min(limits.rows, self._rows_allowed))
        size = NO_BYTE_LIMIT if limits.size_bytes is None else str(limits.size_bytes)
        for key, value in ((RECORDS_OPTION, rows), (BYTES_OPTION, size)):
            if session.conf.get(key, None) != value:
                session.conf.set(key, value)
