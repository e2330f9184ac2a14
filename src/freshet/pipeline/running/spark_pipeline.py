"""Pipelines on Spark: streaming queries of one session.

On a stop no sink begins another batch: one that Spark starts after that is refused before it does anything, and Spark's
stop is called only between triggers, because it interrupts what runs. A batch that was begun and refused is begun again
by the next run.

When the Java process dies, all queries are lost with it, and nothing is started again in this process.

Spark's side of the progress of its queries: what its listener hears goes to a hub.

`ProgressListener` may be added to any session: `spark.streams.addListener(ProgressListener(hub))`.

Beside them the `Jobs` of Spark, which no query has planned.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery, StreamingQueryListener

from freshet._frozen import Frozen
from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.pipeline.checks.unread_records import UnreadRecords, unread_records
from freshet.pipeline.config.model import PipelineConfig, revealed
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.errors.known_causes import missing_file_system
from freshet.pipeline.exceptions import ConfigurationError, PipelineError, Problem
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder, spark_path
from freshet.pipeline.identity.planned_isolation import PlannedBefore
from freshet.pipeline.query.driver.direct_reads import DirectReads
from freshet.pipeline.query.driver.jobs import RecordParts
from freshet.pipeline.query.driver.one_table import OneTable
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.query.driver.work import Work
from freshet.pipeline.running.engine_pipeline import Gate, OpenTables
from freshet.pipeline.running.progress import ProgressHub
from freshet.pipeline.running.runner import Runner
from freshet.pipeline.running.table_query import TableQuery
from freshet.pipeline.sources.raw_frame import read_offsets, read_stream, sets_poll_records
from freshet.pipeline.sources.record_frame import raw_record_frame
from freshet.pipeline.spark.engine import SparkEngine
from freshet.pipeline.spark.hadoop_folder import open_checkpoint
from freshet.pipeline.spark.java_process import JavaDiedError, java_death
from freshet.pipeline.spark.job import SparkJob
from freshet.pipeline.spark.packed_way import PackedWay
from freshet.pipeline.spark.table_sink import TableSink
from freshet.pipeline.sync.sync_tables import sync_run
from freshet.storage.table import TableHandle


class SparkPipelines:
    """The `PipelineEngine` of a session."""

    poll_s = 0.2
    errors = (PySparkException, Py4JJavaError)

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def pipeline(self, config: PipelineConfig, hub: ProgressHub) -> SparkPipeline:
        """`PipelineEngine.pipeline`."""
        return SparkPipeline(self._spark, config, hub)

    @contextmanager
    def reporting_to(self, hub: ProgressHub) -> Iterator[None]:
        """`PipelineEngine.reporting_to`."""
        listener = ProgressListener(hub)
        self._spark.streams.addListener(listener)
        try:
            yield
        finally:
            self._spark.streams.removeListener(listener)

    def death(self, error: Exception, *, may_survive: bool) -> PipelineError | None:
        """`PipelineEngine.death`."""
        status = java_death(error)
        return None if status is None else JavaDiedError(status, is_worth_a_try=may_survive)


class SparkPipeline:
    """An `EnginePipeline`."""

    def __init__(self, spark: SparkSession, config: PipelineConfig, hub: ProgressHub) -> None:
        self._spark = spark
        self._config = config
        self._hub = hub
        self._unread: tuple[UnreadRecords, ...] = ()
        self._of_table: TableQuery | None = None
        self._of_many: DataFrame | None = None
        self._sink: TableSink | None = None
        self._query: StreamingQuery | None = None

    @property
    def is_active(self) -> bool:
        """`EnginePipeline.is_active`."""
        return self._query is not None and self._query.isActive

    def plan(self, config: PipelineConfig) -> CheckpointFolder:
        """`EnginePipeline.plan`: analyses the frame."""
        self._config = config
        records = () if config.follows_tables else config.sources
        checkpoint = opened_checkpoint(self._spark, config)
        self._unread = tuple(unread_records(source, checkpoint) for source in records)
        if isinstance(config, SyncPipelineConfig):
            self._of_many = read_stream(self._spark, config.sync.source, self._unread[0])
        else:
            self._of_table = TableQuery.of_streams(self._spark, config, self._unread)
        return checkpoint

    def open(self, config: PipelineConfig, tables: OpenTables) -> None:
        """`EnginePipeline.open`."""
        if isinstance(config, SyncPipelineConfig):
            assert tables.dead_letters is not None
            engine = SparkEngine(self._spark)
            job_of = partial(_job_of_many, config, tables.planned_before)
            writer, job = sync_run(config, tables.table, tables.dead_letters, engine, job_of)
        else:
            assert self._of_table is not None
            engine = self._of_table.engine
            writer, job = self._of_table.open(tables)
        for unread in self._unread:
            job.arrow.saw(unread.sizes)
        self._sink = TableSink(writer, job, engine, self._hub.add_report)

    def start(self, gate: Gate) -> None:
        """`EnginePipeline.start`."""
        assert self._sink is not None
        config, sink = self._config, self._sink

        def write(batch: DataFrame, micro_batch_id: int) -> None:
            with gate.batch(micro_batch_id):
                sink(batch, micro_batch_id)

        with sink.arrow.in_force(self._spark):  # the query's own session is a copy made by `start`
            # The tasks of many tables are planned batch by batch, since tables come while the query runs.
            frame = self._of_many if self._of_table is None else self._of_table.started_frame(sink)
            assert frame is not None
            writer = frame.writeStream.queryName(config.name).foreachBatch(write)
            writer = writer.option("checkpointLocation", spark_path(config.checkpoint))
            if config.trigger.available_now:
                self._query = writer.trigger(availableNow=True).start()
            else:
                self._query = writer.trigger(processingTime=config.trigger.processing_time or "1 second").start()

    def stop_between_batches(self) -> None:
        """`EnginePipeline.stop_between_batches`: Spark's stop interrupts what runs."""
        if self._query is not None and not self._query.status["isTriggerActive"]:
            self._query.stop()

    def failure(self) -> BaseException | None:
        """`EnginePipeline.failure`. The listener gets a batch some time after it ended, the last one perhaps never; the
        hub reports each once."""
        if self._query is None:
            return None
        failure = None if self._sink is None else self._sink.failure
        failure = failure or self._query.exception()
        for progress in self._query.recentProgress:
            self._hub.add_engine_progress(json.loads(progress.json))
        return failure

    def end(self) -> None:
        """`EnginePipeline.end`."""
        self._query = None
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.close()


def spark_runner(spark: SparkSession, configs: Sequence[PipelineConfig], **given: Any) -> Runner:
    """A runner of pipelines in one session; the other arguments are those of `Runner`."""
    return Runner(SparkPipelines(spark), configs, **given)


def spark_settings(configs: Sequence[PipelineConfig]) -> dict[str, str]:
    """The Spark settings of all files together; `config.pipeline_file` has refused files that contradict each other."""
    settings: dict[str, str] = {}
    for config in configs:
        settings |= revealed(config.spark)
    return settings


def _job_of_many(config: SyncPipelineConfig, planned_before: PlannedBefore | None, work: Work) -> SparkJob:
    """The job of the batches of many tables."""
    # A batch of a few records in a hundred topics: 0.7 s by the workers, 30 s where Spark has a task and a consumer for
    # each Kafka partition.
    direct = DirectReads.of(config)
    return SparkJob(
        PackedWay(work, config.ledger_name),
        direct=None if direct is None else replace(direct, takes_small=True),
        plans_batches=True,
        follows_polls=not sets_poll_records(config.sync.source),
        planned_before=planned_before,
    )


def opened_checkpoint(spark: SparkSession, config: PipelineConfig) -> CheckpointFolder:
    """The folder of its checkpoint. Raises `ConfigurationError` where Spark has no file system for it."""
    try:
        return open_checkpoint(spark, config.checkpoint)
    except OSError as error:
        text = missing_file_system(str(error), config.checkpoint) or f"{config.checkpoint} cannot be reached: {error}"
        problem = Problem(("checkpoint",), config.without_secrets(text))
        raise ConfigurationError([config.origin.placed(problem)]) from error


class ProgressListener(StreamingQueryListener):
    """Spark's listener that feeds a hub. Its events are the JVM's own, of which one JSON text is read.

    PySpark would copy each event into Python field by field: of a stream of small batches on two cores, that took 40 %
    of a core in the JVM and a tenth of one in Python.
    """

    class Java:
        """What py4j asks for: the interface that the JVM calls."""

        implements: Final = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]

    def __init__(self, hub: ProgressHub) -> None:
        self._hub = hub
        self._wrapper: Any = None

    @property
    def _jlistener(self) -> Any:
        """Where `addListener` and `removeListener` find the JVM's side; the version of PySpark is pinned."""
        if self._wrapper is None:
            jvm: Any = SparkContext._jvm
            self._wrapper = jvm.PythonStreamingQueryListenerWrapper(self)
        return self._wrapper

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Idle queries are reported by their id alone."""
        self._hub.add_query(event.id().toString(), event.name() or "")

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """A micro-batch is over."""
        self._hub.add_engine_progress(json.loads(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """No new records."""
        self._hub.add_idle(event.id().toString())

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """The runner sees this by itself."""


class _PartReader(Frozen):
    """Reads parts in Spark's workers: their numbers in, their records out."""

    parts: RecordParts

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.parts.read(number)


class SparkJobs:
    """The `Jobs` of a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.engine = SparkEngine(spark)

    def folder(self, checkpoint: str) -> CheckpointFolder:
        """`Jobs.folder`."""
        return open_checkpoint(self._spark, checkpoint)

    def of_ranges(
        self, work: Work, name: str, config: SyncPipelineConfig, ranges: Sequence[OffsetRange], *, takes_losses: bool
    ) -> SparkJob:
        """`Jobs.of_ranges`: Spark reads them where only its source knows the options of the brokers."""
        source = config.sync.source.model_copy(update={"read": "auto"})
        direct = DirectReads.of(config.model_copy(update={"sources": (source,)}))
        if direct is None:
            frame = read_offsets(self._spark, source, ranges, takes_losses=takes_losses) if ranges else None
            return SparkJob(PackedWay(work, name), frame=frame)
        (client,) = direct.clients
        direct = replace(direct, clients=(replace(client, takes_losses=client.takes_losses or takes_losses),))
        return SparkJob(PackedWay(work, name), direct=direct, given={0: ranges})

    def of_parts(self, work: Work, name: str, parts: RecordParts) -> SparkJob:
        """`Jobs.of_parts`."""
        return SparkJob(PackedWay(work, name), frame=self._frame(parts))

    def into_table(
        self, config: PipelineConfig, commit: TableCommit, letters: TableHandle, parts: Sequence[RecordParts]
    ) -> tuple[OneTable, SparkJob]:
        """`Jobs.into_table`."""
        return TableQuery(self._spark, config, [self._frame(each) for each in parts]).once(commit, letters)

    def _frame(self, parts: RecordParts) -> DataFrame:
        return raw_record_frame(self._spark, parts.count, _PartReader(parts))
