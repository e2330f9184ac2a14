"""Pipelines without Spark: queries that run in threads of this process, their tasks in its workers.

The thread of a query is asked to end after its batch, and wakes where it waits for records.

The `Jobs` of this engine, which no query has planned, are `LocalJob`s of sources that hold what is to be read, whatever
the batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import ClassVar

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.pipeline.config.catalogs import store_options
from freshet.pipeline.config.model import PipelineConfig, SourceConfig, revealed
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.decode.planning import plan_decoding
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineError
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder, WritableCheckpoint
from freshet.pipeline.local.job import LocalJob
from freshet.pipeline.local.local_query import LocalQuery, Trigger
from freshet.pipeline.local.source import AnySource, Piece
from freshet.pipeline.local.store_checkpoint import pipeline_checkpoint
from freshet.pipeline.local.worker_processes import Caught
from freshet.pipeline.local.workers import LocalEngine, WorkerPool
from freshet.pipeline.query.driver.direct_reads import DirectReads
from freshet.pipeline.query.driver.engine import MicroBatch
from freshet.pipeline.query.driver.jobs import RecordParts, decoded_table
from freshet.pipeline.query.driver.one_table import OneTable
from freshet.pipeline.query.driver.query_run import QueryRun
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.driver.work import Work
from freshet.pipeline.query.task.batch_work import BatchWork, RecordWork
from freshet.pipeline.query.task.kafka_ranges import DirectClient
from freshet.pipeline.query.wire.batch_pin import TaskPlace
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.running.engine_pipeline import Gate, OpenTables
from freshet.pipeline.running.progress import ProgressHub
from freshet.storage.table import TableHandle


class LocalPipelines:
    """The `PipelineEngine` of this process and its workers."""

    poll_s = 0.05
    errors = (OSError,)

    def __init__(self, pool: WorkerPool) -> None:
        self._engine = LocalEngine(pool)

    def pipeline(self, config: PipelineConfig, hub: ProgressHub) -> LocalPipeline:
        """`PipelineEngine.pipeline`."""
        return LocalPipeline(self._engine, config, hub)

    def reporting_to(self, hub: ProgressHub) -> AbstractContextManager[object]:
        """`PipelineEngine.reporting_to`: queries report to it themselves."""
        return nullcontext()

    def death(self, error: Exception, *, may_survive: bool) -> PipelineError | None:
        """`PipelineEngine.death`: it is this process."""
        return None


class LocalPipeline:
    """An `EnginePipeline`."""

    def __init__(self, engine: LocalEngine, config: PipelineConfig, hub: ProgressHub) -> None:
        self._engine = engine
        self._config = config
        self._hub = hub
        self._checkpoint: WritableCheckpoint | None = None
        self._sources: list[AnySource] = []
        self._writer: QueryRun | None = None
        self._query: LocalQuery | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def is_active(self) -> bool:
        """`EnginePipeline.is_active`."""
        return self._thread is not None and self._thread.is_alive()

    def plan(self, config: PipelineConfig) -> WritableCheckpoint:
        """`EnginePipeline.plan`."""
        self._config = config
        if not config.follows_tables and not isinstance(config, SyncPipelineConfig):
            for index in range(len(config.sources)):
                plan_decoding(config, index)
        self._checkpoint = pipeline_checkpoint(config)
        return self._checkpoint

    def open(self, config: PipelineConfig, tables: OpenTables) -> None:
        """`EnginePipeline.open`."""
        checkpoint = self._checkpoint
        assert checkpoint is not None
        sources = self._sources
        for index, each in enumerate(config.sources):
            sources.append(_source(config, each, checkpoint, index))  # one by one: those before one that fails end too

        def job_of(work: Work) -> LocalJob:
            return LocalJob(work, sources, config.table.name, planned_before=tables.planned_before)

        if isinstance(config, SyncPipelineConfig):
            from freshet.pipeline.sync.sync_tables import sync_run

            assert tables.dead_letters is not None
            self._writer, _ = sync_run(config, tables.table, tables.dead_letters, self._engine, job_of)
            return
        commit = tables.commit(config)
        letters = None if tables.dead_letters is None else tables.dead_letters.handle
        if config.follows_tables:
            from freshet.pipeline.local.table_source import followed_table

            works, target = followed_table(config, commit, self._engine, sources)
        else:
            works, target = decoded_table(config, commit, self._engine, letters)
        self._writer = tables.run(config, target, job_of(works))

    def start(self, gate: Gate) -> None:
        """`EnginePipeline.start`."""
        config, writer, checkpoint = self._config, self._writer, self._checkpoint
        assert writer is not None
        assert checkpoint is not None

        def write(batch: MicroBatch) -> None:
            with gate.batch(batch.number):
                self._hub.add_report(writer.write(batch))

        # A slot lets one process in at a time, so one that was overtaken may come again.
        is_locked = any(each.postgres is not None for each in config.sources)
        query = LocalQuery(
            config.name,
            checkpoint,
            self._sources,
            write,
            self._engine,
            Trigger(config.trigger_ms, config.trigger.available_now),
            self._hub.add_engine_progress,
            revealed(config.spark),
            on_idle=self._hub.add_idle,
            second_run=ErrorKind.RETRYABLE if is_locked else ErrorKind.INVALID_REQUEST,
        )
        self._hub.add_query(query.query_id, config.name)
        self._failure, self._query = None, query
        self._thread = threading.Thread(target=self._run, args=(query,), name=f"freshet {config.name}", daemon=True)
        self._thread.start()

    def stop_between_batches(self) -> None:
        """`EnginePipeline.stop_between_batches`."""
        if self._query is not None:
            self._query.stop()

    def failure(self) -> BaseException | None:
        """`EnginePipeline.failure`."""
        return self._failure

    def end(self) -> None:
        """`EnginePipeline.end`."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self.stop_between_batches()
            thread.join()
        elif self._query is None:  # a query closes its sources itself
            for each in self._sources:
                each.close()
        self._query, self._sources = None, []
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
            if self._failure is None:
                writer.check_last()

    def _run(self, query: LocalQuery) -> None:
        with Caught() as caught:
            query.run()
        self._failure = caught.error


def _source(config: PipelineConfig, source: SourceConfig, checkpoint: WritableCheckpoint, index: int) -> AnySource:
    if source.kafka is not None:
        from freshet.pipeline.local.kafka_source import kafka_source

        return kafka_source(source, checkpoint, index)
    if source.postgres is not None:
        from freshet.pipeline.local.postgres_offset import lake_key
        from freshet.pipeline.local.postgres_source import postgres_source

        if isinstance(config, SyncPipelineConfig):
            from freshet.pipeline.sync.database_targets import targets_of
            from freshet.pipeline.sync.sync_tables import last_batch_of

            held = partial(last_batch_of, config)
            return postgres_source(source, checkpoint, index, held, targets=targets_of(config))
        return postgres_source(source, checkpoint, index, lake_key=lake_key(config, index))
    if source.files is not None:
        from freshet.pipeline.local.file_source import file_source

        options = store_options(config, source.files.path)
        return file_source(source, checkpoint, index, options=options, conf=revealed(config.spark))
    from freshet.pipeline.local.table_source import table_source

    return table_source(config, index)


class _PartPiece(Frozen):
    """A part of the records, as a `Piece`."""

    parts: RecordParts
    number: int
    work: KeptValue[BatchWork]
    index: int
    keeps_together: ClassVar[bool] = False

    def run(self, place: TaskPlace) -> Iterator[pa.RecordBatch]:
        """`Piece.run`."""
        yield from RecordWork(self.work, self.index).run(self.parts.read(self.number), place)


class _HeldRanges(Frozen):
    """A `RangeSource` that has the same in every batch."""

    client: DirectClient
    held: Sequence[OffsetRange]

    def ranges(self, start: str | None, end: str) -> Sequence[OffsetRange]:
        """`RangeSource.ranges`."""
        return self.held


class _HeldParts(Frozen):
    """A `PieceSource` that has the same in every batch."""

    parts: RecordParts

    def pieces(
        self, start: str | None, end: str, work: KeptValue[BatchWork], index: int, count: int
    ) -> Sequence[Piece]:
        """`PieceSource.pieces`."""
        return [_PartPiece(self.parts, number, work, index) for number in range(self.parts.count)]


class LocalJobs:
    """The `Jobs` of some workers."""

    def __init__(self, engine: LocalEngine, open_folder: Callable[[str], CheckpointFolder]) -> None:
        """`open_folder` opens the folder of a checkpoint, by its path or URI."""
        self.engine = engine
        self._open_folder = open_folder

    def folder(self, checkpoint: str) -> CheckpointFolder:
        """`Jobs.folder`."""
        return self._open_folder(checkpoint)

    def of_ranges(
        self, work: Work, name: str, config: SyncPipelineConfig, ranges: Sequence[OffsetRange], *, takes_losses: bool
    ) -> LocalJob:
        """`Jobs.of_ranges`."""
        direct = DirectReads.of(config)
        assert direct is not None, "`checks.local_engine` refuses what only Spark reads"
        (client,) = direct.clients
        client = replace(client, takes_losses=client.takes_losses or takes_losses)
        return LocalJob(work, [_HeldRanges(client, ranges)], name)

    def of_parts(self, work: Work, name: str, parts: RecordParts) -> LocalJob:
        """`Jobs.of_parts`."""
        return LocalJob(work, [_HeldParts(parts)], name)

    def into_table(
        self, config: PipelineConfig, commit: TableCommit, letters: TableHandle, parts: Sequence[RecordParts]
    ) -> tuple[OneTable, LocalJob]:
        """`Jobs.into_table`."""
        works, target = decoded_table(config, commit, self.engine, letters)
        return target, LocalJob(works, [_HeldParts(each) for each in parts], commit.table.name)
