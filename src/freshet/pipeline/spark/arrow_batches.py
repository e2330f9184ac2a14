"""How many rows the Arrow batches of a query have, from the records seen so far.

| records seen | rows of a batch | limit in bytes |
|---|---|---|
| none | 16384 | `BATCH_BYTES` |
| small ones only: 16384 are within `BATCH_BYTES`, 16384 of the largest within four times that | 16384 | none |
| others | what `BATCH_BYTES` holds of the mean, at most 4096 | `BATCH_BYTES`: some may be far larger |

The limit in bytes costs 10 % of the processor time of small records, nested columns the square of a batch's rows
(below), and nothing that shows where a batch has few rows. A batch exceeds it by one row at most.

Seen are the records of the last batches, and before the first one those of a look at the topics.

Settings that must be in force where a micro-batch is planned, in any session, and are put back afterwards.

| setting | in force | why |
|---|---|---|
| `sql.adaptive.enabled` | false | with it a shuffle and what follows are two jobs |
| `sql.execution.arrow.maxBytesPerBatch` | 2147483647, or what is given | else Spark asks for the size after every row |
| `sql.execution.arrow.maxRecordsPerBatch` | 16384, what is given, or what the session says: the least | see below |

Without a limit in bytes nothing bounds an Arrow batch but its rows: records of more than 128 KB each would overflow a
column of 16384. It is set by the records seen; a session's own lower number of rows counts.

Spark reads them when a frame is planned. The frame of a batch belongs to a session of the query's own, a copy that is
made when the query starts: so they are set around `start()` for the streaming frame, and again around each batch.

Source: docs/explanation/spark.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from typing import Final

from pyspark.sql import SparkSession

from freshet._frozen import Frozen
from freshet.logstore.kafka.record_sizes import NOTHING_SEEN, RecordSizes

BATCH_BYTES: Final = 48 << 20
LIMITED_ROWS: Final = 4096
_LARGE_BYTES: Final = 4 * BATCH_BYTES
_BATCHES_SEEN: Final = 8

_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
BYTES_OPTION: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
RECORDS_OPTION: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"

NO_BYTE_LIMIT: Final = "2147483647"
RECORDS_MAX: Final = 16384
"""Rows of an Arrow batch: the fixed cost of one is spread over enough of them, and it stays within some megabytes."""


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
        self._rows_allowed = _records_allowed(spark)
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


def batch_settings(
    spark: SparkSession, *, rows: int = RECORDS_MAX, size_bytes: int | None = None
) -> AbstractContextManager[None]:
    """The settings of the table above hold inside; `size_bytes` is None for no limit."""
    return settings_in_force(
        spark,
        {
            _ADAPTIVE: "false",
            BYTES_OPTION: NO_BYTE_LIMIT if size_bytes is None else str(size_bytes),
            RECORDS_OPTION: str(min(rows, _records_allowed(spark))),
        },
    )


@contextmanager
def settings_in_force(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session that hold inside, and are put back."""
    before = {key: spark.conf.get(key, None) for key in wanted}
    changed = {key: value for key, value in wanted.items() if before[key] != value}
    try:
        for key, value in changed.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key in changed:
            earlier = before[key]
            if earlier is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, earlier)


def _records_allowed(spark: SparkSession) -> int:
    """Rows of an Arrow batch that the session allows. Spark takes 0 and less for *no limit*."""
    number = int(spark.conf.get(RECORDS_OPTION, None) or 0)
    return min(number, RECORDS_MAX) if number > 0 else RECORDS_MAX
