"""One pipeline of a run: its table and sink, its streaming query, and what became of them.

    open()  start()            the query runs
    take_failure()             None while all is well; else why it ended, and everything of this start is closed
    restart()                  opens and starts again, by the file and the table as they are now

A crash (Java's heap used up, a worker that was killed) is worth another try if a batch was finished since the last
start: at the first batch after a start it would come again, since a restart plans the same batch. Memory that runs out
in Python is, until a batch has ended so three times (`memory_failures`): what else ran on the machine may be over.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from freshet.pipeline.batch.batch_report import BatchReport
from freshet.pipeline.batch.dead_letters import open_dead_letters
from freshet.pipeline.batch.new_columns import NewColumnsError
from freshet.pipeline.batch.one_table import one_table_run
from freshet.pipeline.batch.table_setup import open_or_create, with_table
from freshet.pipeline.batch.table_sink import TableSink
from freshet.pipeline.checks.unread_records import UnreadRecords, unread_records
from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.pipeline_file import PipelineConfig
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.errors.failure import kind_of, ran_out_of_memory, whole_text
from freshet.pipeline.errors.known_causes import READ_LESS, full_checkpoint, is_crash, missing_file_system
from freshet.pipeline.exceptions import ConfigurationError, PipelineError, PipelineFailedError, Problem, brief_reason
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder, CheckpointPlace, spark_path
from freshet.pipeline.identity.checkpoint_owner import claim_checkpoint
from freshet.pipeline.identity.checkpoint_topics import claim_topics
from freshet.pipeline.identity.memory_failures import TIMES_MAX, count_memory_failure
from freshet.pipeline.identity.open_checkpoint import open_checkpoint
from freshet.pipeline.identity.planned_isolation import claim_isolation
from freshet.pipeline.running.progress import ProgressHub
from freshet.pipeline.running.restarts import Restart, RestartRule
from freshet.pipeline.sources.direct_frame import taken_directly
from freshet.pipeline.sources.outcome_frame import lone_decoder, outcome_frame
from freshet.pipeline.sources.raw_frame import sets_poll_records
from freshet.pipeline.sources.table_frame import followed_frame
from freshet.pipeline.sync.sync_run import sync_frame, sync_run
from freshet.storage.exceptions import LostCommitError, StorageError

_PLANS_IN_VAIN_MAX: Final = 5
"""How often a query is planned anew for new columns without a batch in between: fields may come one after the other."""


class StopRequested(PipelineError):
    """A batch was refused because the run is ending; the next run begins it again."""


class RunningPipeline:
    """A pipeline in a session; all but the batches is called from one thread."""

    def __init__(
        self,
        spark: SparkSession,
        config: PipelineConfig,
        hub: ProgressHub,
        run_ends: threading.Event,
        topic_ids: Mapping[str, str],
    ) -> None:
        self.config = config
        self.failure: PipelineFailedError | None = None
        """Why it is not started again; None while it runs, waits, or has come to its end."""
        self.waits_until_s: float | None = None
        self.micro_batch_id: int | None = None
        """The batch begun last."""
        self.is_in_batch = False
        self.batches_done = 0
        """Since the last start."""
        self._spark = spark
        self._hub = hub
        self._run_ends = run_ends
        self._ends = threading.Event()
        self._topic_ids = topic_ids
        self._restart_number = 0
        self._started_s = time.monotonic()
        self._planned = config
        self._checkpoint: CheckpointFolder | None = None
        self._unread: tuple[UnreadRecords, ...] = ()
        self._frame: DataFrame | None = None
        self._sink: TableSink | None = None
        self._query: StreamingQuery | None = None
        self._events: list[str] = []
        """What has become of the table since the last batch."""
        self._plans_in_vain = 0

    @property
    def name(self) -> str:
        """Of the pipeline and its query."""
        return self.config.name

    @property
    def checkpoint(self) -> CheckpointPlace:
        """Its folder, open once it was planned."""
        return self._checkpoint or self.config.checkpoint

    @property
    def target_text(self) -> str:
        """Where its rows go, for messages."""
        name = self.config.table.name
        return f"the tables of its rules, ledger {name}" if isinstance(self.config, SyncPipelineConfig) else name

    @property
    def is_active(self) -> bool:
        """True while its query runs."""
        return self._query is not None and self._query.isActive

    @property
    def is_over(self) -> bool:
        """True where nothing of it is to come."""
        return self.waits_until_s is None and not self.is_active

    def plan(self) -> None:
        """Analyses the frame; writes nothing."""
        self._planned = with_table(self.config)
        records = () if self._planned.follows_tables else self._planned.sources
        self._checkpoint = opened_checkpoint(self._spark, self._planned)
        self._unread = tuple(unread_records(source, self._checkpoint) for source in records)
        self._frame = self._planned_frame()

    def open(self) -> None:
        """Creates the table where there is none, claims the checkpoint."""
        config = self._planned
        table = open_or_create(config)
        checkpoint = self._checkpoint or config.checkpoint
        claim_checkpoint(checkpoint, pipeline=config.name, table=table)
        claim_topics(checkpoint, self._topic_ids)
        planned_before = claim_isolation(checkpoint, config.sources)
        dead_letters = None
        if not config.follows_tables:  # what is read there are rows already, none of which becomes a dead letter
            dead_letters = open_dead_letters(target_catalog(config), config.dead_letter_table)
        if isinstance(config, SyncPipelineConfig):
            assert dead_letters is not None
            writer = sync_run(self._spark, config, table, dead_letters, planned_before)
        else:
            writer = one_table_run(
                table,
                config.name,
                decoded=config.table.table_schema,
                dead_letters=dead_letters,
                max_dead_letters=config.max_dead_letters,
                options=config.table.own_options,
                compaction=config.compaction,
                writes_all_batches=True,
                follows_polls=not any(sets_poll_records(source) for source in config.sources),
                direct=None if config.follows_tables else taken_directly(config),
                accepted_loss=config.accepted_loss,
                planned_before=planned_before,
            )
        for unread in self._unread:
            writer.arrow.saw(unread.sizes)
        self._sink = TableSink(writer, self._add_report)

    def start(self) -> None:
        """Starts the query; what Spark refuses here is refused after the table was made."""
        assert self._sink is not None
        assert self._frame is not None
        self._started_s, self.batches_done, self.is_in_batch = time.monotonic(), 0, False
        try:
            self._query = self._start(self._frame, self._sink)
        except (PySparkException, Py4JJavaError) as error:
            raise failed_pipeline(self.config, error) from error

    def restart(self) -> None:
        """Opens and starts it again. Raises `PipelineFailedError` where that fails."""
        self.waits_until_s = None
        self._started_s = time.monotonic()  # also of a try that ends before its query starts
        try:
            self.plan()
            self.open()
            self.start()
        except (PipelineError, StorageError, PySparkException, Py4JJavaError) as error:
            self.close()
            raise failed_pipeline(self.config, error) from error

    def wait_by(self, rule: RestartRule) -> Restart | None:
        """Waits for another start as the rule says; None where it says that this is given up."""
        now_s = time.monotonic()
        restart = rule.next(self._restart_number, now_s - self._started_s)
        if restart is not None:
            self._restart_number, self.waits_until_s = restart.number, now_s + restart.wait_s
        return restart

    def take_failure(self) -> PipelineFailedError | None:
        """Why the query ended by itself, once; None where it runs, or was asked to end, or has read everything.

        However it ended, a commit that another program has replaced is a failure.
        """
        if self._query is None or self._query.isActive:
            return None
        failure = self._failure(self._query)
        self._report_the_rest(self._query)
        try:
            self.close()
        except LostCommitError as lost:
            failure = failure or failed_pipeline(self.config, lost)
        return failure

    def follow_columns(self, failure: PipelineFailedError) -> bool:
        """Whether the query ended because it has to be planned anew for new columns, which the report of its batch
        names; not where it has come to no batch since it was planned the last few times."""
        cause = failure.__cause__
        if not isinstance(cause, NewColumnsError) or self._plans_in_vain >= _PLANS_IN_VAIN_MAX:
            return False
        self._plans_in_vain += 1
        self._events.append(cause.event)
        return True

    def request_stop(self) -> None:
        """Lets it begin no other batch."""
        self._ends.set()

    def stop_between_batches(self) -> None:
        """Stops the query if nothing of it runs at the moment: Spark's stop interrupts what runs."""
        if self._query is not None and not self._query.status["isTriggerActive"]:
            self._query.stop()

    def close(self) -> None:
        """Ends what runs in the background; the query has ended. Raises `LostCommitError` as `TableSink.close`."""
        self._query = None
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.close()

    def _add_report(self, report: BatchReport) -> None:
        events, self._events, self._plans_in_vain = self._events, [], 0
        self._hub.add_report(replace(report, table_events=(*events, *report.table_events)) if events else report)

    def _failure(self, query: StreamingQuery) -> PipelineFailedError | None:
        failure = None if self._sink is None else self._sink.failure
        if failure is None:
            failure = query.exception()
            if failure is None or StopRequested.__name__ in str(failure):
                return None
            # Not the sink's: what Spark does around it, most of all its notes in the checkpoint.
            text = full_checkpoint(str(failure), self.config.checkpoint)
            if text is not None:
                return PipelineFailedError(text, pipeline=self.name, kind=ErrorKind.RETRYABLE)
        times, checkpoint = 0, self._checkpoint
        if checkpoint is not None and self.micro_batch_id is not None and ran_out_of_memory(failure):
            times = count_memory_failure(checkpoint, self.micro_batch_id)
        return failed_pipeline(self.config, failure, has_progressed=self.batches_done > 0, memory_failures=times)

    def _start(self, frame: DataFrame, sink: TableSink) -> StreamingQuery:
        config = self._planned

        def write(batch: DataFrame, micro_batch_id: int) -> None:
            if self._run_ends.is_set() or self._ends.is_set():
                raise StopRequested(f"pipeline {config.name!r} is stopping; batch {micro_batch_id} was not begun")
            self.micro_batch_id, self.is_in_batch = micro_batch_id, True
            sink(batch, micro_batch_id)
            self.is_in_batch = False
            self.batches_done += 1

        with sink.arrow.in_force(self._spark):  # the query's own session is a copy made by `start`
            # The input order of rows that no decoder has made is their position, which Spark counts in batches alone.
            # The tasks of many tables are planned batch by batch, since tables come while the query runs.
            is_planned = not (config.follows_tables or isinstance(config, SyncPipelineConfig))
            planned = sink.with_tasks(frame, lone_decoder(config)) if is_planned else frame
            writer = planned.writeStream.queryName(config.name).foreachBatch(write)
            writer = writer.option("checkpointLocation", spark_path(config.checkpoint))
            if config.trigger.available_now:
                return writer.trigger(availableNow=True).start()
            return writer.trigger(processingTime=config.trigger.processing_time or "1 second").start()

    def _planned_frame(self) -> DataFrame:
        config = self._planned
        if config.follows_tables:
            return followed_frame(self._spark, config)
        if isinstance(config, SyncPipelineConfig):
            return sync_frame(self._spark, config, self._unread[0])
        frames = [
            outcome_frame(self._spark, config, source_index, unread) for source_index, unread in enumerate(self._unread)
        ]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole

    def _report_the_rest(self, query: StreamingQuery) -> None:
        """The listener gets a batch some time after it ended, the last one perhaps never; the hub reports each once."""
        for progress in query.recentProgress:
            self._hub.add_spark_progress(json.loads(progress.json))


def opened_checkpoint(spark: SparkSession, config: PipelineConfig) -> CheckpointFolder:
    """The folder of its checkpoint. Raises `ConfigurationError` where Spark has no file system for it."""
    try:
        return open_checkpoint(spark, config.checkpoint)
    except OSError as error:
        text = missing_file_system(str(error), config.checkpoint) or f"{config.checkpoint} cannot be reached: {error}"
        problem = Problem(("checkpoint",), config.without_secrets(text))
        raise ConfigurationError([config.origin.placed(problem)]) from error


def failed_pipeline(
    config: PipelineConfig, failure: BaseException, *, has_progressed: bool = False, memory_failures: int = 0
) -> PipelineFailedError:
    """The error of a pipeline, of the kind of its cause; met while it ran, whatever the kind. `memory_failures` is how
    often its batch ended so, where memory ran out."""
    if isinstance(failure, PipelineFailedError) and failure.pipeline is not None:
        return failure
    text = str(failure) if isinstance(failure, PipelineError | StorageError) else brief_reason(failure)
    kind = kind_of(failure)
    if kind is ErrorKind.INTERNAL and is_crash(whole_text(failure)):
        kind = ErrorKind.RETRYABLE if has_progressed else ErrorKind.INTERNAL
    if kind is ErrorKind.RETRYABLE and memory_failures >= TIMES_MAX:
        kind = ErrorKind.INTERNAL
        text = f"{text}; the batch ended so {memory_failures} times: give the machine more memory, or {READ_LESS}"
    failed = PipelineFailedError(config.without_secrets(text), pipeline=config.name, kind=kind)
    failed.__cause__ = failure
    return failed
