"""The tables of a query: one, or many that come and change while it runs, and a ledger of its batches.

| | one table (`one_table`) | many tables (`sync.sync_tables`) |
|---|---|---|
| the lead, which every batch is committed to, after all others | the table | the ledger |
| what the lead gets | the rows of the batch | what the batch was written to |
| what is new in records | columns | columns, tables |
| a table that fails for good | stops the query | is set apart |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from freshet.pipeline.decode.outcomes import SeenSchema
from freshet.pipeline.identity.batch_identity import BatchIdentity
from freshet.pipeline.query.driver.broken_rules import TableRules
from freshet.pipeline.query.driver.engine import Engine, Offsets
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.driver.table_rounds import BackgroundReport
from freshet.pipeline.query.wire.batch_pin import BatchPin
from freshet.pipeline.query.wire.task_result import TaskResult
from freshet.storage.table_engine import CommitCheck, CommitMessage


class Targets(Protocol):
    """The tables of a query. The first table of a round is the lead; results of tasks have each by its number."""

    @property
    def lead(self) -> TableCommit:
        """The table that every batch is committed to."""

    @property
    def has_ledger(self) -> bool:
        """Whether the lead is a ledger, which says of a batch whether it is done."""

    def begin(self, micro_batch_id: int, check: CommitCheck, starts: Offsets) -> None:
        """A batch begins, whose records begin at `starts`; `check` is what the ledger says of it."""

    def round(self, micro_batch_id: int, starts: Offsets, *, is_planned: bool = False) -> Sequence[TableCommit]:
        """The tables as they are now. `is_planned`: a query has its tasks in its own plan, and cannot follow every
        change of a schema."""

    def rules(self) -> Sequence[TableRules]:
        """What is expected of the rows of each table of the round."""

    def judged(self, number: int, check: CommitCheck) -> None:
        """Raises where a table lacks batches that it had."""

    def follow(self, seen: Sequence[SeenSchema], micro_batch_id: int, starts: Offsets) -> None:
        """Makes the tables fit what is new. Raises where that must stop the query."""

    def forget_deletions(self) -> None:
        """What was followed is of some records of the batch: others may be no deletions."""

    def set_apart(self, number: int, error: Exception, micro_batch_id: int, starts: Offsets) -> bool:
        """Sets a table apart whose work failed for good; False where that is to stop the query."""

    def lead_messages(
        self, batch: BatchIdentity, result: TaskResult, written: Sequence[int], pin: BatchPin
    ) -> Sequence[CommitMessage]:
        """What is committed to the lead once the tables of these numbers have the batch."""

    def committed(self, snapshot_ids: Sequence[int]) -> None:
        """The lead has the batch."""

    def after_batch(self, engine: Engine, messages: Mapping[int, Sequence[CommitMessage]]) -> BackgroundReport | None:
        """The batch is over, which has these messages by the number of their table in its last round: background
        compaction goes on. Gives what it did, None where there is none."""

    def left_out(self, notes: Mapping[str, int]) -> tuple[str, ...]:
        """Columns that are not decoded, though records carry a field of the name."""

    def take_events(self, notes: Mapping[str, int]) -> tuple[str, ...]:
        """What was done about tables, and what is to be said of fields, once."""

    def check_last(self) -> None:
        """Raises `LostCommitError` where another program has replaced the last commit."""

    def close(self) -> None:
        """Ends what runs in the background."""
