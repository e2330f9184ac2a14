"""The writer of the dead letters of one task; what their table looks like, `query.driver.dead_letters` says."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode.outcomes import (
    COLUMN,
    KAFKA_PARTITION,
    OFFSET,
    RAW_KEY,
    RAW_VALUE,
    REASON,
    TIMESTAMP,
    TOPIC,
)
from freshet.storage.table import Table
from freshet.storage.table_engine import CommitMessage

WRITE_OPTIONS: Final = (("write-buffer-size", "32 mb"), ("write-only", "true"))
"""Options of the table that a task writes dead letters with."""


class DeadLetterWriter:
    """Writes the dead letters of one task into files of their table; close it whatever happens."""

    def __init__(self, table: Table, *, pipeline: str, micro_batch_id: int) -> None:
        self._pipeline = pipeline
        self._micro_batch_id = micro_batch_id
        self._writer = table.engine.task_writer(base_snapshot_id=None)

    def write(self, dead: pa.Table) -> None:
        """Takes outcomes that are dead letters."""
        self._writer.write(dead_letter_rows(dead, pipeline=self._pipeline, micro_batch_id=self._micro_batch_id))

    def finish(self) -> tuple[CommitMessage, ...]:
        """The files, complete."""
        return tuple(self._writer.prepare_commit())

    def close(self) -> None:
        """Removes files that no message names."""
        self._writer.close()


def dead_letter_rows(rows: pa.Table, *, pipeline: str, micro_batch_id: int) -> pa.Table:
    """Outcomes that are dead letters as rows of their table."""
    count = rows.num_rows
    constant: Any = pa.repeat(pa.scalar(pipeline, pa.string()), count)
    batch: Any = pa.repeat(pa.scalar(micro_batch_id, pa.int64()), count)
    columns = {
        "pipeline": constant,
        "topic": rows.column(TOPIC),
        "kafka_partition": rows.column(KAFKA_PARTITION),
        "log_offset": rows.column(OFFSET),
        "record_time": rows.column(TIMESTAMP).cast(pa.timestamp("us", "UTC")),
        "reason": pc.fill_null(rows.column(REASON), "unknown"),
        "column_name": rows.column(COLUMN),
        "raw_key": rows.column(RAW_KEY),
        "raw_value": rows.column(RAW_VALUE),
        "micro_batch_id": batch,
    }
    return pa.table(columns)
