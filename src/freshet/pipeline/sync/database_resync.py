"""`freshet resync` of a pipeline that reads a database: its tables are emptied, and copied again.

    batch N      the last one. Where it was planned and is not done, it never will be: what it wrote goes or is nothing.
                 If a table has a later one (a checkpoint that was restored), N is that: those in between are empty
    batch N + 1  takes all rows of the tables away, and ends where the copy begins: for all tables at the first position
                 of a new slot, for one of them where batch N did
    batch N + 2  of the next run: the copy, then the stream

So a table is the source's again whatever it had: rows that were deleted meanwhile are gone. Schema, tags, branches and
earlier snapshots stay. Died between any two steps: run it again; a run of the pipeline before that is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace

from freshet._frozen import Frozen
from freshet.pipeline.checks.postgres_reach import sources_of
from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.model import PipelineConfig, PostgresConfig, revealed
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.exceptions import InvalidRequestError, PipelineFailedError
from freshet.pipeline.identity.batch_identity import BatchIdentity
from freshet.pipeline.identity.checkpoint_folder import WritableCheckpoint
from freshet.pipeline.local.postgres_offset import (
    PostgresOffset,
    ended_name,
    known_quiet,
    published_before,
    published_name,
    quiet_name,
    write_published,
)
from freshet.pipeline.local.postgres_tables import CopiedTables
from freshet.pipeline.local.store_checkpoint import pipeline_checkpoint
from freshet.pipeline.local.stream_checkpoint import StreamCheckpoint
from freshet.pipeline.postgres.copy_state import TableName
from freshet.pipeline.postgres.publications import taken_tables
from freshet.pipeline.postgres.server import ServerPlace
from freshet.pipeline.postgres.slots import (
    Identity,
    create_slot,
    drop_slot,
    identify,
    refuse_active,
    refuse_identity,
    refuse_slot,
    slot_named,
)
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.wire.stopwatch import Stopwatch
from freshet.pipeline.sync.database_targets import targets_of
from freshet.pipeline.sync.ledger import WHOLE, LedgerRow, ledger_rows, read_ledger
from freshet.pipeline.sync.resume import goes_to


class _Begun(Frozen):
    """Where a source is, and the tables of it that are copied; `refusal` says why its slot cannot go on. `is_whole`:
    all its tables are copied, from a new slot."""

    index: int
    source: PostgresConfig
    place: ServerPlace
    identity: Identity
    begun: PostgresOffset
    last: PostgresOffset
    copied: tuple[TableName, ...]
    refusal: str | None
    is_whole: bool


class Resync(Frozen):
    """What a resync will do; `tables` are those that are emptied."""

    config: PipelineConfig
    tables: tuple[str, ...]
    gone: tuple[str, ...]
    """Tables of the ledger that are not in the lake any more: they are created again."""
    sources: tuple[_Begun, ...]

    @property
    def new_slots(self) -> tuple[str, ...]:
        """The slots that are made anew."""
        return tuple(each.source.slot for each in self.sources if each.is_whole)

    def run(self) -> int:
        """Does it; gives the batch that has taken the rows away."""
        config, folder = self.config, pipeline_checkpoint(self.config)
        offsets = [self._offset(each, folder).text for each in self.sources]
        with closing(_log_of(config, folder)) as log:
            if log.is_planned:
                log.commit()
            for _ in range(log.next_number, self._newest_number() + 1):
                log.plan([each.last.text for each in self.sources], time.time_ns() // 1_000_000)
                log.commit()
            log.plan(offsets, time.time_ns() // 1_000_000)
            log.settle()
            number = log.next_number
            identity = BatchIdentity(number, log.query_id, None)
            for name in self.tables:
                _empty(config, name, identity)
            if isinstance(config, SyncPipelineConfig):
                _note(config, identity, self.tables, self.gone)
            log.commit()
        return number

    def _newest_number(self) -> int:
        """The last batch that a table has, or the ledger; -1 where none has any."""
        return max((_last_number(self.config, name) for name in _written(self.config, self.tables)), default=-1)

    def _offset(self, each: _Begun, folder: WritableCheckpoint) -> PostgresOffset:
        """Where the copy of a source begins."""
        slot, index = each.source.slot, each.index
        tables = CopiedTables(each.place, each.source, folder, index, targets=targets_of(self.config))
        if not each.is_whole:
            copy = tables.begin_again(each.begun.copy, each.copied)
            now = {name: tables.published[name] for name in each.copied}
            write_published(folder, index, {**published_before(folder, index), **now})
            return replace(each.begun, changes=each.last.changes, copy=copy)
        for name in (quiet_name(index), published_name(index), ended_name(index)):
            folder.delete(name)
        drop_slot(each.place, slot)
        folder.replace(f"postgres-{index}-slot", slot)
        lsn = create_slot(each.place, slot, is_failover=each.source.failover)
        systemid, timeline = each.identity.systemid, each.identity.timeline
        return PostgresOffset(slot, systemid, timeline, lsn, each.last.changes, tables.begin())


def planned_resync(config: PipelineConfig, table: str | None) -> Resync:
    """What a resync of one table, or of all, will do: writes nothing. Raises `InvalidRequestError` where it cannot be,
    `PipelineFailedError` where the server cannot be asked."""
    sources = sources_of(config)
    if len(sources) < len(config.sources):
        raise InvalidRequestError(
            f"{config.name!r} has other sources besides databases: what those brought would not come again. Start over "
            "under another name, with another checkpoint"
        )
    folder = pipeline_checkpoint(config)
    with closing(_log_of(config, folder)) as log:
        number, is_planned = log.next_number, log.is_planned
        done = log.offsets(number - 1) if number else None
        last = (log.offsets(number) if is_planned else None) or done
    if last is None:
        raise InvalidRequestError(f"{config.name!r} has not read anything yet: start it, and it copies its tables")
    rows = _rows(config)
    if table is not None and table not in rows:
        rows |= _routed(config, table)
    if (
        table is not None
        and is_planned
        and any(_last_number(config, name) >= number for name in _written(config, rows))
    ):
        raise InvalidRequestError(
            f"batch {number} of {config.name!r} is not done, and some tables have it: start the pipeline once, then "
            "copy the table again. Where it cannot start, freshet resync FILE without --table copies all its tables"
        )
    if table is not None and table not in rows:
        raise InvalidRequestError(f"{config.name!r} writes no table {table}; its tables are: {', '.join(rows)}")
    if not isinstance(config, SyncPipelineConfig):
        table = None  # it is the one that there is
    chosen = list(rows) if table is None else [table]
    wanted = None if table is None else {(each.schema, each.table) for each in rows[table].source_tables}
    found = []
    for key_path, source in sources:
        index = int(key_path[1])
        begun = (done and done[index]) or folder.read("sources", str(index), "0")
        assert begun is not None
        found.append(_looked_at(folder, index, source, begun, last[index] or begun, wanted))
    catalog = target_catalog(config)
    gone = tuple(name for name in chosen if isinstance(config, SyncPipelineConfig) and not catalog.has_table(name))
    return Resync(config, tuple(name for name in chosen if name not in gone), gone, tuple(found))


def _looked_at(
    folder: WritableCheckpoint,
    index: int,
    source: PostgresConfig,
    begun_text: str,
    last_text: str,
    wanted: set[TableName] | None,
) -> _Begun:
    place, begun = ServerPlace.of(source), PostgresOffset.of(begun_text)
    if source.snapshot == "never":
        raise InvalidRequestError("snapshot: never copies nothing, so nothing can be copied again: write initial")
    with place.session() as session:
        slot = slot_named(session, source.slot)
        refuse_active(slot)
        taken = taken_tables(session, source)
        copied = tuple(name for name in taken if wanted is None or name in wanted)
    with place.session(replication=True) as connection:
        identity = identify(connection)
    refusal: str | None = None
    try:
        refuse_identity(identity, begun.systemid, begun.timeline, place, begun.lsn)
        refuse_slot(slot, source.slot, identity, begun.lsn, known_quiet(folder, index))
    except PipelineFailedError as error:
        refusal = str(error)
        if slot is not None and not slot.is_of(identity.database):
            raise
    if wanted is not None and refusal is not None:
        raise InvalidRequestError(f"{refusal}: all tables, so without --table")
    if not copied:
        raise InvalidRequestError(f"publication {source.publication} has none of the tables: nothing can be copied")
    return _Begun(index, source, place, identity, begun, PostgresOffset.of(last_text), copied, refusal, wanted is None)


def _log_of(config: PipelineConfig, folder: WritableCheckpoint) -> StreamCheckpoint:
    return StreamCheckpoint(folder, len(config.sources), revealed(config.spark))


def _rows(config: PipelineConfig) -> dict[str, LedgerRow]:
    """The tables that a pipeline writes, with what its ledger says."""
    if not isinstance(config, SyncPipelineConfig):
        return {config.table.name: LedgerRow(config.table.name)}
    catalog = target_catalog(config)
    known = read_ledger(catalog.table(config.ledger_name)) if catalog.has_table(config.ledger_name) else {}
    return {
        name: row
        for name, row in sorted(known.items())
        if name != WHOLE and any(goes_to(config, source, name) for source in row.source_tables)
    }


def _routed(config: PipelineConfig, name: str) -> dict[str, LedgerRow]:
    """A table that no batch has written, where the rules send tables of the sources to it."""
    found: list[SourceTable] = []
    if not isinstance(config, SyncPipelineConfig):
        return {}
    for _, source in sources_of(config):
        with ServerPlace.of(source).session() as session:
            taken = [SourceTable(session.info.dbname, *each) for each in taken_tables(session, source)]
        found += [each for each in taken if goes_to(config, each, name)]
    return {name: LedgerRow(name).with_sources(found)} if found else {}


def _written(config: PipelineConfig, rows: Iterable[str]) -> list[str]:
    """The tables that a batch is committed to."""
    return [*rows, *([config.ledger_name] if isinstance(config, SyncPipelineConfig) else [])]


def _last_number(config: PipelineConfig, name: str) -> int:
    catalog = target_catalog(config)
    last = catalog.table(name).engine.committer(config.name).last_commit() if catalog.has_table(name) else None
    return -1 if last is None else last.identifier


def _empty(config: PipelineConfig, name: str, identity: BatchIdentity) -> None:
    with closing(TableCommit(target_catalog(config).table(name), config.name)) as commit:
        commit.has_committed(identity)
        commit.truncate(identity)
        commit.commit(identity, (), None, Stopwatch())


def _note(config: SyncPipelineConfig, identity: BatchIdentity, tables: Sequence[str], gone: Sequence[str]) -> None:
    """Commits to the ledger what the batch has done."""
    catalog, number = target_catalog(config), identity.micro_batch_id
    ledger = catalog.table(config.ledger_name)
    known = read_ledger(ledger)
    rows = [LedgerRow(WHOLE, batch=number), *(LedgerRow(name) for name in gone)]
    for name in tables:
        table = catalog.table(name)
        row = LedgerRow(name, batch=number, schema_id=table.schema.id, created_ms=table.engine.created_ms())
        sources = known[name].source_tables if name in known else ()
        rows.append(row.with_sources(each for each in sources if goes_to(config, each, name)))
    with closing(TableCommit(ledger, config.name)) as commit:
        check = commit.has_committed(identity)
        latest = None if check.latest is None else check.latest.id
        writer = ledger.engine.task_writer(base_snapshot_id=latest, name=config.name)
        try:
            writer.write(ledger_rows(rows))
            messages = writer.prepare_commit(number)
        finally:
            writer.close()
        commit.commit(identity, messages, None, Stopwatch(), check)
