"""One streaming query on the driver: asks whether a micro-batch is done, runs its one job, commits it table by table.

    1. ask each table whether it holds the batch: if all do, nothing is run. What it is written upon is pinned by the
       same look
    2. one Spark job (`query_job`): route, shuffle, write files (`bucket_task`), collect commit messages by table
    3. check (`batch_check`): records that entered = applied + dead letters + skipped, and not too many are dead letters
    4. commit the dead letters under the identity of the batch, unless an earlier attempt did
    5. commit the rows of each table (`table_commit`) that does not hold the batch yet. A table that is alone is
       committed though the batch has no rows, so that the numbers of its batches have no gaps (`missing_batches`)

| the driver dies | the replay finds | and |
|---|---|---|
| before 4 | no table knows the batch | writes all again; the files of the dead attempt are orphans |
| between 4 and 5 | the dead letters know it | writes the rows, leaves the dead letters |
| between two tables of 5 | the first knows it | writes and commits the rows of the others |
| after 5, before Spark's commit log | the tables that have rows of it know it | runs no job, where that is all tables |
| while its tasks go on (zombie) | any of these | the later commit finds the other and ends |

Identity = (commit user, batch id, Spark's query id), and a digest of what the batch read (`read_digest`): a batch of a
known number that read something else is refused. So is one of a pipeline whose batches before it are not in the table
(`missing_batches`), and one of another query whose table was created again (`checkpoint_tables`). Tables that come and
change while the query runs have rounds of their own (`many_rounds`).
Source: docs/explanation/spark.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from freshet.pipeline.batch.arrow_batches import ArrowBatches
from freshet.pipeline.batch.background_rounds import joined_report
from freshet.pipeline.batch.batch_check import BatchCheck, newest_commit
from freshet.pipeline.batch.batch_report import BatchReport
from freshet.pipeline.batch.dead_letters import DeadLetterCommit
from freshet.pipeline.batch.direct_reads import DirectReads, Ranges
from freshet.pipeline.batch.lap_clock import LapClock
from freshet.pipeline.batch.many_rounds import ManyRounds
from freshet.pipeline.batch.many_tables import ManyTables
from freshet.pipeline.batch.new_columns import add_columns
from freshet.pipeline.batch.query_job import BatchJob, QueryJob
from freshet.pipeline.batch.table_commit import TableCommit, take_turns
from freshet.pipeline.batch.task_result import TaskResult
from freshet.pipeline.batch.truncates import Truncates, last_truncates, refuse_unordered, truncate_texts
from freshet.pipeline.config.model import MaxDeadLetters
from freshet.pipeline.identity.batch_calls import one_call, users_of
from freshet.pipeline.identity.batch_identity import BatchIdentity
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder
from freshet.pipeline.identity.checkpoint_tables import CheckpointTables
from freshet.pipeline.identity.missing_batches import AcceptedLoss, refuse_missing_batches
from freshet.pipeline.identity.open_checkpoint import open_checkpoint
from freshet.pipeline.identity.planned_isolation import PlannedBefore
from freshet.pipeline.identity.read_digest import ReadDigests
from freshet.pipeline.spark.active_query import ActiveQuery
from freshet.pipeline.spark.arrow_map import ArrowFunction
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.table import Table
from freshet.storage.table_engine import CommitCheck, CommitTrace, CompactionLimit

_RUN_PROPERTY: Final = "spark.jobGroup.id"
"""Spark runs a query under the id of this run as its job group."""


@dataclass(frozen=True, slots=True)
class _ActiveRun:
    """One run of a streaming query."""

    query: ActiveQuery
    digests: ReadDigests
    written: CheckpointTables
    folder: CheckpointFolder

    @classmethod
    def of(cls, spark: SparkSession, query: ActiveQuery, commit_user: str) -> _ActiveRun:
        checkpoint = open_checkpoint(spark, query.checkpoint())
        return cls(query, ReadDigests(spark, query, checkpoint), CheckpointTables(checkpoint, commit_user), checkpoint)

    def is_stateful(self) -> bool:
        """Whether Spark keeps state for the query: it has a folder for each stateful operator then."""
        return bool(self.folder.numbers("state"))


class _Written(NamedTuple):
    """What the job of a batch wrote, and the tables that it is to be committed to."""

    result: TaskResult
    task_count: int
    checks: list[CommitCheck]
    truncates: Truncates


class QueryRun:
    """Writes the batches of one streaming query into its tables, each once; `commit_user` is the name of the pipeline.

    The index of a table in `tables` is the one that results of tasks have it under.
    """

    def __init__(
        self,
        tables: Sequence[TableCommit],
        job: BatchJob,
        commit_user: str,
        *,
        pipeline: str | None = None,
        dead_letters: Table | DeadLetterCommit | None = None,
        max_dead_letters: MaxDeadLetters | None = None,
        writes_all_batches: bool = False,
        follows_polls: bool = False,
        direct: DirectReads | None = None,
        many: ManyTables | None = None,
        accepted_loss: AcceptedLoss | None = None,
        planned_before: PlannedBefore | None = None,
    ) -> None:
        """`pipeline` is the name that dead letters carry, by default the commit user. `dead_letters` is their table, or
        what commits them there. `writes_all_batches` says that
        every batch of the query comes here, so that one which the table does not hold is an error; only a table that
        is alone holds all. `follows_polls` says that the polls of its Kafka sources follow the sizes of their records.
        `direct` reads the records of its Kafka sources for Spark, batch by batch, where it takes them. With `many`, the
        tables are those of each round, and `tables` is its ledger alone. `accepted_loss` are batches that the table
        may lack. `planned_before` is a batch that is read under another isolation than the sources have now.
        """
        if writes_all_batches and len(tables) > 1:
            raise ValueError("a batch is committed to the tables that it has rows for: no table of several holds all")
        self._tables = tuple(tables)
        self._commit_user = commit_user
        self._writes_all_batches = writes_all_batches
        self._accepted_loss = accepted_loss
        self._many = many
        self._job = QueryJob(
            job,
            self.table_name,
            direct=direct,
            is_of_many=many is not None,
            follows_polls=follows_polls,
            planned_before=planned_before,
        )
        letters = DeadLetterCommit(dead_letters, commit_user) if isinstance(dead_letters, Table) else dead_letters
        self._dead_letters = letters
        limit, name = max_dead_letters or MaxDeadLetters(), pipeline or commit_user
        self._check = BatchCheck(tables, letters, limit, commit_user=commit_user, pipeline=name)
        self._rounds = None if many is None else ManyRounds(many, self._job, self._check, letters, commit_user)
        self._run: tuple[object, _ActiveRun | None] | None = None

    @property
    def arrow(self) -> ArrowBatches:
        """What bounds the Arrow batches of the query."""
        return self._job.arrow

    @property
    def table_name(self) -> str:
        """What messages call the tables."""
        return ", ".join(each.table.name for each in self._tables)

    def with_tasks(self, frame: DataFrame, decoder: ArrowFunction | None = None) -> DataFrame:
        """A streaming frame followed by the work of its tasks: a row for each, which `write` collects; `decoder` as
        `BatchJob.single_stage` says.

        So the plan of a query holds all that a batch does, and nothing is planned for one batch but what Spark plans.
        """
        return self._job.with_tasks(frame, decoder)

    def close(self) -> None:
        """Ends what runs in the background."""
        for table in self._tables:
            table.close()
        if self._many is not None:
            self._many.close()

    def check_last(self) -> None:
        """Raises `LostCommitError` where another program has replaced the last commit to one of the tables."""
        for each in (*self._tables, *(() if self._dead_letters is None else (self._dead_letters,))):
            each.check_last()

    def write(self, frame: DataFrame, micro_batch_id: int, query_id: str | None) -> BatchReport:
        """Writes one batch, once: of the frame that `with_tasks` gave, or else of outcomes or the table's columns.

        `query_id` is Spark's id of the streaming query.
        """
        clock = LapClock()
        run = self._active_run(frame, query_id)
        is_of_function = run is not None and not self._writes_all_batches and self._many is None
        with ExitStack() as calls:
            if run is not None and is_of_function:
                _refuse_complete(run.query, self.table_name)
                for each in self._tables:
                    calls.enter_context(one_call(run.query.run_id, micro_batch_id, each.table, self._commit_user))
            for table in self._tables:
                table.follow_schema(is_planned=self._job.is_planned)
            limits = take_turns(self._tables, calls)
            clock.lap("turn")
            report = self._write(frame, micro_batch_id, query_id, run, limits, clock)
            if run is not None and is_of_function:
                for index, table in enumerate(self._tables):
                    if len(self._tables) == 1 or index in report.result.messages:
                        run.written.note(table.table, micro_batch_id)
        written = report.result.messages
        compacted = [
            (table.table.name, table.after_batch(frame.sparkSession, written.get(index, ())))
            for index, table in enumerate(self._tables)
        ]
        own = joined_report([(name, each) for name, each in compacted if each is not None])
        return report if own is None else replace(report, background=own)

    def _write(
        self,
        frame: DataFrame,
        micro_batch_id: int,
        query_id: str | None,
        run: _ActiveRun | None,
        limits: Sequence[CompactionLimit | None],
        clock: LapClock,
    ) -> BatchReport:
        batch = BatchIdentity(micro_batch_id, query_id, None if run is None else run.digests.digest(micro_batch_id))
        clock.lap("digest")
        if self._rounds is not None:
            if run is None:
                raise InvalidRequestError(
                    "a query of many tables runs as a streaming query; this batch belongs to none"
                )
            return self._rounds.write(frame, batch, run.query, clock)
        checks = [table.has_committed(batch) for table in self._tables]
        if all(check.is_committed for check in checks):  # 1
            if run is not None and not self._job.is_planned and run.is_stateful():
                # Spark ends a query whose stateful operators have not all run, and has not kept their state yet.
                frame.write.format("noop").mode("overwrite").save()
            return BatchReport(self._commit_user, micro_batch_id, is_replay=True)
        last = newest_commit(check.last for check in checks)
        self._refuse_out_of_place(run, micro_batch_id, last, checks)
        clock.lap("look")
        query = None if run is None else run.query
        ranges = self._job.ranges(query, micro_batch_id)
        written = self._run_job(frame, batch, query, ranges, limits, checks, clock)  # 2
        emptied = truncate_texts(written.truncates, self._tables)
        carried = self._check.check(written.result, micro_batch_id, last, ranges, self._tables, emptied)  # 3
        return self._commit(batch, written, carried, clock)

    def _refuse_out_of_place(
        self, run: _ActiveRun | None, micro_batch_id: int, last: CommitTrace | None, checks: Sequence[CommitCheck]
    ) -> None:
        """Raises where batches before this one are missing, a table is not the one they went to, or files are gone."""
        if self._writes_all_batches:
            number = None if last is None else last.identifier
            refuse_missing_batches(
                number,
                micro_batch_id,
                table=self.table_name,
                pipeline=self._commit_user,
                accepted=self._accepted_loss,
            )
        if run is not None:
            for table, check in () if self._writes_all_batches else zip(self._tables, checks, strict=True):
                committed = None if check.last is None else check.last.identifier
                called = users_of(run.query.run_id, micro_batch_id, table.table)
                run.written.refuse_other(table.table, micro_batch_id, committed, called)
            run.digests.refuse_missing_files()

    def _run_job(
        self,
        frame: DataFrame,
        batch: BatchIdentity,
        query: ActiveQuery | None,
        ranges: Ranges | None,
        limits: Sequence[CompactionLimit | None],
        checks: list[CommitCheck],
        clock: LapClock,
    ) -> _Written:
        """The one job of the batch; once more, upon empty tables, where it has truncates."""
        number, context = batch.micro_batch_id, frame.sparkSession.sparkContext
        truncates: Truncates = {}
        while True:
            pins = {
                index: table.pin(number, limit, context, check, truncates.get(index))
                for index, (table, limit, check) in enumerate(zip(self._tables, limits, checks, strict=True))
            }
            result, task_count = self._job.run(frame, number, pins, query, ranges)
            clock.lap("job")
            if result.seen:
                self._check.discard(result, self._tables)
                raise add_columns(self._tables[0], result.seen)
            found = last_truncates(result.truncated)
            if found == truncates:
                return _Written(result, task_count, checks, truncates)
            self._check.check(result, number, newest_commit(each.last for each in checks), ranges, self._tables)
            self._check.discard(result, self._tables)
            refuse_unordered(found, (None if query is None else query.offsets(number)) or (), is_alone=True)
            for index in found:
                self._tables[index].truncate(batch)
            truncates = found
            checks = [table.has_committed(batch) for table in self._tables]
            clock.lap("truncate")

    def _commit(self, batch: BatchIdentity, written: _Written, carried: str | None, clock: LapClock) -> BatchReport:
        """The dead letters, and then each table that has rows of the batch and lacks it."""
        result = written.result
        if self._dead_letters is not None:
            self._dead_letters.commit(batch, result.dead_letter_messages)  # 4
        reports = [
            table.commit(  # 5
                batch,
                result.messages.get(index, ()),
                carried,
                clock,
                check if self._writes_all_batches else None,
            )
            for index, (table, check) in enumerate(zip(self._tables, written.checks, strict=True))
            if not check.is_committed and (index in result.messages or len(self._tables) == 1)
        ]
        report = BatchReport.of_tables(
            self._commit_user,
            batch.micro_batch_id,
            result,
            reports,
            task_count=written.task_count,
            left_out=tuple(name for table in self._tables for name in table.left_out(result.notes)),
            times_ms=clock.times_ms,
        )
        variants = (text for table in self._tables for text in table.new_case_variants(result.notes))
        return replace(report, table_events=(*truncate_texts(written.truncates, self._tables), *variants))

    def _active_run(self, frame: DataFrame, query_id: str | None) -> _ActiveRun | None:
        """The run of the query that this batch belongs to, looked for once."""
        if query_id is None:
            return None
        context = frame.sparkSession.sparkContext
        identity = (query_id, context.getLocalProperty(_RUN_PROPERTY))
        run = None if self._run is None else self._run[1]
        is_over = run is not None and not run.query.is_active()  # users may set a job group of their own
        if self._run is None or self._run[0] != identity or is_over:
            query = ActiveQuery.find(frame, query_id)
            found = None if query is None else _ActiveRun.of(frame.sparkSession, query, self._commit_user)
            self._run = (identity, found)
        return self._run[1]


def _refuse_complete(query: ActiveQuery, table: str) -> None:
    if query.output_mode() == "Complete":
        raise InvalidRequestError(
            f"table {table}: outputMode('complete') gives all groups anew in each batch: a table without a key would "
            "keep every version of each, one with a key the groups that have left, and an aggregation would add up "
            "totals; nothing was written. Use outputMode('update') and a table whose primary key is that of the groups"
        )
