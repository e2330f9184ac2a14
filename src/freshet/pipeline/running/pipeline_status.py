"""The facts of a pipeline at a moment, as one value: of its tables, its checkpoint and what its run has noted there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from freshet._frozen import Frozen, field
from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.pipeline_file import PipelineConfig
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.exceptions import PipelineError
from freshet.pipeline.identity.checkpoint_folder import as_folder
from freshet.pipeline.local.store_checkpoint import pipeline_checkpoint
from freshet.pipeline.running.run_note import BEAT_LOST_MS, RunNote, RunState, read_note
from freshet.pipeline.sync.ledger import APART, read_ledger
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import CorruptDataError, NotFoundError, StorageError
from freshet.storage.status.table_status import Batches, TableStatus


class PipelineStatus(Frozen):
    """A pipeline at a moment; spans are milliseconds. `batches` are those that its tables know, of the last minutes."""

    name: str
    observed_ms: int
    state: RunState
    batch: int | None
    """The last that is done, by its checkpoint."""
    run: RunNote | None
    lag_records: int | None
    """When its last batch was planned."""
    lag_ms: int | None
    """The age of the latest record that it has, where others wait; 0 where none does. None where it has ended with
    nothing left: whether records have come since, files do not say."""
    batches: Batches
    last_error: str | None
    tables: tuple[TableStatus, ...] = ()
    apart: Mapping[str, str] = field(default_factory=dict)
    """Tables that are set apart, with the cause."""
    error: str | None = None
    """Why its checkpoint or its catalog cannot be read; nothing else is known then."""

    @property
    def is_behind(self) -> bool:
        """Whether something of it is behind its target, does not run though it should, is set apart or cannot be
        read."""
        if self.error is not None:
            return True
        is_down = self.state in (RunState.FAILED, RunState.GONE)
        return is_down or bool(self.apart) or any(table.is_behind for table in self.tables)

    def facts(self) -> dict[str, Any]:
        """The same for JSON."""
        return {**asdict(self), "tables": [table.facts() for table in self.tables], "is_behind": self.is_behind}


def pipeline_statuses(configs: Sequence[PipelineConfig], *, needs_one: bool = True) -> list[PipelineStatus]:
    """The pipelines now; one that cannot be read hides no other. Raises where none can be, with `needs_one`."""
    found: list[PipelineStatus] = []
    errors: list[Exception] = []
    for config in configs:
        try:
            found.append(pipeline_status(config))
        except (OSError, StorageError, PipelineError) as error:
            now_ms = time.time_ns() // 1_000_000
            found.append(
                PipelineStatus(
                    config.name, now_ms, RunState.UNKNOWN, None, None, None, None, Batches(), None, error=str(error)
                )
            )
            errors.append(error)
    if needs_one and errors and len(errors) == len(found):
        raise errors[0]
    return found


def pipeline_status(config: PipelineConfig, now_ms: int | None = None) -> PipelineStatus:
    """The pipeline now; what is not there yet is None. Raises where its catalog or its checkpoint cannot be reached."""
    now_ms = now_ms or time.time_ns() // 1_000_000
    folder = as_folder(config.checkpoint) or pipeline_checkpoint(config)
    note, numbers = read_note(folder), folder.numbers("commits")
    state = _state(note, now_ms)
    catalog = target_catalog(config)
    is_many = isinstance(config, SyncPipelineConfig)
    tables, apart, batches = _statuses(catalog, [config.table.name], now_ms, detail=True), {}, Batches()
    for lead in tables:
        if lead.detail is not None:
            batches = lead.detail.batches.get(config.name, Batches())
    if is_many and tables and tables[0].error is None:
        rows = read_ledger(catalog.table(config.table.name))
        apart = {name: row.cause or "" for name, row in rows.items() if row.state == APART}
        tables = _statuses(catalog, [name for name in rows if name], now_ms, detail=False)
    is_caught_up = state is RunState.IDLE
    if is_caught_up and note is not None:  # nothing was to be written since
        quiet_ms = max(0, now_ms - note.time_ms)
        tables = [
            table if table.error else replace(table, freshness_ms=min(table.freshness_ms or 0, quiet_ms))
            for table in tables
        ]
    lag = None if note is None else note.lag_records
    event_ms = None if note is None else note.last_event_ms
    return PipelineStatus(
        name=config.name,
        observed_ms=now_ms,
        state=state,
        batch=max(numbers, default=None if note is None else note.batch),
        run=note,
        lag_records=lag,
        lag_ms=_lag_ms(lag, event_ms, now_ms, is_up=state.is_up),
        batches=batches,
        last_error=None if note is None else note.error,
        tables=tuple(tables),
        apart=apart,
    )


def _lag_ms(records: int | None, event_ms: int | None, now_ms: int, *, is_up: bool) -> int | None:
    if records == 0:
        return 0 if is_up else None
    return None if records is None or event_ms is None else max(0, now_ms - event_ms)


def _statuses(catalog: Catalog, names: Sequence[str], now_ms: int, *, detail: bool) -> list[TableStatus]:
    """The statuses of those that are there; one that cannot be read does not hide the others."""
    found = []
    for name in names:
        try:
            found.append(catalog.table(name).status(detail=detail))
        except StorageError as error:
            if not isinstance(error, NotFoundError) or isinstance(error, CorruptDataError):
                found.append(TableStatus.unreadable(name, now_ms, error))
    return found


def _state(note: RunNote | None, now_ms: int) -> RunState:
    if note is None:
        return RunState.UNKNOWN
    is_alive = note.state not in (RunState.FAILED, RunState.STOPPED)
    return RunState.GONE if is_alive and now_ms - note.time_ms > BEAT_LOST_MS else note.state
