"""The rounds of a batch over many tables: the job runs until its tables fit its records, then they are committed.

    a round: tables as they are ─▶ pins ─▶ the job ─┬─ a table failed for good: it is set apart
                                                    ├─ something new, or a first look: it is followed
                                                    ├─ truncates that were not known: their tables are emptied
                                                    └─ all fits: dead letters ─▶ each table that has rows ─▶ the ledger

Each but the last ends in another round, and what it wrote is discarded. The ledger says whether a batch is done, so it
gets the batch last. The table of a driver that died is as in `query_run`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import DataFrame

from freshet.pipeline.batch.batch_check import BatchCheck
from freshet.pipeline.batch.batch_pin import BatchPin
from freshet.pipeline.batch.batch_report import BatchReport
from freshet.pipeline.batch.dead_letters import DeadLetterCommit
from freshet.pipeline.batch.direct_reads import Ranges
from freshet.pipeline.batch.lap_clock import LapClock
from freshet.pipeline.batch.many_tables import ROUNDS_MAX, ManyTables, Offsets, batch_starts
from freshet.pipeline.batch.query_job import Look, QueryJob
from freshet.pipeline.batch.table_commit import TableCommit, take_turns
from freshet.pipeline.batch.task_result import TableFailedError, TaskResult
from freshet.pipeline.batch.truncates import Truncates, last_truncates, refuse_unordered, truncate_texts
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.batch_identity import BatchIdentity
from freshet.pipeline.identity.missing_batches import refuse_missing_batches
from freshet.pipeline.spark.active_query import ActiveQuery
from freshet.storage.exceptions import StorageError
from freshet.storage.table_engine import CommitCheck, CommitTrace


@dataclass(slots=True)
class _Batch:
    """One batch, and what its rounds have found so far."""

    frame: DataFrame
    identity: BatchIdentity
    query: ActiveQuery
    starts: Offsets
    ranges: Ranges | None
    last: CommitTrace | None
    """The last commit to the ledger."""
    clock: LapClock
    look: Look | None = None
    """Some of the records, which the first round looks at instead of all."""
    truncates: Truncates = field(default_factory=dict)
    """For which the tables are emptied already."""
    names: Sequence[str] = ()
    """Of the tables of the last round."""

    @property
    def number(self) -> int:
        return self.identity.micro_batch_id


@dataclass(frozen=True, slots=True)
class _Round:
    """What a round found, and what its tasks wrote. The first table is the ledger."""

    tables: Sequence[TableCommit]
    checks: Sequence[CommitCheck]
    ledger_pin: BatchPin
    result: TaskResult
    task_count: int


@dataclass(frozen=True, slots=True)
class ManyRounds:
    """Writes the batches of a query of many tables."""

    many: ManyTables
    job: QueryJob
    check: BatchCheck
    dead_letters: DeadLetterCommit | None
    commit_user: str

    def write(self, frame: DataFrame, identity: BatchIdentity, query: ActiveQuery, clock: LapClock) -> BatchReport:
        """Writes one batch, unless the ledger has it."""
        number, ledger = identity.micro_batch_id, self.many.ledger
        held = ledger.has_committed(identity)
        if held.is_committed:
            return BatchReport(self.commit_user, number, is_replay=True)
        last = None if held.last is None else held.last.identifier
        refuse_missing_batches(last, number, table=ledger.table.name, pipeline=self.commit_user, is_ledger=True)
        ranges = self.job.ranges(query, number)
        starts = batch_starts(query, number, ranges)
        self.many.begin(number, held, starts)
        batch = _Batch(frame, identity, query, starts, ranges, held.last, clock)
        if batch.ranges is not None and len(self.many.round(number, starts)) == 1:
            batch.look = self.job.first_look(batch.ranges)
        with ExitStack() as turns:
            done = self._fitting_round(batch, turns)
            self._judge(batch, done)
            report = self._commit(batch, done)
        background = self.many.after_batch(frame.sparkSession, done.result.messages)
        return replace(report, background=background)

    def _fitting_round(self, batch: _Batch, turns: ExitStack) -> _Round:
        """Runs the job until its tables fit all of its records. The tables of that round are left in `turns`, where
        nothing but the batch changes them."""
        for _ in range(ROUNDS_MAX if batch.look is None else ROUNDS_MAX + 1):
            turns.close()
            done = self._run(batch, turns)
            if done is not None and self._fits(batch, done):
                return done
        raise PipelineFailedError(
            f"the tables of batch {batch.number} still do not fit its records after {ROUNDS_MAX} tries: a source whose "
            "tables change with every record, or a bug of Freshet; nothing was committed",
            pipeline=self.commit_user,
            micro_batch_id=batch.number,
        )

    def _run(self, batch: _Batch, turns: ExitStack) -> _Round | None:
        """The job of a round; None where a table of it was set apart."""
        number = batch.number
        tables = self.many.round(number, batch.starts)
        names = tuple(table.table.name for table in tables)
        if names != batch.names:
            batch.names, batch.truncates = names, {}  # those have the places of the tables; they are found once more
        limits = take_turns(tables, turns)
        batch.clock.lap("turn")
        checks = self._checks(tables, batch.identity)
        for index, each in enumerate(checks[1:], 1):
            self.many.judged(index, each)
        batch.clock.lap("look")
        context = batch.frame.sparkSession.sparkContext
        pins = {
            index: table.pin(number, limits[index], context, check, batch.truncates.get(index))
            for index, (table, check) in enumerate(zip(tables, checks, strict=True))
        }
        try:
            result, task_count = self.job.run(batch.frame, number, pins, batch.query, batch.ranges, batch.look)
        except TableFailedError as error:
            self._set_apart(batch, error)
            return None
        batch.clock.lap("job" if batch.look is None else "first look")
        return _Round(tables, checks, pins[0], result, task_count)

    @staticmethod
    def _checks(tables: Sequence[TableCommit], identity: BatchIdentity) -> list[CommitCheck]:
        """Whether each table holds the batch. On a disk one after the other: there they only take processor time."""
        env = tables[0].table.handle.env
        calls = [partial(table.has_committed, identity) for table in tables]
        return env.for_tables(calls) if env.is_remote else [call() for call in calls]

    def _fits(self, batch: _Batch, done: _Round) -> bool:
        """Whether a round can be committed. Else what it wrote is discarded, and its tables are made to fit."""
        result, found = done.result, last_truncates(done.result.truncated)
        if batch.look is None and not result.seen and found == batch.truncates:
            return True
        if batch.look is None and not result.seen:
            self._judge(batch, done)
        self.check.discard(result, done.tables)
        if batch.look is not None or result.seen:
            self.many.follow(result.seen, batch.number, batch.starts)
            if batch.look is not None:
                self.many.forget_deletions()
                batch.look = None
            batch.clock.lap("follow")
            return False
        try:
            self._truncate(batch, found, done.tables)
        except TableFailedError as error:
            self._set_apart(batch, error)
        batch.clock.lap("truncate")
        return False

    def _judge(self, batch: _Batch, done: _Round) -> None:
        """Raises where the batch must not be committed: before its truncates are, and once more before its rows are."""
        emptied = truncate_texts(batch.truncates, done.tables)
        self.check.check(done.result, batch.number, batch.last, batch.ranges, done.tables, emptied)

    def _truncate(self, batch: _Batch, found: Truncates, tables: Sequence[TableCommit]) -> None:
        """Empties the tables whose sources were truncated (`truncates`)."""
        refuse_unordered(found, batch.query.offsets(batch.number) or (), is_alone=False)
        for index in found:
            try:
                tables[index].truncate(batch.identity)
            except StorageError as error:
                raise TableFailedError(index, error) from error
        batch.truncates = found

    def _set_apart(self, batch: _Batch, error: TableFailedError) -> None:
        """Sets apart the table that failed; raises what it failed of where that stops the query."""
        if not self.many.set_apart(error.table_index, error.cause, batch.number, batch.starts):
            raise error.cause from None

    def _commit(self, batch: _Batch, done: _Round) -> BatchReport:
        """The dead letters, each table that has rows of the batch and lacks it, and then the ledger.

        Tables are committed side by side, as a commit mostly waits for a disk or a store: of a batch that dies any of
        them may lack it, and a replay asks each.
        """
        result, clock = done.result, batch.clock
        if self.dead_letters is not None:
            self.dead_letters.commit(batch.identity, result.dead_letter_messages)
        calls, written = [], []
        for index, (table, check) in enumerate(zip(done.tables, done.checks, strict=True)):
            if index and (check.is_committed or index in result.messages or index in batch.truncates):
                written.append(index)
                if not check.is_committed:
                    messages = result.messages.get(index, ())
                    calls.append(partial(table.commit, batch.identity, messages, None, LapClock(), check))
        reports = done.tables[0].table.handle.env.for_tables(calls)
        clock.lap("commit")
        rows = self.many.rows(batch.identity, written, done.ledger_pin)
        self.many.committed(self.many.ledger.commit(batch.identity, rows, None, clock).snapshot_ids)
        report = BatchReport.of_tables(
            self.commit_user,
            batch.number,
            result,
            reports,
            task_count=done.task_count,
            left_out=(),
            times_ms=clock.times_ms,
        )
        texts = truncate_texts(batch.truncates, done.tables)
        return replace(report, table_events=(*self.many.take_events(), *texts), is_replay=False)
