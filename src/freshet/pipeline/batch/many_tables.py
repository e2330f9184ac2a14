"""What a query of many tables asks of whoever knows them (`sync.sync_tables`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import orjson
from pyspark.sql import SparkSession

from freshet.pipeline.batch.batch_pin import BatchPin
from freshet.pipeline.batch.direct_reads import Ranges, planned_ranges
from freshet.pipeline.batch.table_commit import TableCommit
from freshet.pipeline.batch.table_rounds import BackgroundReport
from freshet.pipeline.decode.outcomes import SeenSchema
from freshet.pipeline.identity.batch_identity import BatchIdentity
from freshet.pipeline.spark.active_query import ActiveQuery
from freshet.storage.table_engine import CommitCheck, CommitMessage

ROUNDS_MAX: Final = 5
"""How often the job of a batch of many tables is run while what is new is followed."""

Offsets = Mapping[str, Mapping[str, int]]
"""Topic, partition, offset."""


class ManyTables(Protocol):
    """The tables of a query that has many, which come and change while it runs (`sync.sync_tables`).

    The first table of a round is the ledger, which every batch is committed to, after all others.
    """

    @property
    def ledger(self) -> TableCommit:
        """The table of its batches."""

    def begin(self, micro_batch_id: int, check: CommitCheck, starts: Offsets) -> None:
        """A batch begins, whose records begin at `starts`; `check` is what the ledger says of it."""

    def round(self, micro_batch_id: int, starts: Offsets) -> Sequence[TableCommit]:
        """The tables as they are now."""

    def judged(self, number: int, check: CommitCheck) -> None:
        """Raises where a table lacks batches that it had."""

    def follow(self, seen: Sequence[SeenSchema], micro_batch_id: int, starts: Offsets) -> None:
        """Makes the tables fit what is new."""

    def forget_deletions(self) -> None:
        """What was followed is of some records of the batch: others may be no deletions."""

    def set_apart(self, number: int, error: Exception, micro_batch_id: int, starts: Offsets) -> bool:
        """Sets a table apart whose work failed for good; False where it did not, or is the ledger."""

    def rows(self, batch: BatchIdentity, written: Sequence[int], pin: BatchPin) -> Sequence[CommitMessage]:
        """The rows of the ledger once these tables have the batch."""

    def committed(self, snapshot_ids: Sequence[int]) -> None:
        """The ledger has the batch."""

    def after_batch(
        self, spark: SparkSession, messages: Mapping[int, Sequence[CommitMessage]]
    ) -> BackgroundReport | None:
        """The batch is over, which has these messages by the number of their table in its last round: background
        compaction goes on. Gives what it did, None where there is none."""

    def take_events(self) -> tuple[str, ...]:
        """What was done about tables, once."""

    def close(self) -> None:
        """Ends what runs in the background."""


def batch_starts(query: ActiveQuery, micro_batch_id: int, ranges: Ranges | None) -> Offsets:
    """Where the records of a batch begin, as far as the plan of the batch says: at the end of the batch before, or at
    the first offset of each range. `ranges` are those that the workers read, None where Spark does."""
    before = query.offsets(micro_batch_id - 1) if micro_batch_id else None
    starts: dict[str, dict[str, int]] = {}
    for each in before or ():
        for topic, offsets in orjson.loads(each or "{}").items():
            starts.setdefault(topic, {}).update(offsets)
    for of in (planned_ranges(query) or {} if ranges is None else ranges).values():
        for part in of:
            partition = starts.setdefault(part.topic, {})
            partition[str(part.partition)] = min(part.start, partition.get(str(part.partition), part.start))
    return starts
