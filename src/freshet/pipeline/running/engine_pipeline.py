"""A pipeline as an engine runs it, the tables of one that is opened, and the engine of a run.

It is what `runner` and `running_pipeline` ask of either engine:


plan()    its checkpoint is opened, and what it reads is understood; nothing is written
open()    what writes its batches is made, by tables that are there now
start()   its query runs, and reports each batch to the hub
end()     what ran in the background has ended
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from freshet._frozen import Frozen
from freshet.pipeline.config.pipeline_file import PipelineConfig
from freshet.pipeline.exceptions import PipelineError
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder
from freshet.pipeline.identity.planned_isolation import PlannedBefore
from freshet.pipeline.query.driver.engine import Job
from freshet.pipeline.query.driver.one_table import OneTable
from freshet.pipeline.query.driver.query_run import Accepts, QueryRun
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.running.progress import ProgressHub
from freshet.storage.table import Table


class StopRequested(PipelineError):
    """A batch was refused because the run is ending; the next run begins it again."""


class Gate:
    """The batches of one pipeline, each of which begins here unless the pipeline, or the whole run, is ending."""

    def __init__(self, pipeline: str, run_ends: threading.Event) -> None:
        self._pipeline = pipeline
        self._run_ends = run_ends
        self._ends = threading.Event()
        self.number: int | None = None
        """The batch begun last."""
        self.is_in_batch = False
        self.done = 0
        """Batches since the last start."""

    @property
    def reached(self) -> int:
        """The batch that runs, has failed or comes next; 0 where none has begun yet."""
        return 0 if self.number is None else self.number + (not self.is_in_batch)

    def close(self) -> None:
        """Lets no other batch begin."""
        self._ends.set()

    def begin_anew(self) -> None:
        """The query starts."""
        self.done, self.is_in_batch = 0, False

    @contextmanager
    def batch(self, number: int) -> Iterator[None]:
        """Around one batch. Raises `StopRequested` where it must not begin."""
        if self._run_ends.is_set() or self._ends.is_set():
            raise StopRequested(f"pipeline {self._pipeline!r} is stopping; batch {number} was not begun")
        self.number, self.is_in_batch = number, True
        yield
        self.is_in_batch = False
        self.done += 1


class EnginePipeline(Protocol):
    """One pipeline on an engine; all but its batches is called from one thread."""

    @property
    def is_active(self) -> bool:
        """True while its query runs."""

    def plan(self, config: PipelineConfig) -> CheckpointFolder:
        """Opens its checkpoint, and understands what it reads; writes nothing."""

    def open(self, config: PipelineConfig, tables: OpenTables) -> None:
        """Makes what writes the batches."""

    def start(self, gate: Gate) -> None:
        """Starts the query."""

    def stop_between_batches(self) -> None:
        """Asks the query to end; where a stop would interrupt a batch that runs, only once there is none."""

    def failure(self) -> BaseException | None:
        """Why the query, which is not active, has ended by itself; None where it was asked to, or has read everything.
        What it has not reported yet of its batches, it reports."""

    def end(self) -> None:
        """Ends what runs in the background; the query has ended. Raises `LostCommitError` where another program has
        replaced the last batch, unless a batch has failed."""


class PipelineEngine(Protocol):
    """The engine of a run of some pipelines."""

    @property
    def poll_s(self) -> float:
        """How often to look whether a query has ended; batches do not wait for it."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The engine's own errors, besides those of Freshet, by which a start may fail."""

    def pipeline(self, config: PipelineConfig, hub: ProgressHub) -> EnginePipeline:
        """A pipeline that is not planned yet."""

    def reporting_to(self, hub: ProgressHub) -> AbstractContextManager[object]:
        """Around all queries: what the engine itself knows of them goes to the hub."""

    def death(self, error: Exception, *, may_survive: bool) -> PipelineError | None:
        """The error to raise where the engine has died, and all queries with it; None where it lives. `may_survive`:
        it is likely that a restart gets past the batches that ran."""


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
