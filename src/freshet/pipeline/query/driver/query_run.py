"""One streaming query on the driver: asks whether a micro-batch is done, runs its one job, commits it table by table.

    1. look: a batch that the lead holds is done, and nothing is run. The lead is the table of the query or, where it
       has several, the ledger of its batches (`targets`)
    2. pin what each table is written upon, and run the job: decode, pack, shuffle, write files, collect what to commit.
       Where the tables do not fit the records (new columns, tables, truncates), they are made to, and the job is run
       again (`fitting_round`)
    3. check (`batch_check`): records that entered = applied + dead letters + skipped, and not too many are dead letters
    4. commit the dead letters under the identity of the batch, unless an earlier attempt did
    5. commit the rows of each table but the lead that has rows of the batch and does not hold it yet, side by side: a
       commit mostly waits for a disk or a store
    6. commit the lead, though the batch has no rows, so that the numbers of its batches have no gaps
       (`missing_batches`)

| the driver dies | the replay finds | and |
|---|---|---|
| before 4 | no table knows the batch | writes all again; the files of the dead attempt are orphans |
| between 4 and 5 | the dead letters know it | writes the rows, leaves the dead letters |
| between two tables of 5, before 6 | some tables know it | writes and commits the rows of the others, then the lead |
| after 6, before the engine's own log | the lead knows it | runs no job |
| while its tasks go on (zombie) | any of these | the later commit finds the other and ends |

Identity = (commit user, batch id, the query's id), and a digest of what the batch read (`read_digests`): a batch of a
known number that read something else is refused. So is one of a pipeline whose batches before it are not in the lead
(`missing_batches`), and one of another query whose table was created again (`checkpoint_tables`).
Source: docs/explanation/spark.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from freshet._frozen import Frozen
from freshet.pipeline.config.model import MaxDeadLetters
from freshet.pipeline.identity.batch_identity import BatchIdentity
from freshet.pipeline.identity.checkpoint_offsets import COMMITS, second_run_error
from freshet.pipeline.identity.checkpoint_tables import CheckpointTables, one_call, users_of
from freshet.pipeline.identity.missing_batches import AcceptedLoss, refuse_missing_batches
from freshet.pipeline.query.driver.batch_check import BatchCheck
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.query.driver.broken_rules import broken_counts
from freshet.pipeline.query.driver.dead_letters import DeadLetterCommit
from freshet.pipeline.query.driver.engine import Job, MicroBatch, PlannedQuery
from freshet.pipeline.query.driver.fitting_round import FittingRounds, OpenBatch, Round
from freshet.pipeline.query.driver.read_digests import ReadDigests
from freshet.pipeline.query.driver.targets import Targets, truncate_texts
from freshet.pipeline.query.wire.stopwatch import Stopwatch
from freshet.pipeline.query.wire.task_result import TaskResult
from freshet.storage.exceptions import DifferentInputError, InvalidRequestError
from freshet.storage.table import Table
from freshet.storage.table_engine import BatchFacts, CommitCheck


class Accepts(Frozen):
    """What a query accepts before it commits.

    With `every_batch`, all batches of the query come here, so that one which the lead does not hold is an error, unless
    it is among `lost`; a `foreachBatch` function of users may leave batches out.
    """

    max_dead_letters: MaxDeadLetters | None = None
    every_batch: bool = False
    lost: AcceptedLoss | None = None


class _ActiveRun:
    """One run of a query: what its batches have in common."""

    def __init__(self, query: PlannedQuery, commit_user: str) -> None:
        self.query = query
        self.digests = ReadDigests(query)
        self.written = CheckpointTables(query.folder, commit_user)


class QueryRun:
    """Writes the batches of one streaming query into its tables, each once; `commit_user` is the name of the pipeline.

    The number of a table in its round is the one that results of tasks have it under.
    """

    def __init__(
        self,
        targets: Targets,
        job: Job,
        commit_user: str,
        accepts: Accepts = Accepts(),  # noqa: B008 - a frozen value
        *,
        pipeline: str | None = None,
        dead_letters: Table | DeadLetterCommit | None = None,
    ) -> None:
        """`pipeline` is the name that dead letters carry, by default the commit user. `dead_letters` is their table, or
        what commits them there."""
        self._targets = targets
        self._job = job
        self._commit_user = commit_user
        self._accepts = accepts
        letters = DeadLetterCommit(dead_letters, commit_user) if isinstance(dead_letters, Table) else dead_letters
        self._dead_letters = letters
        limit, name = accepts.max_dead_letters or MaxDeadLetters(), pipeline or commit_user
        check = BatchCheck([targets.lead], letters, limit, commit_user=commit_user, pipeline=name)
        self._rounds = FittingRounds(targets, job, check, commit_user)
        self._run: _ActiveRun | None = None

    @property
    def table_name(self) -> str:
        """What messages call the lead."""
        return self._targets.lead.table.name

    def close(self) -> None:
        """Ends what runs in the background."""
        self._targets.close()

    def check_last(self) -> None:
        """Raises `LostCommitError` where another program has replaced the last commit."""
        for each in (self._targets, *(() if self._dead_letters is None else (self._dead_letters,))):
            each.check_last()

    def write(self, batch: MicroBatch) -> BatchReport:
        """Writes one batch, once."""
        run = self._run_of(batch)
        lead, clock = self._targets.lead, Stopwatch()
        is_of_function = run is not None and not self._accepts.every_batch and not self._targets.has_ledger
        digest = None if run is None else run.digests.digest(batch.number)
        clock.lap("digest")
        state = OpenBatch(batch, BatchIdentity(batch.number, batch.query_id, digest), clock)
        with ExitStack() as calls, ExitStack() as turns, _second_runs(run, batch.number):
            if run is not None and is_of_function:
                _refuse_complete(run.query, lead.table.name)
                calls.enter_context(one_call(run.query.run_id, batch.number, lead.table, self._commit_user))
            done = self._round(state, run, turns)
            report = self._replayed(batch) if done is None else self._committed(state, done)
            if run is not None and is_of_function:
                run.written.note(lead.table, batch.number)
        messages = {} if done is None else done.result.messages
        return replace(report, background=self._targets.after_batch(batch.engine, messages))

    def _round(self, state: OpenBatch, run: _ActiveRun | None, turns: ExitStack) -> Round | None:
        """1 and 2: the round that fits the records of the batch; None where the batch is done."""
        targets = self._targets
        if not targets.has_ledger:
            is_begun = False

            def look(checks: Sequence[CommitCheck]) -> bool:
                nonlocal is_begun
                if not is_begun and checks[0].is_committed:
                    return True
                if not is_begun:
                    is_begun = True
                    self._begin(state, run, checks[0])
                    state.ranges = self._job.ranges(state.batch)
                return False

            return self._rounds.fit(state, turns, look)
        if run is None:
            raise InvalidRequestError("a query of many tables runs as a streaming query; this batch belongs to none")
        held = targets.lead.has_committed(state.identity)
        if held.is_committed:
            return None
        self._begin(state, run, held)
        state.ranges = self._job.ranges(state.batch)
        state.starts = state.batch.starts(state.ranges or self._job.planned_ranges(state.batch))
        targets.begin(state.number, held, state.starts)
        if state.ranges is None or len(targets.round(state.number, state.starts)) == 1:
            state.look = self._job.first_look(state.batch, state.ranges)
        return self._rounds.fit(state, turns, lambda checks: False)

    def _begin(self, state: OpenBatch, run: _ActiveRun | None, held: CommitCheck) -> None:
        """Raises where batches before this one are missing, a table is not the one they went to, or files are gone."""
        state.last = held.last
        number, lead = None if held.last is None else held.last.identifier, self._targets.lead.table
        if self._accepts.every_batch or self._targets.has_ledger:
            refuse_missing_batches(
                number,
                state.number,
                table=lead.name,
                pipeline=self._commit_user,
                accepted=self._accepts.lost,
                is_ledger=self._targets.has_ledger,
            )
        if run is None:
            return
        if not self._accepts.every_batch and not self._targets.has_ledger:
            called = users_of(run.query.run_id, state.number, lead)
            run.written.refuse_other(lead, state.number, number, called)
        run.digests.refuse_files()

    def _replayed(self, batch: MicroBatch) -> BatchReport:
        """The report of a batch that is done."""
        self._job.keep_state(batch)
        return BatchReport(self._commit_user, batch.number, is_replay=True)

    def _committed(self, state: OpenBatch, done: Round) -> BatchReport:
        """3 to 6."""
        targets, result, clock = self._targets, done.result, state.clock
        carried = self._rounds.judge(state, done)  # 3
        if self._dead_letters is not None:
            self._dead_letters.commit(state.identity, result.dead_letter_messages)  # 4
        calls, written = [], []
        of_tables = BatchFacts(None, event_times_ms=result.read.times)
        for number, (table, check) in enumerate(zip(done.tables, done.checks, strict=True)):
            if number and (check.is_committed or number in result.messages or number in state.truncates):
                written.append(number)
                if not check.is_committed:
                    messages = result.messages.get(number, ())
                    calls.append(partial(table.commit, state.identity, messages, None, Stopwatch(), check, of_tables))
        reports = done.tables[0].table.handle.env.for_tables(calls) if calls else []  # 5
        if calls:
            clock.lap("commit")
        # A function of users may leave batches out, so that what it begins upon says nothing of those between.
        begun_on = done.checks[0] if self._accepts.every_batch and not targets.has_ledger else None
        rows = targets.lead_messages(state.identity, result, written, done.lead_pin)
        broken = broken_counts(result, targets.rules())
        facts = _facts(result, broken, clock)
        lead = targets.lead.commit(state.identity, rows, carried, clock, begun_on, facts)  # 6
        targets.committed(lead.snapshot_ids)
        report = BatchReport.of_tables(
            self._commit_user,
            state.number,
            result,
            reports if targets.has_ledger else [lead],
            task_count=done.task_count,
            left_out=targets.left_out(result.notes),
            times_ms=clock.times_ms,
        )
        texts = truncate_texts(state.truncates, done.tables)
        report = replace(report, broken=broken, table_events=(*targets.take_events(result.notes), *texts))
        return replace(report, is_replay=False) if targets.has_ledger else report

    def _run_of(self, batch: MicroBatch) -> _ActiveRun | None:
        """The run of the query that a batch belongs to."""
        if batch.query is None:
            return None
        if self._run is None or self._run.query is not batch.query:
            self._run = _ActiveRun(batch.query, self._commit_user)
        return self._run


@contextmanager
def _second_runs(run: _ActiveRun | None, number: int) -> Iterator[None]:
    """A batch that another run has done meanwhile is refused as such, whatever tables that went on say of it."""
    try:
        yield
    except DifferentInputError as error:
        if run is None or run.query.folder.read(COMMITS, str(number)) is None:
            raise
        raise second_run_error(run.query.folder.place(COMMITS, str(number))) from error


def _facts(result: TaskResult, broken: Mapping[str, int], clock: Stopwatch) -> BatchFacts:
    """What the lead says of a batch, for people."""
    of_tasks = {f"tasks: {name}": ms for name, ms in result.times_ms.items()}
    phases_ms = {name: round(ms) for name, ms in {**clock.times_ms, **of_tasks}.items() if ms >= 1}
    return BatchFacts(result.read_count, result.dead, result.read.times, phases_ms, broken)


def _refuse_complete(query: PlannedQuery, table: str) -> None:
    if query.output_mode() == "Complete":
        raise InvalidRequestError(
            f"table {table}: outputMode('complete') gives all groups anew in each batch: a table without a key would "
            "keep every version of each, one with a key the groups that have left, and an aggregation would add up "
            "totals; nothing was written. Use outputMode('update') and a table whose primary key is that of the groups"
        )
