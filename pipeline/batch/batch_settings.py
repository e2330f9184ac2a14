"""Settings that must be in force where a micro-batch is planned, in whoever's session, and are put back afterwards.

| setting | in force | why |
|---|---|---|
| `sql.adaptive.enabled` | false | with it a shuffle and what follows are two jobs |
| `sql.execution.arrow.maxBytesPerBatch` | 2147483647 | with any other value Spark asks for the size after every row |
| `sql.execution.arrow.maxRecordsPerBatch` | 16384, or less where the session says less | see below |

Nothing bounds the bytes of an Arrow batch then but its rows: records of more than 128 KB each would overflow a column
of 16384. A session that meets such records sets `maxRecordsPerBatch` lower, and its own value stands.

Spark reads them when a frame is planned. The frame of a batch belongs to a session of the query's own, a copy that is
made when the query starts: so they are set around `start()` for the streaming frame, and again around each batch.

Source: pipeline/README.md, "How Spark 4.2.1 behaves".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_RECORDS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"

NO_BYTE_LIMIT: Final = "2147483647"
RECORDS_MAX: Final = 16384
"""Rows of an Arrow batch: the fixed cost of one is spread over enough of them, and it stays within some megabytes."""


@contextmanager
def batch_settings(spark: SparkSession) -> Iterator[None]:
    """The settings of the table above hold inside."""
    before = {key: spark.conf.get(key, None) for key in (_ADAPTIVE, _BYTES, _RECORDS)}
    wanted = {_ADAPTIVE: "false", _BYTES: NO_BYTE_LIMIT, _RECORDS: str(_records(before[_RECORDS]))}
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


def _records(text: str | None) -> int:
    """Spark takes 0 and less for *no limit*."""
    number = int(text or 0)
    return min(number, RECORDS_MAX) if number > 0 else RECORDS_MAX
