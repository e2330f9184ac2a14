"""Jobs that no query has planned: of ranges of Kafka that are read once more, and of records that lie elsewhere.

An engine has one `Jobs` (in `running/spark_pipeline`, `running/local_pipeline`), and `freshet resume` and replays of
dead letters know no more of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder
from freshet.pipeline.query.driver.engine import Engine, Job
from freshet.pipeline.query.driver.one_table import OneTable
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.driver.table_setup import with_table
from freshet.pipeline.query.driver.task_plan import TaskPlan
from freshet.pipeline.query.driver.work import TableWorks, Work
from freshet.storage.table import TableHandle


class RecordParts(Protocol):
    """Raw records that lie in parts; a value that travels to the workers."""

    @property
    def count(self) -> int:
        """How many parts there are."""

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """The records of one part, in batches of `raw_records.FLAT_COLUMNS`."""


class Jobs(Protocol):
    """What makes the jobs, each of records that are read whenever it runs."""

    @property
    def engine(self) -> Engine:
        """The workers."""

    def folder(self, checkpoint: str) -> CheckpointFolder:
        """The folder of a checkpoint, wherever it lies. Raises `OSError` where it cannot be reached."""

    def of_ranges(
        self, work: Work, name: str, config: SyncPipelineConfig, ranges: Sequence[OffsetRange], *, takes_losses: bool
    ) -> Job:
        """A job of ranges of the source of the file; `name` is what messages call the tables. `takes_losses`: records
        that Kafka does not have any more are passed over."""

    def of_parts(self, work: Work, name: str, parts: RecordParts) -> Job:
        """A job of records of the source 0."""

    def into_table(
        self, config: PipelineConfig, commit: TableCommit, letters: TableHandle, parts: Sequence[RecordParts]
    ) -> tuple[OneTable, Job]:
        """A job of records of each source of a file into its one table, which `commit` writes."""


def decoded_table(
    config: PipelineConfig, commit: TableCommit, engine: Engine, letters: TableHandle | None
) -> tuple[TableWorks, OneTable]:
    """The work on records that decoders alone make rows of one table, and that table."""
    tasks = TaskPlan(engine.tasks_max, engine.parallelism)
    works = TableWorks(commit, config, tasks, pipeline=config.name, dead_letters=letters, replan=with_table)
    return works, OneTable(commit, works.follow_columns, config.table.expect)
