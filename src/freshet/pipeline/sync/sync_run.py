"""A pipeline file with `sync` as the run of a query."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from freshet.pipeline.batch.query_run import QueryRun
from freshet.pipeline.checks.unread_records import UnreadRecords
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.identity.planned_isolation import PlannedBefore
from freshet.pipeline.sources.direct_frame import taken_directly
from freshet.pipeline.sources.raw_frame import read_stream, sets_poll_records
from freshet.pipeline.sync.many_job import ManyDirect, ManyJob, task_count
from freshet.pipeline.sync.sync_tables import SyncTables
from freshet.storage.table import Table


def sync_frame(spark: SparkSession, config: SyncPipelineConfig, unread: UnreadRecords) -> DataFrame:
    """The records of the source as a streaming frame."""
    return read_stream(spark, config.sync.source, unread)


def sync_run(
    spark: SparkSession,
    config: SyncPipelineConfig,
    ledger: Table,
    dead_letters: Table,
    planned_before: PlannedBefore | None,
) -> QueryRun:
    """The run that writes the batches of `sync_frame`; the last argument is that of `QueryRun`."""
    tables = SyncTables(config, ledger, dead_letters, task_count(spark))
    direct = taken_directly(config)
    return QueryRun(
        [tables.ledger],
        ManyJob(tables.kept_plan, tables.task),
        config.name,
        dead_letters=dead_letters,
        max_dead_letters=config.max_dead_letters,
        follows_polls=not sets_poll_records(config.sync.source),
        direct=None if direct is None else ManyDirect(direct, tables.kept_plan),
        many=tables,
        planned_before=planned_before,
    )
