"""Runs pipelines: several files in one Spark session, until they end, one fails, or somebody asks to stop.

    1. tables are compared, `select` is analysed, for all      a mistake here: nothing has been written, exit code 2
       files; then tables are created, checkpoints claimed
    2. one streaming query per file is started
    3. wait: the first query that fails stops the others       exit code by the kind of the error (`error_kind`)
    4. SIGTERM, Ctrl-C: every query finishes its batch         exit code 0

To finish a batch and begin no other, the sinks are told first: a batch that Spark starts after that is refused before
it does anything, and Spark's stop is called only between triggers, because it interrupts what runs. A batch that was
begun and refused is begun again by the next run.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from freshet.pipeline.batch.batch_settings import batch_settings
from freshet.pipeline.batch.checkpoint_owner import claim_checkpoint
from freshet.pipeline.batch.checkpoint_topics import claim_topics
from freshet.pipeline.batch.dead_letters import open_dead_letters
from freshet.pipeline.batch.micro_batch import MicroBatchWriter
from freshet.pipeline.batch.table_setup import open_or_create, refuse_other_table, with_table_options
from freshet.pipeline.batch.table_sink import TableSink
from freshet.pipeline.config.model import revealed
from freshet.pipeline.config.pipeline_file import PipelineConfig
from freshet.pipeline.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineError, PipelineFailedError, brief_reason
from freshet.pipeline.failure import kind_of
from freshet.pipeline.known_causes import full_checkpoint
from freshet.pipeline.progress import Progress, ProgressHub, ProgressListener
from freshet.pipeline.progress_report import progress_line
from freshet.pipeline.signals import when_asked_to_stop
from freshet.pipeline.spark.outcome_frame import outcome_frame
from freshet.pipeline.spark.table_frame import followed_frame
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import StorageError

POLL_S: Final = 0.2
"""How often the runner looks whether a query has ended; batches do not wait for it."""

STOP_POLL_S: Final = 0.02


class StopRequested(PipelineError):
    """A batch was refused because the run is ending; the next run begins it again."""


@dataclass(slots=True)
class _Running:
    config: PipelineConfig
    sink: TableSink
    query: StreamingQuery


class Runner:
    """Runs some pipelines in one session. `on_progress` gets every micro-batch, `on_idle` the name of a pipeline that
    waits for records, `say` what people should know."""

    def __init__(
        self,
        spark: SparkSession,
        configs: Sequence[PipelineConfig],
        *,
        on_progress: Callable[[Progress], None] | None = None,
        on_idle: Callable[[str], None] = lambda pipeline: None,
        say: Callable[[str], None] = lambda text: None,
        topic_ids: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """`topic_ids` are those of the Kafka topics by pipeline, as far as they are known."""
        self._spark = spark
        self._configs = tuple(configs)
        self._hub = ProgressHub(on_progress or (lambda progress: say(progress_line(progress))), on_idle)
        self._say = say
        self._topic_ids = topic_ids or {}
        self._stop = threading.Event()
        self._found: PipelineFailedError | None = None

    def fail(self, error: PipelineFailedError) -> None:
        """Stops like `request_stop`, because of something that was found outside of the batches; `run` raises it."""
        self._found = error
        self._stop.set()

    def request_stop(self) -> None:
        """Asks every query to finish its batch; returns at once and may be called from a signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Runs until all queries have ended. Raises what made one of them fail."""
        for config in self._configs:  # 1
            refuse_other_table(config.table)
        configs = [with_table_options(config) for config in self._configs]
        frames = [self._frame(config) for config in configs]
        sinks = [self._open_sink(config) for config in configs]
        listener = ProgressListener(self._hub)
        self._spark.streams.addListener(listener)
        running: list[_Running] = []
        try:
            for config, frame, sink in zip(configs, frames, sinks, strict=True):  # 2
                running.append(_Running(config, sink, self._started(config, frame, sink)))
                self._say(f"{config.name}: running into {config.table.name}, checkpoint {config.checkpoint}")
            while any(each.query.isActive for each in running) and not self._stop.wait(POLL_S):
                if any(_has_failed(each) for each in running):
                    break
        finally:
            self._finish(running)
            for sink in sinks:
                sink.close()
            self._spark.streams.removeListener(listener)
            self._tell_the_rest(running)
        if self._found is not None:
            raise self._found
        for each in running:
            self._raise_failure(each)

    def _open_sink(self, config: PipelineConfig) -> TableSink:
        table = open_or_create(config.table)
        claim_checkpoint(config.checkpoint, pipeline=config.name, table=table)
        claim_topics(config.checkpoint, self._topic_ids.get(config.name, {}))
        dead_letters = None
        if not config.follows_tables:  # what is read there are rows already, none of which becomes a dead letter
            dead_letters = open_dead_letters(Catalog(config.table.warehouse), config.dead_letter_table)
        options = config.table.write_options
        writer = MicroBatchWriter(
            table,
            config.name,
            decoded=config.table.table_schema,
            dead_letters=dead_letters,
            max_dead_letters=config.max_dead_letters,
            options=options,
            compaction=config.compaction,
            writes_all_batches=True,
        )
        return TableSink(writer, self._hub.add_report)

    def _started(self, config: PipelineConfig, frame: DataFrame, sink: TableSink) -> StreamingQuery:
        """The query; what Spark refuses here is refused after the table was made."""
        try:
            return self._start(config, frame, sink)
        except (PySparkException, Py4JJavaError) as error:
            raise failed_pipeline(config, error) from error

    def _start(self, config: PipelineConfig, frame: DataFrame, sink: TableSink) -> StreamingQuery:
        stop = self._stop

        def write(batch: DataFrame, micro_batch_id: int) -> None:
            if stop.is_set():
                raise StopRequested(f"pipeline {config.name!r} is stopping; batch {micro_batch_id} was not begun")
            sink(batch, micro_batch_id)

        with batch_settings(self._spark):  # the query's own session is a copy made by `start`
            # The input order of rows that no decoder has made is their position, which Spark counts in batches alone.
            planned = frame if config.follows_tables else sink.with_tasks(frame)
            writer = planned.writeStream.queryName(config.name).foreachBatch(write)
            writer = writer.option("checkpointLocation", config.checkpoint)
            if config.trigger.available_now:
                return writer.trigger(availableNow=True).start()
            return writer.trigger(processingTime=config.trigger.processing_time or "1 second").start()

    def _frame(self, config: PipelineConfig) -> DataFrame:
        if config.follows_tables:
            return followed_frame(self._spark, config)
        frames = [
            outcome_frame(self._spark, source, source_index, config, config.table.table_schema)
            for source_index, source in enumerate(config.sources)
        ]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole

    def _tell_the_rest(self, running: Sequence[_Running]) -> None:
        """The listener hears of a batch some time after it, so of the last perhaps never; the hub tells each once."""
        for each in running:
            for progress in each.query.recentProgress:
                self._hub.add_spark_progress(json.loads(progress.json))

    def _finish(self, running: Sequence[_Running]) -> None:
        """Lets every query that runs finish its batch, then stops it."""
        was_asked = self._stop.is_set()
        self._stop.set()
        pause = threading.Event()
        active = [each for each in running if each.query.isActive]
        if active or (was_asked and running):  # a query may have seen the request before this thread has
            self._say("finishing the batches that run; again to stop at once")
        while active:
            for each in active:
                if not each.query.status["isTriggerActive"]:
                    each.query.stop()
            pause.wait(STOP_POLL_S)
            active = [each for each in active if each.query.isActive]

    def _raise_failure(self, each: _Running) -> None:
        failure = each.sink.failure
        if failure is None:
            failure = each.query.exception()
            if failure is None or StopRequested.__name__ in str(failure):
                return
            # Not the sink's: what Spark does around it, most of all its notes in the checkpoint.
            told = full_checkpoint(str(failure), each.config.checkpoint)
            if told is not None:
                raise PipelineFailedError(told, pipeline=each.config.name, kind=ErrorKind.RETRYABLE) from failure
        raise failed_pipeline(each.config, failure) from failure


def failed_pipeline(config: PipelineConfig, failure: BaseException) -> PipelineFailedError:
    """What a pipeline failed of, as what it is; met while it ran, whatever its kind."""
    if isinstance(failure, PipelineFailedError) and failure.pipeline is not None:
        return failure
    text = str(failure) if isinstance(failure, PipelineError | StorageError) else brief_reason(failure)
    return PipelineFailedError(config.without_secrets(text), pipeline=config.name, kind=kind_of(failure))


@contextmanager
def stop_on_signals(runner: Runner) -> Iterator[None]:
    """SIGTERM and Ctrl-C ask the runner to stop; a second one ends the program at once."""
    with when_asked_to_stop(runner.request_stop):
        yield


def spark_settings(configs: Sequence[PipelineConfig]) -> dict[str, str]:
    """The Spark settings of all files together; `config.pipeline_file` has refused files that contradict each other."""
    settings: dict[str, str] = {}
    for config in configs:
        settings |= revealed(config.spark)
    return settings


def _has_failed(each: _Running) -> bool:
    return not each.query.isActive and each.query.exception() is not None
