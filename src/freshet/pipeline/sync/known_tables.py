"""The tables that a run of a pipeline with `sync` knows: those that it writes, and what the ledger says of all.

    target ── written in each batch that has rows of it
    apart ─── failed for good: its records are held back from a batch on, which the ledger says
    resumed ─ brought up by `resume` behind a batch; written again from the batch that follows it

A table is set apart in the ledger before any table of the batch is committed, so a replay finds it apart.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import orjson

from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import InvalidRequestError, PipelineFailedError
from freshet.pipeline.identity.missing_batches import batches_text
from freshet.pipeline.query.driver.background_rounds import own_rounds
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.sync.ledger import (
    ACTIVE,
    APART,
    RESUMED,
    WHOLE,
    LedgerRow,
    Offsets,
    lost_batches,
    read_ledger,
    write_rows,
)
from freshet.pipeline.sync.routes import Route, route_of
from freshet.pipeline.sync.rule_differences import refuse_other_rule, unheeded_by
from freshet.pipeline.sync.table_decoding import TableDecoding
from freshet.storage import exceptions as storage
from freshet.storage.options import local_folders
from freshet.storage.table import Table
from freshet.storage.table_engine import CommitCheck, CommitTrace

_LOG: Final = logging.getLogger(__name__)

PERMANENT: Final = (storage.NotFoundError, storage.CorruptDataError, storage.InvalidRequestError)
"""Errors of a table that another attempt would meet again."""


@dataclass(slots=True)
class Target:
    """A table that rows go to."""

    name: str
    route: Route
    commit: TableCommit
    sources: set[SourceTable]
    passed_over: set[str]
    spellings: dict[str, str] = field(default_factory=dict)
    """The columns of fields whose names differ in the case of their letters."""
    planned: tuple[object, TableDecoding] | None = None


class LedgerState:
    """What one run knows of the ledger: its rows as they were read last, by the names of their tables, and what was
    written since."""

    def __init__(self, commit: TableCommit, pipeline: str) -> None:
        self.commit = commit
        self.rows: dict[str, LedgerRow] = {}
        self._pipeline = pipeline
        self._snapshot: int | None = None
        self._is_read = False

    def is_read(self, check: CommitCheck) -> bool:
        """Whether the rows are those of the snapshot that a batch finds; if not, they are to be read."""
        latest = None if check.latest is None else check.latest.id
        is_read = self._is_read and latest == self._snapshot
        self._snapshot, self._is_read = latest, True
        return is_read

    def read(self) -> None:
        """Reads all rows."""
        self.rows = read_ledger(self.commit.table)

    def state_of(self, name: str) -> str | None:
        """The state of a table; None where the ledger does not know it."""
        row = self.rows.get(name)
        return None if row is None else row.state

    def write(self, row: LedgerRow) -> None:
        """Commits a fact, outside of a batch."""
        write_rows(self.commit.table, self._pipeline, [row])
        self.rows[row.table_name] = row

    def noted(self, rows: Sequence[LedgerRow]) -> None:
        """Rows that a batch writes."""
        self.rows.update({row.table_name: row for row in rows})

    def committed(self, snapshot_ids: Sequence[int]) -> None:
        """The ledger has a batch, in these snapshots. Where others have come before them, it is read again: `resume`
        may have brought a table up meanwhile."""
        before = self._snapshot or 0
        is_next = bool(snapshot_ids) and snapshot_ids[0] == before + 1
        self._snapshot = snapshot_ids[-1] if snapshot_ids else None
        self._is_read = is_next


class KnownTables:
    """The tables of one run."""

    def __init__(
        self, config: SyncPipelineConfig, ledger: Table, *, only: str | None = None, commit_user: str | None = None
    ) -> None:
        """With `only`, no table is set apart: what it fails of is raised (`resume`). Nor is one with a `commit_user` of
        its own, which a replay of dead letters has."""
        self.config = config
        self.is_replay = commit_user is not None
        self._commit_user = commit_user or config.name
        self.catalog = target_catalog(config)
        is_alone = only is not None or self.is_replay
        self.background = None if is_alone else own_rounds(config.name, config.compaction)
        """Compaction of its tables between their batches."""
        self.ledger = TableCommit(ledger, config.name)
        self.state = LedgerState(self.ledger, config.name)
        self.targets: dict[str, Target] = {}
        """Those that are written, by name."""
        self.left: set[SourceTable] = set()
        """Source tables of other tables, where one alone is written."""
        self.only = only
        self.events: list[str] = []
        """What was done about tables since they were taken last."""

    def begin(self, check: CommitCheck, micro_batch_id: int, starts: Offsets) -> None:
        """Reads what the ledger says, unless it is known; `check` is what it says of the batch that begins."""
        if not self.state.is_read(check):
            self.state.read()
            self._refuse_other_ledger(check.last)
            if self.config.accepted_loss is not None:
                self._accept(*self.config.accepted_loss)
            self._take_state(micro_batch_id, starts)

    def take_only(self, row: LedgerRow) -> None:
        """One table alone of the ledger is written, and all others are left to the pipeline (`resume`)."""
        self.state.read()
        own = self.state.rows[row.table_name] = replace(row, batch=None, state=ACTIVE)
        others = [each for each in self.state.rows.values() if each.table_name not in (WHOLE, row.table_name)]
        self.left = {source for each in others for source in each.source_tables}
        if self.catalog.has_table(row.table_name):
            self._take_up(own, 0, {})

    def take_all(self) -> None:
        """Takes up all tables that are not set apart, as the ledger says now, and changes nothing there."""
        last = self.ledger.last_commit_of(self.config.name)
        self.state.read()
        self._refuse_other_ledger(last)
        for row in list(self.state.rows.values()):
            if row.table_name != WHOLE and row.state != APART:
                self._take_up(row, 0, {})

    def opened(self, route: Route) -> Target:
        """A table that is there. Raises `InvalidRequestError` where its rule is one of another table.

        A log has one user, the pipeline: what a replay commits, its readers take from the files.
        """
        table = self.catalog.table(route.target, options=local_folders(route.options))
        refuse_other_rule(self.config, route, table.schema)
        self.events += unheeded_by(self.config, route, table.schema)
        own = table.without_log() if self.is_replay else table
        return Target(
            route.target, route, TableCommit(own, self._commit_user, background=self.background), set(), set()
        )

    def current(self, micro_batch_id: int, starts: Offsets) -> tuple[Target, ...]:
        """The tables that are written, as they are now."""
        for target in list(self.targets.values()):
            try:
                target.commit.follow_schema(is_planned=False)
                self._refuse_recreated(target)
            except PERMANENT as error:
                self.apart(target.name, str(error), micro_batch_id, starts)
        return tuple(self.targets.values())

    def apart(
        self, name: str, cause: str, micro_batch_id: int, starts: Offsets, *, source: SourceTable | None = None
    ) -> None:
        """Sets a table apart: a fact of the ledger, before any table of the batch is committed."""
        if self.only is not None or self.is_replay:
            raise self.failed(f"table {name}: {cause}", micro_batch_id)
        if self.config.sync.source.postgres is not None:
            raise self.failed(
                f"table {name}: {cause}. Nothing was written: a slot sends no change twice, so no table is set apart. "
                "Mend it and start again, or exclude it in a rule of sync.tables",
                micro_batch_id,
            )
        target = self.targets.pop(name, None)
        known = self.state.rows.get(name, LedgerRow(name))
        sources = {*known.source_tables, *(target.sources if target else ()), *([source] if source else [])}
        row = replace(
            known,
            state=APART,
            since_batch=micro_batch_id,
            since_offsets=orjson.dumps(starts).decode(),
            cause=cause,
        ).with_sources(sources)
        self.state.write(row)
        text = (
            f"table {name} is set apart from batch {micro_batch_id} on, the others go on: {cause}. Its records are "
            f"held back; once that is mended, stop the pipeline and bring it up: freshet resume FILE --table {name} "
            f"(resync where the table is gone)"
        )
        _LOG.warning("%s: %s", self.config.name, text)
        self.events.append(text)
        if target is not None:
            target.commit.close()

    def take_events(self) -> tuple[str, ...]:
        """What was done about tables, once."""
        found, self.events = tuple(self.events), []
        return found

    def failed(self, text: str, micro_batch_id: int) -> PipelineFailedError:
        """What stops the query."""
        kind = ErrorKind.INVALID_REQUEST
        return PipelineFailedError(text, pipeline=self.config.name, micro_batch_id=micro_batch_id, kind=kind)

    def _take_state(self, micro_batch_id: int, starts: Offsets) -> None:
        """Takes up what the ledger says."""
        for name, row in list(self.state.rows.items()):
            if name == WHOLE:
                continue
            if row.state == RESUMED and row.since_batch is not None and row.since_batch < micro_batch_id:
                # Batches between what `resume` has read and this one have held its records back.
                late = replace(row, state=APART, cause="resume ended before batches that held its records back")
                self.state.write(late)
                self.events.append(f"table {name} is set apart again: {late.cause}; it needs another resume")
            if self.state.state_of(name) == APART:
                self.targets.pop(name, None)
            else:
                if row.state == RESUMED:
                    row = replace(row, state=ACTIVE, since_batch=None, since_offsets=None)
                    self.state.write(row)
                    self.events.append(f"table {name} is written again from batch {micro_batch_id} on")
                self._take_up(row, micro_batch_id, starts)

    def _accept(self, first: int, last: int) -> None:
        """Has the ledger say of tables which lack batches, all of them between these two, what they hold."""
        for name, row in list(self.state.rows.items()):
            if name == WHOLE or row.batch is None or not first <= row.batch <= last or not self.catalog.has_table(name):
                continue
            try:
                held = self.catalog.table(name).engine.committer(self.config.name).last_commit()
            except PERMANENT:
                continue  # what it lacks is not known: it is set apart, or is already
            missing = lost_batches(row, held)
            if missing is not None and first <= missing[0]:
                self.state.write(replace(row, batch=None if held is None else held.identifier))
                text = f"table {name} goes on without its rows of {batches_text(*missing)}, as it was told"
                _LOG.warning("%s: %s", self.config.name, text)
                self.events.append(text)

    def _take_up(self, row: LedgerRow, micro_batch_id: int, starts: Offsets) -> None:
        routes = [route_of(self.config.sync, source) for source in row.source_tables]
        route = next((each for each in routes if isinstance(each, Route) and each.target == row.table_name), None)
        if route is None:
            return  # the rules send its sources elsewhere now
        kept = {
            source
            for source, each in zip(row.source_tables, routes, strict=True)
            if isinstance(each, Route) and each.target == row.table_name
        }
        try:
            target = self.targets.get(row.table_name)
            if target is None:
                target = self.opened(route)
            target.sources |= kept
        except PERMANENT as error:
            self.apart(row.table_name, str(error), micro_batch_id, starts)
            return
        self.targets[row.table_name] = target

    def _refuse_recreated(self, target: Target) -> None:
        row = self.state.rows.get(target.name)
        created_ms = target.commit.table.engine.created_ms()
        if row is not None and row.created_ms is not None and row.created_ms != created_ms:
            raise storage.InvalidRequestError(
                f"table {target.name} was dropped and created again: the rows of batches up to {row.batch} are missing"
            )

    def _refuse_other_ledger(self, last: CommitTrace | None) -> None:
        """What the ledger has as the last batch must be the last commit of this pipeline to it."""
        whole = self.state.rows.get(WHOLE, LedgerRow(WHOLE))
        own = None if last is None else last.identifier
        if own is not None and whole.batch is None:
            raise InvalidRequestError(
                f"table {self.ledger.table.name}, the ledger of {self.config.name!r}, does not say any more that its "
                f"last batch was {own}: rows of it were deleted, or its column batch was dropped. Give it the rows of "
                "the snapshot before (freshet snapshots, then freshet rollback … --to-snapshot N), or delete the "
                "checkpoint and give the pipeline another name: it reads everything again; nothing was written"
            )
        if whole.batch != own:
            has = "none" if own is None else f"its batch {own}"
            raise InvalidRequestError(
                f"table {self.ledger.table.name} is the ledger of another pipeline: its last batch is {whole.batch}, "
                f"and {has} is of pipeline {self.config.name!r}. Set sync.ledger to a table of its own; nothing was "
                "written"
            )
