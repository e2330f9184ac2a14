"""The rounds of a batch: its job runs until the tables of the query fit its records.

    a round: tables as they are ─▶ pins ─▶ the job ─┬─ a table failed for good: it is set apart
                                                    ├─ something new, or a first look: it is followed
                                                    ├─ truncates that were not known: their tables are emptied
                                                    └─ all fits

Each but the last ends in another round, and what it wrote is discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from freshet._frozen import Frozen
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.batch_identity import BatchIdentity
from freshet.pipeline.query.driver.batch_check import BatchCheck
from freshet.pipeline.query.driver.engine import Job, MicroBatch, Offsets
from freshet.pipeline.query.driver.table_commit import TableCommit, take_turns
from freshet.pipeline.query.driver.targets import Targets, Truncates, last_truncates, refuse_unordered, truncate_texts
from freshet.pipeline.query.wire.batch_pin import BatchPin
from freshet.pipeline.query.wire.ranges import Ranges
from freshet.pipeline.query.wire.stopwatch import Stopwatch
from freshet.pipeline.query.wire.task_result import TableFailedError, TaskResult
from freshet.storage.exceptions import StorageError
from freshet.storage.table_engine import CommitCheck, CommitTrace

ROUNDS_MAX: Final = 5
"""How often the job of a batch is run while what is new is followed."""


@dataclass(slots=True)
class OpenBatch:
    """One batch, and what its rounds have found so far."""

    batch: MicroBatch
    identity: BatchIdentity
    clock: Stopwatch
    starts: Offsets = field(default_factory=dict)
    ranges: Ranges | None = None
    look: Ranges | None = None
    """Some of the records, which the first round looks at instead of all."""
    last: CommitTrace | None = None
    """The last commit of the query to its lead."""
    truncates: Truncates = field(default_factory=dict)
    """For which the tables are emptied already."""
    ends: Sequence[str | None] | None = None
    """The JSON of each source's offset at its end, where the batch is none that an engine has planned."""
    names: Sequence[str] = ()
    """Of the tables of the last round."""

    @property
    def number(self) -> int:
        """The number of the batch."""
        return self.identity.micro_batch_id


class Round(Frozen):
    """What a round found, and what its tasks wrote. The first table is the lead."""

    tables: Sequence[TableCommit]
    checks: Sequence[CommitCheck]
    lead_pin: BatchPin
    result: TaskResult
    task_count: int


class FittingRounds(Frozen):
    """Runs the rounds of the batches of a query."""

    targets: Targets
    job: Job
    check: BatchCheck
    commit_user: str
    is_beside: bool = False
    """The records are none of the query's next batch: the lead is not asked, and nothing compacts meanwhile."""
    takes_truncates: bool = True

    def fit(self, batch: OpenBatch, turns: ExitStack, look: Callable[[Sequence[CommitCheck]], bool]) -> Round | None:
        """The round that fits; None where `look`, which gets what the tables say in each round, says that all is done.
        The tables of the round are left in `turns`, where nothing but the batch changes them."""
        for _ in range(ROUNDS_MAX if batch.look is None else ROUNDS_MAX + 1):
            turns.close()
            tables = self.targets.round(batch.number, batch.starts, is_planned=self.job.is_planned)
            names = tuple(table.table.name for table in tables)
            if names != batch.names:
                batch.names, batch.truncates = names, {}  # those have the places of the tables; they are found again
            limits = [None] * len(tables) if self.is_beside else take_turns(tables, turns)
            batch.clock.lap("turn")
            checks = self._checks(tables, batch.identity)
            for number, check in enumerate(checks[1:], 1):
                if not self.is_beside:
                    self.targets.judged(number, check)
            if look(checks):
                return None
            batch.clock.lap("look")
            pins = {
                index: table.pin(batch.batch, limits[index], check, batch.truncates.get(index))
                for index, (table, check) in enumerate(zip(tables, checks, strict=True))
            }
            ranges, is_look = (batch.ranges, False) if batch.look is None else (batch.look, True)
            try:
                try:
                    result, task_count = self.job.run(batch.batch, pins, ranges, is_look=is_look)
                finally:
                    batch.batch.settle()
            except TableFailedError as error:
                self._set_apart(batch, error)
                continue
            batch.clock.lap("first look" if is_look else "job")
            done = Round(tables, checks, pins[0], result, task_count)
            if self._fits(batch, done):
                return done
        raise PipelineFailedError(
            f"the tables of batch {batch.number} still do not fit its records after {ROUNDS_MAX} tries: a source whose "
            "tables change with every record, or a bug of Freshet; nothing was committed",
            pipeline=self.commit_user,
            micro_batch_id=batch.number,
        )

    def judge(self, batch: OpenBatch, done: Round) -> str | None:
        """Raises where the batch must not be committed: before its truncates are, and once more before its rows are.
        Gives what the history is to carry."""
        emptied = truncate_texts(batch.truncates, done.tables)
        rules = self.targets.rules()
        given = (done.result, batch.number, batch.last, batch.ranges, done.tables, emptied)
        return self.check.check(*given, rules=rules)

    def _fits(self, batch: OpenBatch, done: Round) -> bool:
        """Whether a round can be committed. Else what it wrote is discarded, and its tables are made to fit."""
        result, found = done.result, last_truncates(done.result.truncated)
        is_new = batch.look is not None or bool(result.seen)
        if not is_new and found == batch.truncates:
            return True
        if not is_new:
            self.judge(batch, done)
        self.check.discard(result, done.tables)
        if is_new:
            self.targets.follow(result.seen, batch.number, batch.starts)
            if batch.look is not None:
                self.targets.forget_deletions()
                batch.look = None
            batch.clock.lap("follow")
            return False
        try:
            self._truncate(batch, found, done.tables)
        except TableFailedError as error:
            self._set_apart(batch, error)
        batch.clock.lap("truncate")
        return False

    def _truncate(self, batch: OpenBatch, found: Truncates, tables: Sequence[TableCommit]) -> None:
        """Empties the tables whose sources were truncated (`targets`)."""
        if not self.takes_truncates:
            place = min(found.values())
            raise PipelineFailedError(
                f"the dead letter {place.topic} partition {place.partition} offset {place.offset} is a truncate, and "
                "would take away rows that came later; nothing was committed",
                pipeline=self.commit_user,
            )
        ends = batch.batch.offsets() if batch.ends is None else batch.ends
        refuse_unordered(found, ends, is_alone=not self.targets.has_ledger)
        for index in found:
            try:
                tables[index].truncate(batch.identity)
            except StorageError as error:
                raise TableFailedError(index, error) from error
        batch.truncates = found

    def _set_apart(self, batch: OpenBatch, error: TableFailedError) -> None:
        """Sets apart the table that failed; raises what it failed of where that stops the query."""
        if not self.targets.set_apart(error.table_index, error.cause, batch.number, batch.starts):
            raise error.cause from None

    def _checks(self, tables: Sequence[TableCommit], identity: BatchIdentity) -> list[CommitCheck]:
        """Whether each table holds the batch. On a disk one after the other: there they only take processor time."""
        env = tables[0].table.handle.env
        calls = [partial(table.has_committed, identity) for table in tables[1 if self.is_beside else 0 :]]
        checks = env.for_tables(calls) if env.is_remote else [call() for call in calls]
        if not self.is_beside:
            return checks
        return [CommitCheck(is_committed=False, last=None, latest=tables[0].table.latest_snapshot()), *checks]
