"""The tables of a pipeline that is opened, and what writes its batches into one."""

from __future__ import annotations

from freshet._frozen import Frozen
from freshet.pipeline.config.pipeline_file import PipelineConfig
from freshet.pipeline.identity.planned_isolation import PlannedBefore
from freshet.pipeline.query.driver.engine import Job
from freshet.pipeline.query.driver.one_table import OneTable
from freshet.pipeline.query.driver.query_run import Accepts, QueryRun
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.storage.table import Table


class OpenTables(Frozen):
    """What a pipeline writes, and what its checkpoint says of how batches were planned."""

    table: Table
    dead_letters: Table | None
    """None where rows of tables are read, none of which becomes a dead letter."""
    planned_before: PlannedBefore | None

    def commit(self, config: PipelineConfig) -> TableCommit:
        """What commits the batches of a file to its one table."""
        return TableCommit(
            self.table,
            config.name,
            decoded=config.table.table_schema,
            options=config.table.own_options,
            compaction=config.compaction,
        )

    def run(self, config: PipelineConfig, target: OneTable, job: Job) -> QueryRun:
        """What writes the batches of a file into its one table."""
        accepts = Accepts(config.max_dead_letters, every_batch=True, lost=config.accepted_loss)
        return QueryRun(target, job, config.name, accepts, dead_letters=self.dead_letters)
