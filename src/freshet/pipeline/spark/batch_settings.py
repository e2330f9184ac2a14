"""Settings that must be in force where a micro-batch is planned, in any session, and are put back afterwards.

| setting | in force | why |
|---|---|---|
| `sql.adaptive.enabled` | false | with it a shuffle and what follows are two jobs |
| `sql.execution.arrow.maxBytesPerBatch` | 2147483647, or what is given | else Spark asks for the size after every row |
| `sql.execution.arrow.maxRecordsPerBatch` | 16384, what is given, or what the session says: the least | see below |

Without a limit in bytes nothing bounds an Arrow batch but its rows: records of more than 128 KB each would overflow a
column of 16384. `arrow_batches` sets it by the records seen; a session's own lower number of rows counts.

Spark reads them when a frame is planned. The frame of a batch belongs to a session of the query's own, a copy that is
made when the query starts: so they are set around `start()` for the streaming frame, and again around each batch.

Source: docs/explanation/spark.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
BYTES_OPTION: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
RECORDS_OPTION: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"

NO_BYTE_LIMIT: Final = "2147483647"
RECORDS_MAX: Final = 16384
"""Rows of an Arrow batch: the fixed cost of one is spread over enough of them, and it stays within some megabytes."""


@contextmanager
def batch_settings(spark: SparkSession, *, rows: int = RECORDS_MAX, size_bytes: int | None = None) -> Iterator[None]:
    """The settings of the table above hold inside; `size_bytes` is None for no limit."""
    before = {key: spark.conf.get(key, None) for key in (_ADAPTIVE, BYTES_OPTION, RECORDS_OPTION)}
    wanted = {
        _ADAPTIVE: "false",
        BYTES_OPTION: NO_BYTE_LIMIT if size_bytes is None else str(size_bytes),
        RECORDS_OPTION: str(min(rows, records_allowed(spark))),
    }
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


def records_allowed(spark: SparkSession) -> int:
    """Rows of an Arrow batch that the session allows. Spark takes 0 and less for *no limit*."""
    number = int(spark.conf.get(RECORDS_OPTION, None) or 0)
    return min(number, RECORDS_MAX) if number > 0 else RECORDS_MAX
