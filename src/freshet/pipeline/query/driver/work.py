"""How the records of a query become rows of its tables: what is sent to the workers, batch after batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.decode.outcome_batches import outcome_schema
from freshet.pipeline.decode.planning import plan_decoding
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.driver.task_plan import PackPlan, TaskPlan, pack_plan
from freshet.pipeline.query.task.batch_work import BatchWork, Packer, TablePacker, TableWork
from freshet.pipeline.query.task.key_task import AssignerTask, KeyTask, MoverTask
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.storage.model.schema import TableSchema
from freshet.storage.table import TableHandle


class Work(Protocol):
    """The work of a query's batches."""

    @property
    def task_count(self) -> int:
        """Tasks that write a batch."""

    @property
    def stage_count(self) -> int:
        """Tasks of the stage before them; 0 where there is none."""

    @property
    def is_shuffled(self) -> bool:
        """Whether outcomes cross to other tasks than those that decode them."""

    @property
    def reads_together(self) -> bool:
        """Whether a worker reads several ranges of Kafka at the same time."""

    @property
    def numbered_tables(self) -> frozenset[int]:
        """The tables in which what a task writes keeps its number, so that no other task may do its work."""

    def now(self) -> KeptValue[BatchWork]:
        """The work of the batch that comes next, by the tables as they are; the same object while it is equal."""

    def followed(self) -> KeptValue[BatchWork] | None:
        """The same where columns have come since the query was planned."""


class TableWorks:
    """The work of a query that decodes records for one table."""

    reads_together = False

    def __init__(
        self,
        commit: TableCommit,
        config: PipelineConfig,
        tasks: TaskPlan,
        *,
        pipeline: str,
        dead_letters: TableHandle | None,
        replan: Callable[[PipelineConfig], PipelineConfig] = lambda config: config,
    ) -> None:
        """`pipeline` is the name that dead letters carry; `replan` gives the file with the columns that the table has
        got."""
        self._commit = commit
        self._config = config
        self._tasks = tasks
        self._pipeline = pipeline
        self._dead_letters = dead_letters
        self._replan = replan
        self._options = commit.table.options
        self._way = self._way_now()
        self._kept: KeptValue[BatchWork] | None = None
        self._made_of: object = None
        self._has_followed = False

    @property
    def task_count(self) -> int:
        """`Work.task_count`."""
        return self._way.task_count

    @property
    def stage_count(self) -> int:
        """`Work.stage_count`."""
        return 0 if self._way.onward is None else self._way.rule.task_count

    @property
    def is_shuffled(self) -> bool:
        """`Work.is_shuffled`."""
        return self._way.is_shuffled

    @property
    def numbered_tables(self) -> frozenset[int]:
        """`Work.numbered_tables`: the one whose rows wait for their bucket."""
        return frozenset({0} if self._way.rule.is_sparks else ())

    def follow_columns(self) -> TableSchema:
        """Decodes for the columns that the table has now; gives the schema that records are decoded for."""
        self._config, self._has_followed = self._replan(self._config), True
        return self._config.table.table_schema

    def now(self) -> KeptValue[BatchWork]:
        """`Work.now`. Raises `InvalidRequestError` where the table has changed so that decoded rows do not fit."""
        self._check()
        self._way = self._way_now()
        identity = (id(self._config), self._commit.table.schema.id, self._way)
        if self._kept is None or self._made_of != identity:
            work = self._work()
            self._kept = KeptValue(work) if self._kept is None else self._kept.following(work)
            self._made_of = identity
        return self._kept

    def followed(self) -> KeptValue[BatchWork] | None:
        """`Work.followed`."""
        return self.now() if self._has_followed else None

    def _work(self) -> BatchWork:
        schema, columns, packers = self._decoding()
        table = TableWork(
            table=self._commit.table.handle,
            pipeline=self._pipeline,
            columns=columns,
            bucket_count=self._way.bucket_count,
            schema=schema,
            dead_letters=self._dead_letters,
            are_moved=self._way.moves_rows,
        )
        stage: KeyTask | None = None
        if self._way.onward is not None:
            kind = MoverTask if self._way.moves_rows else AssignerTask
            shares = self._way.rule.share_count
            stage = kind(self._commit.table.handle, columns, shares, schema, self._way.onward)
        return BatchWork(packers, {0: table}, stage)

    def _check(self) -> None:
        """Raises `InvalidRequestError` where the table has changed so that its rows cannot follow."""
        self._commit.refuse_other_columns()

    def _decoding(self) -> tuple[pa.Schema, tuple[str, ...], dict[int, Packer]]:
        """The schema of rows as they cross, the table's columns in them, and what packs the rows of each source."""
        plans = [plan_decoding(self._config, index) for index in range(len(self._config.sources))]
        packers: dict[int, Packer] = {index: TablePacker(plan, self._way.rule) for index, plan in enumerate(plans)}
        return outcome_schema(plans[0]), self._commit.decoded.column_names, packers

    def _way_now(self) -> PackPlan:
        table = self._commit.table
        is_rescaled = table.engine.is_rescaled() or self._options.bucket != table.options.bucket
        return pack_plan(self._commit.decoded, self._options, self._tasks, is_rescaled=is_rescaled)
