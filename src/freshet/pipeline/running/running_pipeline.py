"""One pipeline of a run: its table, its query on an engine, and what became of them.

    open()  start()            the query runs
    take_failure()             None while all is well; else why it ended, and everything of this start is closed
    restart()                  opens and starts again, by the file and the table as they are now

A crash (Java's heap used up, a worker that was killed) is worth another try if a batch was finished since the last
start: at the first batch after a start it would come again, since a restart plans the same batch. Memory that runs out
in Python is, until a batch has ended so three times: what else ran on the machine may be over.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.pipeline_file import PipelineConfig
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.errors.failure import kind_of, ran_out_of_memory, whole_text
from freshet.pipeline.errors.known_causes import READ_LESS, full_checkpoint, is_crash
from freshet.pipeline.exceptions import PipelineError, PipelineFailedError, brief_reason
from freshet.pipeline.identity.checkpoint_folder import CheckpointFolder, CheckpointPlace
from freshet.pipeline.identity.checkpoint_owner import claim_checkpoint
from freshet.pipeline.identity.checkpoint_topics import claim_topics
from freshet.pipeline.identity.planned_isolation import claim_isolation
from freshet.pipeline.query.driver.dead_letters import open_dead_letters
from freshet.pipeline.query.driver.table_setup import open_or_create, with_table
from freshet.pipeline.running.engine_pipeline import Gate, OpenTables, PipelineEngine, StopRequested
from freshet.pipeline.running.progress import ProgressHub
from freshet.pipeline.running.restarts import Restart, RestartRule
from freshet.storage.exceptions import LostCommitError, StorageError

TIMES_MAX: Final = 3
"""How often memory may run out in one batch, restarts of the process included."""
_FILE: Final = "freshet-memory.json"
"""In the checkpoint: {"batch": number of the batch that it goes on with, "times": how often memory ran out in it}."""


class RunningPipeline:
    """A pipeline on an engine; all but the batches is called from one thread."""

    def __init__(
        self,
        engine: PipelineEngine,
        config: PipelineConfig,
        hub: ProgressHub,
        run_ends: threading.Event,
        topic_ids: Mapping[str, str],
    ) -> None:
        self.config = config
        self.failure: PipelineFailedError | None = None
        """Why it is not started again; None while it runs, waits, or has come to its end."""
        self.waits_until_s: float | None = None
        self._errors = engine.errors
        self._may_fail_by: tuple[type[Exception], ...] = (PipelineError, StorageError, *engine.errors)
        self._on_engine = engine.pipeline(config, hub)
        self._gate = Gate(config.name, run_ends)
        self._topic_ids = topic_ids
        self._restart_number = 0
        self._reached = 0
        """The batch that it had come to when it failed."""
        self._started_s = time.monotonic()
        self._planned = config
        self._checkpoint: CheckpointFolder | None = None
        self._is_started = False

    @property
    def name(self) -> str:
        """The name of the pipeline and its query."""
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
    def micro_batch_id(self) -> int | None:
        """The batch begun last."""
        return self._gate.number

    @property
    def is_in_batch(self) -> bool:
        """True while a batch runs, or where one has failed."""
        return self._gate.is_in_batch

    @property
    def batches_done(self) -> int:
        """Batches since the last start."""
        return self._gate.done

    @property
    def is_active(self) -> bool:
        """True while its query runs."""
        return self._is_started and self._on_engine.is_active

    @property
    def is_over(self) -> bool:
        """True where nothing of it is to come."""
        return self.waits_until_s is None and not self.is_active

    def plan(self) -> None:
        """Understands what it reads; writes nothing."""
        self._planned = with_table(self.config)
        self._checkpoint = self._on_engine.plan(self._planned)

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
        self._on_engine.open(config, OpenTables(table, dead_letters, planned_before))

    def start(self) -> None:
        """Starts the query; what the engine refuses here is refused after the table was made."""
        self._started_s = time.monotonic()
        self._gate.begin_anew()
        try:
            self._on_engine.start(self._gate)
        except self._errors as error:
            raise failed_pipeline(self.config, error) from error
        self._is_started = True

    def restart(self) -> None:
        """Opens and starts it again. Raises `PipelineFailedError` where that fails."""
        self.waits_until_s = None
        self._started_s = time.monotonic()  # also of a try that ends before its query starts
        try:
            self.plan()
            self.open()
            self.start()
        except self._may_fail_by as error:
            self.close()
            raise failed_pipeline(self.config, error) from error

    def wait_by(self, rule: RestartRule) -> Restart | None:
        """Waits for another start as the rule says; None where it says that this is given up."""
        now_s = time.monotonic()
        reached = self._gate.reached
        has_progressed, self._reached = reached > self._reached, max(reached, self._reached)
        restart = rule.next(self._restart_number, now_s - self._started_s, has_progressed=has_progressed)
        if restart is not None:
            self._restart_number, self.waits_until_s = restart.number, now_s + restart.wait_s
        return restart

    def take_failure(self) -> PipelineFailedError | None:
        """Why the query ended by itself, once; None where it runs, or was asked to end, or has read everything.

        However it ended, a commit that another program has replaced is a failure.
        """
        if not self._is_started or self._on_engine.is_active:
            return None
        failure = self._failure()
        try:
            self.close()
        except LostCommitError as lost:
            failure = failure or failed_pipeline(self.config, lost)
        return failure

    def request_stop(self) -> None:
        """Lets it begin no other batch."""
        self._gate.close()

    def stop_between_batches(self) -> None:
        """Stops the query if nothing of it runs at the moment."""
        if self._is_started:
            self._on_engine.stop_between_batches()

    def close(self) -> None:
        """Ends what runs in the background; the query has ended. Raises `LostCommitError` as `EnginePipeline.end`."""
        self._is_started = False
        self._on_engine.end()

    def _failure(self) -> PipelineFailedError | None:
        failure = self._on_engine.failure()
        if failure is None or isinstance(failure, StopRequested) or StopRequested.__name__ in str(failure):
            return None
        if not self.is_in_batch:  # what the engine does around batches, most of all its notes in the checkpoint
            text = full_checkpoint(str(failure), self.config.checkpoint)
            if text is not None:
                return PipelineFailedError(text, pipeline=self.name, kind=ErrorKind.RETRYABLE)
        times, checkpoint = 0, self._checkpoint
        if checkpoint is not None and self.micro_batch_id is not None and ran_out_of_memory(failure):
            times = _count_memory_failure(checkpoint, self.micro_batch_id)
        return failed_pipeline(self.config, failure, has_progressed=self.batches_done > 0, memory_failures=times)


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


def _count_memory_failure(checkpoint: CheckpointFolder, micro_batch_id: int) -> int:
    """Notes that the batch has ended so once more; how often it has by now, as far as the checkpoint can be read."""
    times = 1
    with suppress(OSError, ValueError, LookupError, TypeError):
        known = json.loads(checkpoint.read(_FILE) or "{}")
        times += int(known["times"]) if known["batch"] == micro_batch_id else 0
    with suppress(OSError):
        checkpoint.replace(_FILE, json.dumps({"batch": micro_batch_id, "times": times}))
    return times
