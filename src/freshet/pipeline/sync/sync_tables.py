"""The tables of a pipeline with `sync`, on the driver: which there are, what they become, and the ledger of batches.

    round()    the tables of a batch, the ledger first; what other programs changed of them is followed
    follow()   what decoders have met: tables are created and altered, and the batch is run once more
    apart()    a table that failed for good: its records are held back from this batch on
    rows()     what the ledger is to say once a batch is committed

All it does is there already when it is done twice: a replay, or two drivers, end with the same tables.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import orjson

from freshet.pipeline.batch.batch_pin import BatchPin
from freshet.pipeline.batch.bucket_task import BucketTask
from freshet.pipeline.batch.kept_value import KeptValue
from freshet.pipeline.batch.packed_rows import PackRule
from freshet.pipeline.batch.table_commit import TableCommit
from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.decode.described_table import DescribedTable
from freshet.pipeline.decode.outcome_batches import outcome_schema
from freshet.pipeline.decode.outcomes import DATA_PREFIX, SeenSchema
from freshet.pipeline.decode.schema_changes import FoundRenames
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import InvalidRequestError, PipelineFailedError
from freshet.pipeline.identity.batch_identity import BatchIdentity
from freshet.pipeline.sync.ledger import (
    ACTIVE,
    APART,
    RESUMED,
    WHOLE,
    LedgerRow,
    Offsets,
    has_renames,
    ledger_rows,
)
from freshet.pipeline.sync.ledger_state import LedgerState
from freshet.pipeline.sync.many_decoder import HELD, LEFT, NOTHING, Held, ManyPlan
from freshet.pipeline.sync.many_task import ManyTask, TableTask
from freshet.pipeline.sync.renamed_columns import RenamedColumns
from freshet.pipeline.sync.renames import with_newest_names
from freshet.pipeline.sync.routes import Route, refuse_own_table, route_of
from freshet.pipeline.sync.table_changes import changes_of, new_table
from freshet.pipeline.sync.table_decoding import TableDecoding, nameless_plan, plan_table
from freshet.storage import exceptions as storage
from freshet.storage.table import AddColumn, ChangeType, SchemaChange, Table, TableHandle
from freshet.storage.table_engine import CommitCheck, CommitMessage

_LOG: Final = logging.getLogger(__name__)
_STEP: Final = 7
"""Bucket 0 of the tables goes to different tasks."""

PERMANENT: Final = (storage.NotFoundError, storage.CorruptDataError, storage.InvalidRequestError)
"""Errors of a table that another attempt would meet again."""
DAMAGE: Final = (storage.NotFoundError, storage.CorruptDataError)


@dataclass(slots=True)
class _Target:
    """A table that rows go to."""

    name: str
    route: Route
    commit: TableCommit
    sources: set[SourceTable]
    passed_over: set[str]
    planned: tuple[object, TableDecoding] | None = None


class SyncTables:
    """The tables of one run. `task_count` tasks write each batch."""

    def __init__(
        self,
        config: SyncPipelineConfig,
        ledger: Table,
        dead_letters: Table,
        task_count: int,
        *,
        only: str | None = None,
    ) -> None:
        """With `only`, records of every other table are passed over (`resume`)."""
        self._config = config
        self._catalog = target_catalog(config)
        self._task_count = task_count
        self._dead_letters = dead_letters.handle
        self._only = only
        self._nameless = nameless_plan(config)
        self.ledger = TableCommit(ledger, config.name)
        self._state = LedgerState(self.ledger, config.name)
        self._renamed = RenamedColumns(self._state, are_followed=config.sync.schema_evolution == "evolve")
        self._targets: dict[str, _Target] = {}
        self._left: set[SourceTable] = set()
        """Source tables of other tables, where one alone is written."""
        self._nothing: set[SourceTable] = set()
        """Source tables of which a batch has deletions alone, and which have no table yet."""
        self._current: tuple[_Target, ...] = ()
        self._kept_tasks: KeptValue[Mapping[int, TableTask]] = KeptValue({})
        self._kept_plan: KeptValue[ManyPlan] | None = None
        self.events: list[str] = []
        """What was done about tables since they were taken last."""

    # --- a batch ------------------------------------------------------------------------------------------------------

    def begin(self, micro_batch_id: int, check: CommitCheck, starts: Offsets) -> None:
        """A batch begins, whose records begin at these offsets; `check` is what the ledger says of it."""
        self._nothing.clear()
        if not self._state.is_read(check):
            self._state.read()
            self._refuse_other_ledger(check)
            self._take_state(micro_batch_id, starts)

    def take_only(self, row: LedgerRow) -> None:
        """Of what the ledger says, one table alone is written, and all others are left to the pipeline (`resume`)."""
        self._state.read()
        own = self._state.rows[row.table_name] = replace(row, batch=None, state=ACTIVE)
        others = [each for each in self._state.rows.values() if each.table_name not in (WHOLE, row.table_name)]
        self._left = {source for each in others for source in each.source_tables}
        if self._catalog.has_table(row.table_name):
            self._take_up(own, 0, {})

    def round(self, micro_batch_id: int, starts: Offsets) -> tuple[TableCommit, ...]:
        """The tables of the batch as they are now, the ledger first."""
        for target in list(self._targets.values()):
            try:
                target.commit.follow_schema(is_planned=False)
                self._refuse_recreated(target)
            except PERMANENT as error:
                self.apart(target.name, str(error), micro_batch_id, starts)
        self._current = tuple(self._targets.values())
        return (self.ledger, *(target.commit for target in self._current))

    def judged(self, number: int, check: CommitCheck) -> None:
        """Refuses a table that lacks batches which the ledger says it has: it was restored from a backup."""
        target = self._current[number - 1]
        row = self._state.rows.get(target.name)
        if row is None or row.batch is None:
            return
        has = -1 if check.last is None else check.last.identifier
        if has < row.batch:
            raise PipelineFailedError(
                f"table {target.name} does not hold batch {row.batch} of pipeline {self._config.name!r}, which the "
                f"ledger {self.ledger.table.name} says it was written in: it was restored from a backup or rolled "
                f"back. Nothing was written. Restore it as it was, or read it anew: freshet resync FILE --table "
                f"{target.name}",
                pipeline=self._config.name,
                kind=ErrorKind.INVALID_REQUEST,
            )

    def plan(self) -> ManyPlan:
        """What the decoders of this round know."""
        tables: dict[SourceTable, TableDecoding | Held] = {}
        rules = [PackRule((), False, self._task_count)]
        for number, target in enumerate(self._current, 1):
            decoding = self._decoding(target, number)
            rules.append(self._rule(target, number))
            tables |= dict.fromkeys(target.sources, decoding)
        for row in self._state.rows.values():
            if row.state == APART and row.table_name not in self._targets:
                tables |= dict.fromkeys(row.source_tables, Held(HELD))
        tables |= dict.fromkeys(self._left - tables.keys(), Held(LEFT))
        tables |= dict.fromkeys(self._nothing, Held(NOTHING, is_nothing=True))
        sync = self._config.sync
        is_followed = sync.schema_evolution != "ignore"
        guesses = sync.of_schema == "infer"
        renames = self._renamed.by_target()
        return ManyPlan(sync, self._nameless, tables, tuple(rules), is_followed, guesses, self._only, renames)

    def kept_plan(self) -> KeptValue[ManyPlan]:
        """The same as it travels."""
        plan = self.plan()
        self._kept_plan = KeptValue(plan) if self._kept_plan is None else self._kept_plan.following(plan)
        return self._kept_plan

    def task(self, pins: Mapping[int, BatchPin]) -> ManyTask:
        """The tasks of this round."""
        own = self._bucket_task(self.ledger.table.handle, self.ledger.table.schema.column_names, 1, 0)
        tasks = {0: TableTask(own, outcome_schema(self._nameless))}
        for number, target in enumerate(self._current, 1):
            plan = self._decoding(target, number).plan
            table = target.commit.table
            is_routed = self._has_buckets(target)
            task = self._bucket_task(
                table.handle, table.schema.column_names, table.options.bucket if is_routed else None, number
            )
            tasks[number] = TableTask(task, outcome_schema(plan))
        self._kept_tasks = self._kept_tasks.following(tasks)
        return ManyTask(self._kept_tasks, dict(pins))

    # --- what changes -------------------------------------------------------------------------------------------------

    def follow(self, seen: Sequence[SeenSchema], micro_batch_id: int, starts: Offsets) -> None:
        """Creates and alters tables so that the records fit. Raises where that must stop the query.

        What records say of a table whose columns were renamed is asked for once more: by the names that it has now.
        """
        renamed = self._take_renames(seen, micro_batch_id, starts)
        found: dict[SourceTable, DescribedTable] = {}
        for each in seen:
            if not each.described:
                continue
            described = DescribedTable.of(each.described)
            known = found.get(each.table)
            found[each.table] = described if known is None else known.joined(described)
        for source, described in sorted(found.items()):
            route = route_of(self._config.sync, source)
            assert isinstance(route, Route), "a decoder describes what a rule takes"
            if route.target in renamed:
                continue
            try:
                self._follow_one(source, route, described, micro_batch_id)
            except PERMANENT as error:
                self.apart(route.target, str(error), micro_batch_id, starts, source=source)
            except InvalidRequestError as error:
                raise self._failed(str(error), micro_batch_id) from error

    def forget_deletions(self) -> None:
        """What was followed is of some records of the batch: a source table with deletions alone among them may have
        other records."""
        self._nothing.clear()

    def apart(
        self, name: str, cause: str, micro_batch_id: int, starts: Offsets, *, source: SourceTable | None = None
    ) -> None:
        """Sets a table apart: a fact of the ledger, before any table of the batch is committed."""
        if self._only is not None:
            raise self._failed(f"table {name}: {cause}", micro_batch_id)
        target = self._targets.pop(name, None)
        known = self._state.rows.get(name, LedgerRow(name))
        sources = {*known.source_tables, *(target.sources if target else ()), *([source] if source else [])}
        row = replace(
            known,
            state=APART,
            since_batch=micro_batch_id,
            since_offsets=orjson.dumps(starts).decode(),
            cause=cause,
        ).with_sources(sources)
        self._state.write(row)
        text = (
            f"table {name} is set apart from batch {micro_batch_id} on, the others go on: {cause}. Its records are "
            f"held back; once that is mended, stop the pipeline and bring it up: freshet resume FILE --table {name} "
            f"(resync where the table is gone)"
        )
        _LOG.warning("%s: %s", self._config.name, text)
        self.events.append(text)
        if target is not None:
            target.commit.close()

    def set_apart(self, number: int, error: Exception, micro_batch_id: int, starts: Offsets) -> bool:
        """Sets the table of a number of this round apart, where it is damaged or gone. What a task is refused for any
        other reason may be met by all tables, such as a library that is missing, and stops the query."""
        if not number or not isinstance(error, DAMAGE):
            return False
        self.apart(self._current[number - 1].name, str(error), micro_batch_id, starts)
        return True

    def rows(self, batch: BatchIdentity, written: Sequence[int], pin: BatchPin) -> Sequence[CommitMessage]:
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
                renames=self._state.renames_text(target.name),
            ).with_sources(target.sources)
            rows.append(row)
        writer = self.ledger.table.engine.task_writer(base_snapshot_id=pin.base_snapshot_id, name=self._config.name)
        try:
            writer.write(ledger_rows(rows, with_renames=has_renames(self.ledger.table)))
            messages = writer.prepare_commit(number)
        finally:
            writer.close()
        self._state.noted(rows)
        return messages

    def committed(self, snapshot_ids: Sequence[int]) -> None:
        """The ledger has the batch, in these snapshots."""
        self._state.committed(snapshot_ids)

    def take_events(self) -> tuple[str, ...]:
        """What was done about tables, once."""
        found, self.events = tuple(self.events), []
        return found

    def close(self) -> None:
        """Ends what runs in the background."""
        for target in self._targets.values():
            target.commit.close()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _take_state(self, micro_batch_id: int, starts: Offsets) -> None:
        """Takes up what the ledger says."""
        for name, row in list(self._state.rows.items()):
            if name == WHOLE:
                continue
            if row.state == RESUMED and row.since_batch is not None and row.since_batch < micro_batch_id:
                # Batches between what `resume` has read and this one have held its records back.
                late = replace(row, state=APART, cause="resume ended before batches that held its records back")
                self._state.write(late)
                self.events.append(f"table {name} is set apart again: {late.cause}; it needs another resume")
            if self._state.state_of(name) == APART:
                self._targets.pop(name, None)
            else:
                if row.state == RESUMED:
                    row = replace(row, state=ACTIVE, since_batch=None, since_offsets=None)
                    self._state.write(row)
                    self.events.append(f"table {name} is written again from batch {micro_batch_id} on")
                self._take_up(row, micro_batch_id, starts)

    def _take_up(self, row: LedgerRow, micro_batch_id: int, starts: Offsets) -> None:
        routes = [route_of(self._config.sync, source) for source in row.source_tables]
        route = next((each for each in routes if isinstance(each, Route) and each.target == row.table_name), None)
        if route is None:
            return  # the rules send its sources elsewhere now
        kept = {
            source
            for source, each in zip(row.source_tables, routes, strict=True)
            if isinstance(each, Route) and each.target == row.table_name
        }
        try:
            target = self._targets.get(row.table_name)
            if target is None:
                table = self._catalog.table(row.table_name)
                target = _Target(row.table_name, route, TableCommit(table, self._config.name), set(), set())
            target.sources |= kept
            self.events += self._renamed.apply(target.name, target.commit)
        except PERMANENT as error:
            self.apart(row.table_name, str(error), micro_batch_id, starts)
            return
        self._targets[row.table_name] = target

    def _take_renames(self, seen: Sequence[SeenSchema], micro_batch_id: int, starts: Offsets) -> set[str]:
        """Takes the renames that are new; gives the names of their tables."""
        found: dict[str, tuple[SourceTable, Route, list[FoundRenames]]] = {}
        for each in seen:
            route = route_of(self._config.sync, each.table)
            if each.renamed and isinstance(route, Route) and self._state.state_of(route.target) != APART:
                found.setdefault(route.target, (each.table, route, []))[2].extend(map(FoundRenames.of, each.renamed))
        for name, (source, route, renamed) in sorted(found.items()):
            target = self._targets.get(name)
            try:
                is_there = target is not None or self._has_table(source, route)
                schema = self._catalog.table(name).schema if is_there else None
                self.events += self._renamed.take(route, renamed, schema)
                if target is not None:
                    self.events += self._renamed.apply(name, target.commit)
            except PERMANENT as error:
                self.apart(name, str(error), micro_batch_id, starts)
            except InvalidRequestError as error:
                raise self._failed(str(error), micro_batch_id) from error
        return set(found)

    def _follow_one(self, source: SourceTable, route: Route, described: DescribedTable, micro_batch_id: int) -> None:
        target = self._targets.get(route.target)
        row = self._state.rows.get(route.target)
        if target is None and row is not None and row.state == APART:
            self._hold_back_too(source, row)
            return
        if target is None:
            target = self._open(source, route, described)
            if target is None:
                return
        elif source not in target.sources:
            self._refuse_second(source, target, route)
            target.sources.add(source)
            self.events.append(f"{source} goes into table {target.name} too")
        if described.is_empty:
            return
        while not self._is_followed(target, source, route, described):
            pass

    def _hold_back_too(self, source: SourceTable, row: LedgerRow) -> None:
        """Another source of a table that is set apart: `resume` reads its records with the others'."""
        row = row.with_sources([*row.source_tables, source])
        self._state.write(row)
        self.events.append(f"{source} goes into table {row.table_name}, which is set apart: it is held back too")

    def _is_followed(self, target: _Target, source: SourceTable, route: Route, described: DescribedTable) -> bool:
        """False where another driver has changed the table meanwhile: what is left to change is found again."""
        target.commit.follow_schema(is_planned=False)
        table = target.commit.table
        changes, no_names = changes_of(table.schema, route, described)
        for name in no_names:
            if name not in target.passed_over:
                self.events.append(f"field {name!r} of {source} cannot be a column of {target.name}, and is left out")
        target.passed_over |= set(no_names)
        if not changes:
            return True
        if self._config.sync.schema_evolution == "freeze":
            raise InvalidRequestError(
                f"the source table {source} has changed ({described.where}): {_text(changes)}, and schema_evolution is "
                f"freeze. Nothing was committed. Alter table {target.name}, or set schema_evolution: lenient"
            )
        try:
            table.alter(*changes)
        except storage.InvalidRequestError:
            if table.engine.latest_schema_id() == table.schema.id:
                raise
            return False
        target.commit.follow_schema(is_planned=False)
        self.events.append(f"table {target.name} follows {source}: {_text(changes)}")
        return True

    def _open(self, source: SourceTable, route: Route, described: DescribedTable) -> _Target | None:
        """The table of a source table that is met for the first time."""
        refuse_own_table(self._config, source, route)
        row = self._state.rows.get(route.target)
        if row is not None and not route.is_merged and set(row.source_tables) - {source}:
            others = ", ".join(map(str, row.source_tables))
            raise InvalidRequestError(
                f"rule {route.rule_index} of sync.tables sends {source} to {route.target}, which the ledger says has "
                f"the rows of {others}. If it goes on as the same table, set merge: true in the rule; to read it anew, "
                f"run freshet resync FILE --table {route.target}; else send it to another table"
            )
        if not self._has_table(source, route):
            if described.is_empty:
                self._nothing.add(source)
                return None
            if not described.is_typed and self._config.sync.of_schema != "infer":
                raise InvalidRequestError(
                    f"the records of {source} bring no schema ({described.where}): set schema: infer under sync "
                    f"(whole numbers become BIGINT, true and false BOOLEAN, all else STRING), or create the table "
                    f"{route.target} yourself"
                )
            new = new_table(with_newest_names(route, self._renamed.of(route.target), described), described)
            try:
                self._catalog.create_table(
                    route.target,
                    schema=new.columns,
                    primary_keys=new.primary_keys,
                    partition_keys=new.partition_keys,
                    options=new.options,
                    if_not_exists=True,
                )
            except storage.InvalidRequestError as error:
                raise InvalidRequestError(
                    f"table {route.target} for {source} cannot be created as rule {route.rule_index} of sync.tables "
                    f"says: {error}"
                ) from error
            self.events.append(f"table {route.target} is created for {source}")
        table = self._catalog.table(route.target)
        if table.engine.moves_rows:
            raise InvalidRequestError(
                f"table {route.target}: its key does not have all partition columns, so its rows move between "
                "partitions, which sync does not write; give it a pipeline file of its own"
            )
        target = _Target(route.target, route, TableCommit(table, self._config.name), {source}, set())
        self.events += self._renamed.apply(target.name, target.commit)
        self._targets[route.target] = target
        self._nothing.discard(source)
        return target

    def _has_table(self, source: SourceTable, route: Route) -> bool:
        try:
            return self._catalog.has_table(route.target)
        except storage.InvalidRequestError as error:
            raise InvalidRequestError(
                f"rule {route.rule_index} of sync.tables sends {source} to {route.target!r}: {error}. Exclude it, or "
                "give it a rule of its own"
            ) from error

    def _refuse_second(self, source: SourceTable, target: _Target, route: Route) -> None:
        if not (target.route.is_merged and route.is_merged):
            known = ", ".join(str(each) for each in sorted(target.sources))
            raise InvalidRequestError(
                f"{known} and {source} both go to table {target.name}: rows of one would overwrite rows of the other. "
                "If they are shards of one table, set merge: true in their rule; else send them to different tables"
            )

    def _refuse_recreated(self, target: _Target) -> None:
        row = self._state.rows.get(target.name)
        created_ms = target.commit.table.engine.created_ms()
        if row is not None and row.created_ms is not None and row.created_ms != created_ms:
            raise storage.InvalidRequestError(
                f"table {target.name} was dropped and created again: the rows of batches up to {row.batch} are missing"
            )

    def _refuse_other_ledger(self, check: CommitCheck) -> None:
        """What the ledger has as the last batch must be the last commit of this pipeline to it."""
        whole = self._state.rows.get(WHOLE, LedgerRow(WHOLE))
        own = None if check.last is None else check.last.identifier
        if whole.batch != own:
            has = "none" if own is None else f"its batch {own}"
            raise InvalidRequestError(
                f"table {self.ledger.table.name} is the ledger of another pipeline: its last batch is {whole.batch}, "
                f"and {has} is of pipeline {self._config.name!r}. Set sync.ledger to a table of its own; nothing was "
                "written"
            )

    def _failed(self, text: str, micro_batch_id: int) -> PipelineFailedError:
        kind = ErrorKind.INVALID_REQUEST
        return PipelineFailedError(text, pipeline=self._config.name, micro_batch_id=micro_batch_id, kind=kind)

    def _decoding(self, target: _Target, number: int) -> TableDecoding:
        renames = self._renamed.of(target.name)
        identity = (target.commit.table.schema.id, number, frozenset(target.passed_over), renames.to_text())
        if target.planned is None or target.planned[0] != identity:
            schema = target.commit.table.schema
            planned = plan_table(self._config, target.route, schema, number, frozenset(target.passed_over), renames)
            target.planned = (identity, planned)
        return target.planned[1]

    def _has_buckets(self, target: _Target) -> bool:
        """Whether the decoder's bucket is the row's. Else one task gets all rows of a partition, and finds it."""
        table = target.commit.table
        return table.options.bucket > 0 and not table.engine.is_rescaled()

    def _rule(self, target: _Target, number: int) -> PackRule:
        schema = target.commit.table.schema
        indexes = {name: index for index, name in enumerate(schema.column_names)}
        columns = tuple(f"{DATA_PREFIX}{indexes[name]}" for name in schema.partition_keys)
        return PackRule(columns, self._has_buckets(target), self._task_count, number * _STEP)

    def _bucket_task(
        self,
        handle: TableHandle,
        columns: Sequence[str],
        bucket_count: int | None,
        number: int,
    ) -> BucketTask:
        return BucketTask(
            table=handle,
            pipeline=self._config.name,
            columns=tuple(columns),
            bucket_count=bucket_count,
            dead_letters=self._dead_letters,
            table_index=number,
        )


def _text(changes: Sequence[SchemaChange]) -> str:
    added = [f"{each.name} {each.type}" for each in changes if isinstance(each, AddColumn)]
    widened = [f"{each.name} {each.type}" for each in changes if isinstance(each, ChangeType)]
    texts = [f"new {', '.join(added)}"] if added else []
    return "; ".join([*texts, *([f"wider {', '.join(widened)}"] if widened else [])])
