"""The tables of a query: one, or many that come and change while it runs, and a ledger of its batches.

| | one table (`one_table`) | many tables (`sync.sync_tables`) |
|---|---|---|
| the lead, which every batch is committed to, after all others | the table | the ledger |
| what the lead gets | the rows of the batch | what the batch was written to |
| what is new in records | columns | columns, tables |
| a table that fails for good | stops the query | is set apart |

Truncates of source tables, applied in order with the batch that has them.

    1. the job of the batch finds where source tables were truncated; what it wrote is discarded. Where the batch may
       not be committed (`batch_check`), for example since too many of its records are dead letters (those from before
       the truncate too), it ends here
    2. each of their targets is emptied by an OVERWRITE, unless it holds the batch
    3. the job is run once more, upon the empty tables, and leaves out the rows from before the last truncate
    4. the batch is committed as any other, also to a table that has no rows of it

A driver that dies after 2 leaves an empty table, which the replay empties again. One that was declared dead, and comes
to 2 when another one is through with 4, finds the batch in the table and takes nothing away.

The order is that of the offsets of a Kafka partition, and a truncate is one record of one partition. What other
partitions hold has no order with it, so a topic of several is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from freshet.pipeline.decode.outcomes import SeenSchema, TruncatedAt
from freshet.pipeline.exceptions import StoppedByRecordError
from freshet.pipeline.identity.batch_identity import BatchIdentity
from freshet.pipeline.identity.checkpoint_offsets import offsets_by_topic
from freshet.pipeline.query.driver.broken_rules import TableRules
from freshet.pipeline.query.driver.engine import Engine, Offsets
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.driver.table_rounds import BackgroundReport
from freshet.pipeline.query.wire.batch_pin import BatchPin
from freshet.pipeline.query.wire.task_result import TaskResult
from freshet.storage.table_engine import CommitCheck, CommitMessage

Truncates = Mapping[int, TruncatedAt]
"""The last one of each table, by its index in the query."""


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


def last_truncates(found: Iterable[TruncatedAt]) -> dict[int, TruncatedAt]:
    """The last truncate of each table: what was between two is gone as well."""
    return {each.table_index: each for each in sorted(found)}


def refuse_unordered(truncates: Truncates, ends: Iterable[str | None], *, is_alone: bool) -> None:
    """Raises `StoppedByRecordError` where rows of other Kafka partitions have no order with a truncate.

    `ends` are the offsets at the end of the batch, of each source in JSON. `is_alone`: all that the query reads goes
    into one table, so its other topics count as well.
    """
    counts: dict[str, int] = {}
    for text in ends:
        for topic, offsets in offsets_by_topic(text).items():
            counts[topic] = len(offsets)
    for each in truncates.values():
        here = counts.get(each.topic, 1)
        others = sum(counts.values()) - here if is_alone else 0
        if here + others > 1:
            what = f"topic {each.topic} has {here} partitions" if here > 1 else f"{len(counts)} topics are read"
            raise StoppedByRecordError(
                f"truncate record at {each.topic} partition {each.partition} offset {each.offset}: {what}, and what "
                "others hold has no order with it, so on_truncate: apply cannot say which rows it took away; nothing "
                "was committed. Have the connector write the table into a topic of one partition; to go on here, "
                "delete the rows of the table yourself, set on_truncate: skip, and start again"
            )


def truncate_texts(truncates: Truncates, tables: Sequence[TableCommit]) -> tuple[str, ...]:
    """What is said of them."""
    return tuple(
        f"table {tables[index].table.name} was emptied: its source was truncated ({each.topic} partition "
        f"{each.partition} offset {each.offset})"
        for index, each in truncates.items()
    )
