"""Whether a batch may be committed: all was read, every record is accounted for, and not too many are dead letters.

What is not committed is discarded where the refusal is about the records: the files would be orphans. Where the numbers
do not add up they stay, for whoever looks into it.

The table that each source of a pipeline reads is the first one seen, which its snapshots carry from then on:

    {"0": ["shop", "public", "orders"], "2": ["shop", "public", "payments"]}        by source, in the order of the file

It travels with the commit user in the snapshots' history (`Committer.commit`, `carried`), so that the second table is
noticed in whichever batch it comes, after any restart. Sources with `only` are not looked at. A replay of dead letters
is held to the tables of its pipeline, and adds none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import orjson

from freshet.pipeline.config.model import MaxDeadLetters
from freshet.pipeline.decode.outcomes import SeenTable
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError, StoppedByRecordError
from freshet.pipeline.query.driver.broken_rules import TableRules, stopping_text
from freshet.pipeline.query.driver.dead_letters import DeadLetterCommit
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.wire.dead_letter_sample import limit_text, sample_text
from freshet.pipeline.query.wire.ranges import Ranges, range_name
from freshet.pipeline.query.wire.task_result import TaskResult
from freshet.storage.table_engine import CommitTrace

FirstTables = Mapping[int, SourceTable]
"""By the index of the source."""


class BatchCheck:
    """The check of the batches of one query."""

    def __init__(
        self,
        tables: Sequence[TableCommit],
        dead_letters: DeadLetterCommit | None,
        max_dead_letters: MaxDeadLetters,
        *,
        commit_user: str,
        pipeline: str,
    ) -> None:
        """`tables` are those of the query, which know its earlier batches; the names are those of `QueryRun`."""
        self._tables = tuple(tables)
        self._dead_letters = dead_letters
        self._max_dead_letters = max_dead_letters
        self._commit_user = commit_user
        self._pipeline = pipeline

    def check(
        self,
        result: TaskResult,
        micro_batch_id: int,
        last: CommitTrace | None,
        ranges: Ranges | None,
        tables: Sequence[TableCommit],
        emptied: Sequence[str] = (),
        rules: Sequence[TableRules] = (),
    ) -> str | None:
        """Raises where the batch must not be committed; gives what the history is to carry. `tables` are those that
        the tasks wrote, `last` is the last commit of the query, `emptied` says which tables truncates of the batch
        have emptied already, `rules` what is expected of the rows of each table."""
        if ranges is not None:
            refuse_unread(result, ranges, pipeline=self._commit_user, micro_batch_id=micro_batch_id)
        but = f" but this: {'; '.join(emptied)}" if emptied else ""
        self._refuse_unaccounted(result, micro_batch_id, but)
        try:
            first = tables_after(self._first_tables(last), result.tables)
        except StoppedByRecordError:
            self.discard(result, tables)
            raise
        stopping = stopping_text(result, rules, judges_shares=not self._is_replay)
        if stopping is not None:
            self.discard(result, tables)
            raise PipelineFailedError(
                stopping, pipeline=self._commit_user, micro_batch_id=micro_batch_id, kind=ErrorKind.INVALID_REQUEST
            )
        if self._max_dead_letters.is_exceeded(result.dead_count, result.read_count):
            self.discard(result, tables)
            raise PipelineFailedError(
                f"{result.dead_count} of the {result.read_count} records of the batch are dead letters, more than "
                f"{limit_text(self._max_dead_letters)} allows; nothing was committed"
                f"{but or ', the dead letters neither'}. The first are:\n{sample_text(result.first_dead)}\n"
                "Look whether format and schema of the source are right; to go on all the same, raise the limit",
                pipeline=self._commit_user,
                micro_batch_id=micro_batch_id,
                kind=ErrorKind.INVALID_REQUEST,
            )
        return None if self._is_replay else carried_text(first)

    def discard(self, result: TaskResult, tables: Sequence[TableCommit]) -> None:
        """Deletes the files that the tasks wrote."""
        for index, messages in result.messages.items():
            tables[index].discard(messages)
        if self._dead_letters is not None:
            self._dead_letters.discard(result.dead_letter_messages)

    def _refuse_unaccounted(self, result: TaskResult, micro_batch_id: int, but: str) -> None:
        broken = result.read.broken_partitions()
        if broken or result.read_count != result.record_count:
            where = f"; rows of partitions {broken} of the batch are missing or there twice" if broken else ""
            raise PipelineFailedError(
                f"{result.read_count} records entered, but the tasks report {result.applied} applied, "
                f"{result.dead_count} dead-lettered and {result.skipped_count} skipped{where}; nothing was "
                f"committed{but}. Either the source gave other rows when a part of the batch was computed again, or "
                "this is a bug of Freshet: please report it with the log of the run",
                pipeline=self._commit_user,
                micro_batch_id=micro_batch_id,
            )

    @property
    def _is_replay(self) -> bool:
        """True for a replay of dead letters: what they are was read under the name of their pipeline."""
        return self._pipeline != self._commit_user

    def _first_tables(self, last: CommitTrace | None) -> FirstTables:
        if self._is_replay:
            last = newest_commit(table.last_commit_of(self._pipeline) for table in self._tables)
        return first_tables(None if last is None else last.carried)


def newest_commit(commits: Iterable[CommitTrace | None]) -> CommitTrace | None:
    """The last commit of the newest batch, of those in the tables of a query."""
    return max((each for each in commits if each is not None), key=lambda each: each.identifier, default=None)


def refuse_unread(result: TaskResult, ranges: Ranges, *, pipeline: str, micro_batch_id: int) -> None:
    """Raises `PipelineFailedError` where the tasks have not come to the end of each range."""
    for index, of in ranges.items():
        for number, wanted in enumerate(of):
            reached = result.read.reached.get(range_name(index, number), wanted.start)
            if reached < wanted.end:
                raise PipelineFailedError(
                    f"{wanted}: the task that read them came to offset {reached}; nothing was committed. This is a "
                    "bug of Freshet: please report it with the log of the run. Spark's own reader gets past it: set "
                    "read: spark, and run_on: spark, for now",
                    pipeline=pipeline,
                    micro_batch_id=micro_batch_id,
                )


def first_tables(text: str | None) -> FirstTables:
    """The first tables that the history carries."""
    document = orjson.loads(text) if text else {}
    return {int(index): SourceTable(*table) for index, table in document.items()}


def carried_text(tables: FirstTables) -> str | None:
    """The inverse of `first_tables`; None where no source has said its table yet."""
    return orjson.dumps({str(index): list(tables[index]) for index in sorted(tables)}).decode() if tables else None


def tables_after(known: FirstTables, seen: Iterable[SeenTable]) -> FirstTables:
    """The first tables once a batch is committed; raises `StoppedByRecordError` where a source has a second one."""
    found: dict[int, SeenTable] = {}
    for each in sorted(seen):
        first = known.get(each.source_index)
        if first is None:
            first = found.setdefault(each.source_index, each).table
        if first != each.table:
            raise StoppedByRecordError(_second_table_text(first, each, found.get(each.source_index)))
    return {**known, **{index: each.table for index, each in found.items()}}


def _second_table_text(first: SourceTable, second: SeenTable, begun: SeenTable | None) -> str:
    where = "until now" if begun is None else f"at {begun.where}"
    return (
        f"sources[{second.source_index}] reads records of two tables: {first} ({where}) and {second.table} (at "
        f"{second.where}); rows of one would overwrite rows of the other. Nothing of the batch was committed. Say in "
        f"the file which one it reads, with only: {first.as_only} (records of other tables are passed over, and "
        "counted), or with only: any that all of them are one table (shards, or a table that was renamed)"
    )
