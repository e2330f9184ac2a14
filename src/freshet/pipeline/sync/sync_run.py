"""A pipeline file with `sync` as a query, and which batches the targets of its source tables have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.query.driver.engine import Engine, Job
from freshet.pipeline.query.driver.query_run import Accepts, QueryRun
from freshet.pipeline.query.driver.work import Work
from freshet.pipeline.sync.routes import Route, route_of
from freshet.pipeline.sync.sync_tables import SyncTables
from freshet.storage.table import Table

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
