"""The tables of a pipeline with `sync`, on the driver: what a query asks of them (`query.driver.targets`).

    round()      the tables of a batch, the ledger first; what other programs changed of them is followed
    follow()     what decoders have met: tables are created and altered, and the batch is run once more
    set_apart()  a table that failed for good: its records are held back from this batch on
    now()        what the workers are told of a round: a `Work` too
    rows()       what the ledger is to say once a batch is committed

All it does is there already when it is done twice: a replay, or two drivers, end with the same tables.
The work is done by `known_tables` and `followed_sources`.

What the workers are told of a round is how records become rows of its tables, and the tasks that write them. It
travels by `KeptValue`: what is the same as in the round before is not sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final, TypeVar

from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.decode.expectations import lacking_column
from freshet.pipeline.decode.outcome_batches import outcome_schema
from freshet.pipeline.decode.outcomes import DATA_PREFIX, SeenSchema
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.batch_identity import BatchIdentity
from freshet.pipeline.query.driver.broken_rules import TableRules
from freshet.pipeline.query.driver.engine import Engine, Job
from freshet.pipeline.query.driver.query_run import Accepts, QueryRun
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.driver.table_rounds import BackgroundReport
from freshet.pipeline.query.driver.work import Work
from freshet.pipeline.query.task.batch_work import BatchWork, TableWork
from freshet.pipeline.query.wire.batch_pin import BatchPin
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.query.wire.packed_rows import PackRule
from freshet.pipeline.query.wire.task_result import TaskResult
from freshet.pipeline.sync.followed_sources import FollowedSources
from freshet.pipeline.sync.known_tables import KnownTables, Target
from freshet.pipeline.sync.ledger import APART, WHOLE, LedgerRow, Offsets, ledger_rows, lost_batches_text, read_ledger
from freshet.pipeline.sync.many_decoder import ManyDecoder
from freshet.pipeline.sync.routes import Route, route_of
from freshet.pipeline.sync.table_decoding import (
    HELD,
    LEFT,
    NOTHING,
    Held,
    ManyPlan,
    TableDecoding,
    nameless_plan,
    plan_table,
)
from freshet.storage import exceptions as storage
from freshet.storage.table import Table, TableHandle
from freshet.storage.table_engine import CommitCheck, CommitMessage

DAMAGE: Final = (storage.NotFoundError, storage.CorruptDataError)

_STEP: Final = 7
"""Bucket 0 of the tables goes to different tasks."""


class SyncTables:
    """The tables of one run, as `Targets` and as `Work`. `task_count` tasks write each batch."""

    has_ledger = True
    stage_count = 0
    is_shuffled = True
    reads_together = True

    def __init__(
        self,
        config: SyncPipelineConfig,
        ledger: Table,
        dead_letters: Table,
        task_count: int,
        *,
        only: str | None = None,
        commit_user: str | None = None,
    ) -> None:
        """With `only`, records of every other table are passed over (`resume`). With `commit_user`, the records are
        dead letters that are replayed, and commits have that user."""
        self._config = config
        self._known = KnownTables(config, ledger, only=only, commit_user=commit_user)
        self._sources = FollowedSources(self._known)
        self._is_beside = only is not None or commit_user is not None
        self._work = _RoundWork(self._known, dead_letters, task_count)
        self.task_count = task_count
        self._current: tuple[Target, ...] = ()
        """The tables of the round, without the ledger."""

    @property
    def numbered_tables(self) -> frozenset[int]:
        """`Work.numbered_tables`."""
        options = (target.commit.table.options for target in self._current)
        return frozenset(number for number, each in enumerate(options, 1) if each.has_postponed_buckets)

    @property
    def lead(self) -> TableCommit:
        """The ledger: the table of its batches."""
        return self._known.ledger

    def begin(self, micro_batch_id: int, check: CommitCheck, starts: Offsets) -> None:
        """A batch begins, whose records begin at these offsets; `check` is what the ledger says of it."""
        self._sources.without_table.clear()
        self._known.begin(check, micro_batch_id, starts)

    def take_only(self, row: LedgerRow) -> None:
        """One table alone of the ledger is written, and all others are left to the pipeline (`resume`)."""
        self._known.take_only(row)

    def take_all(self) -> None:
        """All tables of the ledger that are not set apart are written (`letter_replay`)."""
        self._known.take_all()

    def note_new(self) -> None:
        """Says in the ledger which source tables have new tables, of which it has nothing yet."""
        known = read_ledger(self.lead.table)
        for target in self._current:
            if target.name not in known:
                self._known.state.write(LedgerRow(target.name).with_sources(target.sources))

    def round(self, micro_batch_id: int, starts: Offsets, *, is_planned: bool = False) -> tuple[TableCommit, ...]:
        """The tables of the batch as they are now, the ledger first."""
        self._current = self._known.current(micro_batch_id, starts)
        return (self.lead, *(target.commit for target in self._current))

    def rules(self) -> tuple[TableRules, ...]:
        """`Targets.rules`."""
        return (TableRules("", {}), *(TableRules(target.name, target.route.expect) for target in self._current))

    def judged(self, number: int, check: CommitCheck) -> None:
        """Refuses a table that lacks batches which the ledger says it has: it was restored from a backup."""
        target = self._current[number - 1]
        row = self._known.state.rows.get(target.name)
        text = None if row is None else lost_batches_text(row, check.last, self._config)
        if text is not None:
            raise PipelineFailedError(text, pipeline=self._config.name, kind=ErrorKind.INVALID_REQUEST)

    def plan(self) -> ManyPlan:
        """What the decoders of this round know."""
        return self._work.plan(self._current, self._sources.without_table)

    def now(self) -> KeptValue[BatchWork]:
        """All that is sent to the workers for this round."""
        return self._work.work(self._current, self._sources.without_table)

    def followed(self) -> KeptValue[BatchWork] | None:
        """`Work.followed`: the job is planned for each batch."""
        return None

    def follow(self, seen: Sequence[SeenSchema], micro_batch_id: int, starts: Offsets) -> None:
        """Creates and alters tables so that the records fit. Raises where that must stop the query."""
        self._sources.follow(seen, micro_batch_id, starts)

    def forget_deletions(self) -> None:
        """What was followed is of some records of the batch: a source table with deletions alone among them may have
        other records."""
        self._sources.without_table.clear()

    def set_apart(self, number: int, error: Exception, micro_batch_id: int, starts: Offsets) -> bool:
        """Sets the table of a number of this round apart, where it is damaged or gone. What a task is refused for any
        other reason may be met by all tables, such as a library that is missing, and stops the query. So does any
        failure of a table that is brought up, or of a replay."""
        if not number or self._is_beside or not isinstance(error, DAMAGE):
            return False
        self._known.apart(self._current[number - 1].name, str(error), micro_batch_id, starts)
        return True

    def lead_messages(
        self, batch: BatchIdentity, result: TaskResult, written: Sequence[int], pin: BatchPin
    ) -> Sequence[CommitMessage]:
        """The files with what the ledger is to say once the batch is committed to the tables of these numbers."""
        number = batch.micro_batch_id
        digest = None if batch.digest is None else str(batch.digest)
        rows = [LedgerRow(WHOLE, batch=number, digest=digest)]
        for index in written:
            target = self._current[index - 1]
            table = target.commit.table
            row = LedgerRow(
                target.name,
                batch=number,
                digest=digest,
                schema_id=table.schema.id,
                created_ms=table.engine.created_ms(),
            ).with_sources(target.sources)
            rows.append(row)
        writer = self.lead.table.engine.task_writer(base_snapshot_id=pin.base_snapshot_id, name=self._config.name)
        try:
            writer.write(ledger_rows(rows))
            messages = writer.prepare_commit(number)
        finally:
            writer.close()
        self._known.state.noted(rows)
        return messages

    def committed(self, snapshot_ids: Sequence[int]) -> None:
        """The ledger has the batch, in these snapshots."""
        self._known.state.committed(snapshot_ids)

    def after_batch(self, engine: Engine, messages: Mapping[int, Sequence[CommitMessage]]) -> BackgroundReport | None:
        """The batch is over, which has these messages by the number of their table."""
        background = self._known.background
        if background is None:
            return None
        for number, target in enumerate(self._current, 1):
            target.commit.note_written(messages.get(number, ()))
        background.go_on(engine)
        return background.report()

    def left_out(self, notes: Mapping[str, int]) -> tuple[str, ...]:
        """`Targets.left_out`: tables have the columns of their sources."""
        return ()

    def take_events(self, notes: Mapping[str, int]) -> tuple[str, ...]:
        """What was done about tables, once."""
        return self._known.take_events()

    def check_last(self) -> None:
        """Raises `LostCommitError` where another program has replaced the last commit to the ledger."""
        self.lead.check_last()

    def close(self) -> None:
        """Ends what runs in the background."""
        if self._known.background is not None:
            self._known.background.close()
        for target in self._known.targets.values():
            target.commit.close()


class _RoundWork:
    """The plans and tasks of one run. `task_count` tasks write each batch."""

    def __init__(self, known: KnownTables, dead_letters: Table, task_count: int) -> None:
        self._known = known
        self._config = known.config
        self._dead_letters = dead_letters.handle
        self._task_count = task_count
        self._nameless = nameless_plan(known.config)
        self._kept: KeptValue[BatchWork] | None = None
        self._unjudged: set[tuple[str, str]] = set()

    def plan(self, targets: Sequence[Target], without_table: Set[SourceTable]) -> ManyPlan:
        """What the decoders know of a round of these tables, and of source tables that have none."""
        tables: dict[SourceTable, TableDecoding | Held] = {}
        rules = [PackRule((), False, self._task_count)]
        for number, target in enumerate(targets, 1):
            decoding = self._decoding(target, number)
            rules.append(self._rule(target, number))
            tables |= dict.fromkeys(target.sources, decoding)
        for row in self._known.state.rows.values():
            if row.state == APART and row.table_name not in self._known.targets:
                tables |= dict.fromkeys(row.source_tables, Held(HELD))
        tables |= dict.fromkeys(self._known.left - tables.keys(), Held(LEFT))
        tables |= dict.fromkeys(without_table, Held(NOTHING, is_nothing=True))
        sync = self._config.sync
        is_followed = sync.schema_evolution != "ignore"
        guesses = sync.of_schema == "infer"
        return ManyPlan(
            sync,
            self._nameless,
            tables,
            tuple(rules),
            is_followed,
            guesses,
            only=self._known.only,
            is_replay=self._known.is_replay,
        )

    def work(self, targets: Sequence[Target], without_table: Set[SourceTable]) -> KeptValue[BatchWork]:
        """All that is sent to the workers for a round of these tables, the ledger first."""
        ledger = self._known.ledger.table
        tables = {0: self._table(ledger.handle, ledger.schema.column_names, 1, 0, self._nameless)}
        for number, target in enumerate(targets, 1):
            plan = self._decoding(target, number).plan
            table = target.commit.table
            is_routed = self._has_buckets(target)
            bucket_count = table.options.bucket if is_routed else None
            tables[number] = self._table(table.handle, table.schema.column_names, bucket_count, number, plan)
        work = BatchWork({0: ManyDecoder(self.plan(targets, without_table))}, tables)
        self._kept = KeptValue(work) if self._kept is None else self._kept.following(work)
        return self._kept

    def _decoding(self, target: Target, number: int) -> TableDecoding:
        spellings = tuple(sorted(target.spellings.items()))
        identity = (target.commit.table.schema.id, number, frozenset(target.passed_over), spellings)
        if target.planned is None or target.planned[0] != identity:
            schema = target.commit.table.schema
            passed_over = frozenset(target.passed_over)
            planned = plan_table(self._config, target.route, schema, number, passed_over, dict(target.spellings))
            self._say_unjudged(target)
            target.planned = (identity, planned)
        return target.planned[1]

    def _say_unjudged(self, target: Target) -> None:
        """Says once which rules of `expect` wait for a column."""
        for rule, expected in target.route.expect.items():
            column = lacking_column(target.commit.table.schema.by_name, expected.sql)
            if column is not None and (target.name, rule) not in self._unjudged:
                self._unjudged.add((target.name, rule))
                text = f"table {target.name} has no column {column}: the rule {rule} of expect waits until it has one"
                self._known.events.append(text)

    def _rule(self, target: Target, number: int) -> PackRule:
        schema = target.commit.table.schema
        indexes = {name: index for index, name in enumerate(schema.column_names)}
        columns = tuple(f"{DATA_PREFIX}{indexes[name]}" for name in schema.partition_keys)
        return PackRule(columns, self._has_buckets(target), self._task_count, number * _STEP)

    @staticmethod
    def _has_buckets(target: Target) -> bool:
        """Whether the decoder's bucket is the row's. Else one task gets all rows of a partition, and finds it."""
        table = target.commit.table
        return table.options.bucket > 0 and not table.engine.is_rescaled()

    def _table(
        self, handle: TableHandle, columns: Sequence[str], bucket_count: int | None, number: int, plan: DecodePlan
    ) -> TableWork:
        return TableWork(
            table=handle,
            pipeline=self._config.name,
            columns=tuple(columns),
            bucket_count=bucket_count,
            schema=outcome_schema(plan),
            dead_letters=self._dead_letters,
            number=number,
        )


AnyJob = TypeVar("AnyJob", bound=Job)


def task_count(engine: Engine) -> int:
    """Tasks that write a batch of many tables."""
    return max(1, min(engine.tasks_max, engine.parallelism))


def sync_run(
    config: SyncPipelineConfig, ledger: Table, dead_letters: Table, engine: Engine, job_of: Callable[[Work], AnyJob]
) -> tuple[QueryRun, AnyJob]:
    """What writes the batches of its source, and their job, which `job_of` makes."""
    tables = SyncTables(config, ledger, dead_letters, task_count(engine))
    job = job_of(tables)
    return QueryRun(tables, job, config.name, Accepts(config.max_dead_letters), dead_letters=dead_letters), job


def last_batch_of(config: SyncPipelineConfig, source: SourceTable) -> int | None:
    """The last batch of a pipeline that the target of a source table has; None where there is none."""
    route, catalog = route_of(config.sync, source), target_catalog(config)
    if not isinstance(route, Route) or not catalog.has_table(route.target):
        return None
    last = catalog.table(route.target).engine.committer(config.name).last_commit()
    return None if last is None else last.identifier
