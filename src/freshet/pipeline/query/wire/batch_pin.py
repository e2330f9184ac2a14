"""What the driver hands over to the tasks of one micro-batch, and where a task runs.

The tasks of a query may be a part of its plan, made before its first batch. What changes from batch to batch reaches
them beside the plan (`Handed`): the engine hands it to every attempt of every task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from freshet._frozen import Frozen, field
from freshet.pipeline.decode.outcomes import TruncatedAt
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.storage.table_engine import TaskLog
from freshet.storage.write.commit_compaction import CompactionLimit


class BatchPin(Frozen):
    """The number of the batch, the schema that it is written to a table in, and the snapshot it was begun on.

    `limit` is how much its tasks compact where larger compactions run in the background, `log` what they need to log
    changes where the table has a log.
    """

    micro_batch_id: int
    schema_id: int
    schema_time_ms: int | None
    """When the schema was made: a table that is dropped and created again has one of the same id."""
    base_snapshot_id: int | None
    limit: CompactionLimit | None = None
    log: TaskLog | None = None
    is_committed: bool = False
    """True where the table holds the batch already, while another table of the query does not: nothing is written."""
    truncated: TruncatedAt | None = None
    """Where the batch truncates the source table: rows from before are left out."""
    upon_nothing: bool = False
    """The rows replace what is there, and are written as into an empty table."""


class Handed(Frozen):
    """What all tasks of a batch get: the pins by the number of the table and, where its records are decoded for other
    columns than the plan of the query was made for, the work."""

    pins: Mapping[int, BatchPin] = field(default_factory=dict)
    work: KeptValue[Any] | None = None


class TaskPlace(Frozen):
    """Where a task runs: its number, the partition of the shuffle whose rows it has, and its attempt.

    No two attempts of an application have one number, and a later one has a larger one; the epoch of a log
    distinguishes applications.
    """

    handed: Handed
    number: int = 0
    attempt: int = 0

    def pin(self, number: int) -> BatchPin:
        """The pin of a table."""
        return self.handed.pins[number]

    def log_of(self, pin: BatchPin) -> TaskLog | None:
        """The log of a table for this attempt."""
        return None if pin.log is None else replace(pin.log, attempt=self.attempt)
