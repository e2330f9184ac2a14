"""Truncates of source tables, applied in order with the batch that has them.

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

from freshet.pipeline.decode.outcomes import TruncatedAt
from freshet.pipeline.exceptions import StoppedByRecordError
from freshet.pipeline.identity.checkpoint_offsets import offsets_by_topic
from freshet.pipeline.query.driver.table_commit import TableCommit

Truncates = Mapping[int, TruncatedAt]
"""The last one of each table, by its index in the query."""


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
